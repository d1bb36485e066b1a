"""Figures for the documents, in wings; each module is one command that anyone can run.

The folders of the wings lead this package's path: `benchmarks/search/rivals.py` is the module
`benchmarks.rivals`, and `benchmarks/search/search.py` is `benchmarks.search`. A module has this
short name only.
"""

from pathlib import Path

WINGS = ("search", "tuning", "privacy", "attacks", "federation")

__path__[:0] = [str(Path(__file__).parent / wing) for wing in WINGS]
