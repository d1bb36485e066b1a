"""Mutants of the code that the implementation audit runs: each applies, and a few are killed."""

import importlib
import inspect
import textwrap

import pytest

from benchmarks.mutant_table import MUTANTS, Mutant
from benchmarks.mutants import measure, summary


def test_there_are_mutants_of_all_areas():
    assert len(MUTANTS) >= 40
    assert len({(m.area, m.name) for m in MUTANTS}) == len(MUTANTS)
    wanted = {"moments", "clipping", "sampling", "noise", "accounting", "histogram", "secure sum"}
    assert wanted <= {m.area for m in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.area}: {m.name}")
def test_each_mutant_still_applies_and_is_code(mutant: Mutant):
    path, _, name = mutant.target.partition(":")
    found = importlib.import_module(path)
    for part in name.split("."):
        found = found.__dict__[part]  # type: ignore[assignment]
    text = textwrap.dedent(inspect.getsource(getattr(found, "fget", found)))
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.target, "exec")


@pytest.mark.thorough
def test_two_are_killed_and_a_clean_run_is_silent():
    chosen = [m for m in MUTANTS if m.name in ("one entry bare", "counts bare")]
    record = summary(measure(chosen, clean=1, workers=1, seed=7), 0.0)
    assert (record["mutants"], record["killed"], record["alarms"]) == (2, 2, 0)
