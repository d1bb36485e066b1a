"""`panas epsilon`: four accountants beside each other, from the command line."""

import json
from collections.abc import Callable

import pytest

GOOD = {"--q": "0.04", "--sigma": "1.5", "--steps": "2250", "--delta": "1e-5"}


def options(**changes: object) -> list[str]:
    given = GOOD | {f"--{k}": str(v) for k, v in changes.items()}
    return [x for pair in given.items() for x in pair]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta", "rdp", "pld", "gdp"),
    [
        (0.04, 1.5, 2250, 1e-5, "7.329", "6.769", "6.602"),
        (256 / 60000, 1.1, 14062, 1e-5, "2.597", "2.382", "2.324"),
        (0.1, 3, 512, 1e-6, "4.051", "3.770", "3.668"),
    ],
)
def test_the_figures_of_the_reference(
    cli: Callable,
    q: float,
    sigma: float,
    steps: int,
    delta: float,
    rdp: str,
    pld: str,
    gdp: str,
):
    given = options(q=q, sigma=sigma, steps=steps, delta=delta)
    record = json.loads(cli("epsilon", *given, "--json").out)
    assert f"{record['rdp']:.3f}" == rdp
    assert f"{record['pld']:.3f}" == pld
    assert f"{record['gdp']:.3f}" == gdp
    assert record["prv"] == record["prv_high"]
    assert record["prv_low"] <= record["pld"] <= min(record["prv_high"], record["rdp"])
    shown = cli("epsilon", *given).out
    for figure in (rdp, pld, gdp, f"{record['prv']:.3f}", "approximate, no bound"):
        assert figure in shown
    assert all(len(x) <= 80 for x in shown.splitlines())


@pytest.mark.slow
def test_groups_and_replacements_cost_more(cli: Callable):
    given = options(steps=20)
    one = json.loads(cli("epsilon", *given, "--json").out)
    group = json.loads(cli("epsilon", *given, "--group", 2, "--json").out)
    replaced = json.loads(cli("epsilon", *given, "--relation", "replace-one", "--json").out)
    for name in ("pld", "rdp", "prv"):
        assert group[name] > one[name]
        assert replaced[name] > one[name]
    assert (group["group"], replaced["relation"]) == (2, "replace-one")


def test_no_bound_is_infinity_in_words(cli: Callable):
    outcome = cli("epsilon", *options(q=0.5, sigma=0.01), "--json")
    assert json.loads(outcome.out)["prv"] == "infinity"
    assert outcome.errors == []
    assert "infinity" in cli("epsilon", *options(q=0.5, sigma=0.01)).out


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("q", "0"),
        ("q", "1.01"),
        ("q", "nan"),
        ("sigma", "0"),
        ("sigma", "-1"),
        ("sigma", "inf"),
        ("steps", "0"),
        ("steps", "1.5"),
        ("delta", "0"),
        ("delta", "1"),
        ("group", "0"),
        ("relation", "swap"),
    ],
)
def test_bad_input_is_one_line(cli: Callable, name: str, value: str):
    assert f"--{name}" in cli("epsilon", *options(**{name: value})).refusal


@pytest.mark.parametrize("missing", GOOD)
def test_a_missing_option_is_named(cli: Callable, missing: str):
    given = [x for pair in GOOD.items() if pair[0] != missing for x in pair]
    outcome = cli("epsilon", *given)
    assert (outcome.code, len(outcome.errors)) == (2, 1)
    assert missing in outcome.errors[0]
