"""Small runs of the federation, in this process."""

from tiny_runs import carry, make_site, tiny  # noqa: F401
