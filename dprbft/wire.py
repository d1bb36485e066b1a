"""The version of all that crosses between a hub and its sites, and that of panas, which may differ.

`WIRE` covers frames, messages, and the settings and facts of a run in them. Raise it when an end of
the version before would refuse, or read otherwise, what this one sends; then record the new form
(`tests/helpers/record_fixtures.py`). Ends of one wire version work together.
"""

from functools import cache
from importlib.metadata import version

WIRE = 1


@cache
def own_version() -> str:
    """The version of panas here."""
    return version("panas")
