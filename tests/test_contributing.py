"""CONTRIBUTING.md names files that are there; its two walks visit each of them once."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
WALK = re.compile(r"^\d+\. `([^`]+)`", re.MULTILINE)


def test_every_file_that_is_named_exists():
    named = re.findall(r"`((?:panas|dprbft|attacks|panas_cli|tests)/[\w/.]+)`", TEXT)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_walks_are_short_and_visit_each_file_once():
    genome, sample = (WALK.findall(part) for part in TEXT.split("One sample, from the data")[:2])
    assert 5 < len(genome) <= 12
    assert 5 < len(sample) <= 14
    assert len(set(genome)) == len(genome)
    assert len(set(sample)) == len(sample)
