"""Small runs of the federation, in this process."""

from tiny_runs import carry, make_site, run, tiny  # noqa: F401
