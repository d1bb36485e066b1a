"""Small runs of the federation, in this process."""

from tiny_runs import carry, site, tiny  # noqa: F401
