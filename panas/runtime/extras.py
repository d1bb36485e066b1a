"""What installs libraries that are not always there: the end of a message where one is missing."""

INSTALL_FLOWER = "install panas with its extra flower (in the checkout: pip install '.[flower]')"
"""The libraries of a federation across machines, and of a secure sum."""
