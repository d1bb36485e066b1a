"""CONTRIBUTING.md names files that are there; the walk of a genome visits each of them once."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
WALK = re.compile(r"^\d+\. `([^`]+)`", re.MULTILINE)


def test_every_file_that_is_named_exists():
    named = re.findall(r"`((?:panas|dprbft|attacks|panas_cli|tests)/[\w/.]+)`", TEXT)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_walk_of_a_genome_is_short_and_visits_each_file_once():
    genome = WALK.findall(TEXT.split("One sample in method")[0])
    assert 5 < len(genome) <= 12
    assert len(set(genome)) == len(genome)
