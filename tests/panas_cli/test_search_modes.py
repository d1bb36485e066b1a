"""`panas run` with every way to search: its price on stderr, and a run that ends well."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from panas.privacy.ledger.ledger import Ledger

NOTHING_PUBLIC = ["--warm-start", "none", "--set", "data.public_fraction=0"]
RANDOM = ["--set", "search.algorithm=random"]


def priced(err: str) -> list[str]:
    return [x for x in err.splitlines() if x.startswith("search price")]


@pytest.mark.slow
@pytest.mark.parametrize("public", [[], NOTHING_PUBLIC], ids=["public", "nothing public"])
@pytest.mark.parametrize(
    ("mode", "says"),
    [
        (["data-free"], "epsilon 0 "),
        (["dp"], "on the search split"),
        (["dp", *RANDOM], "one winner"),
    ],
    ids=["data-free", "dp", "dp random"],
)
def test_a_run_ends_well_and_says_its_price(
    mode: list[str], says: str, public: list[str], cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    options = tiny(tuning__trials=2, tuning__initial=1)
    search = ["--set", f"privacy.search={mode[0]}", *mode[1:]]
    outcome = cli("run", "--out", run, *options, *search, *public, "--json")
    assert outcome.code == 0, outcome.err
    (line,) = priced(outcome.err)
    assert says in line
    summary = json.loads(outcome.out)
    for client in summary["clients"]:
        account = Ledger(run / "ledger.jsonl").account(client["id"])
        assert f"epsilon {account.spent('search'):.2f}" in line or mode == ["data-free"]
        assert client["epsilon"]["search"] == account.spent("search") <= 8.0
        assert account.spent() <= 8.0
    assert (run / "audit.json").is_file()
    again = cli("run", "--out", run, "--resume", "--workers", 1)
    assert (again.code, priced(again.err)) == (0, [])


def test_the_price_comes_before_the_search(cli: Callable, tiny: Callable, tmp_path: Path):
    outcome = cli("search", "--out", tmp_path / "r", *tiny(), "--json")
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    (line,) = priced(outcome.err)
    assert line.startswith("search price: epsilon 0.80 of 8, for one noised label histogram")
    assert lines.index(line) < next(k for k, x in enumerate(lines) if "fitness" in x)
    assert "search price" not in outcome.out


def test_a_dp_search_that_cannot_be_paid_ends_with_one_line(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    options = [*tiny(), "--set", "privacy.search=dp", "--epsilon", "0.0001"]
    outcome = cli("run", "--out", tmp_path / "r", *options)
    assert (outcome.code, outcome.out) == (3, "")
    (line,) = outcome.errors
    assert "noised scores" in line
    assert "data-free" in line


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["privacy.search=private"], "privacy.search"),
        (["search.algorithm=greedy"], "search.algorithm"),
        (["privacy.search=dp", "data.search_fraction=0"], "data.search_fraction"),
        (["privacy.search=dp", "data.search_fraction=0.01"], "10 search samples"),
        (["privacy.search=proxy", "data.public_fraction=0"], "data-free"),
        (["privacy.search=unaccounted"], "allow_unprotected"),
    ],
)
def test_what_a_search_cannot_do_is_said_in_one_line(
    settings: list[str], says: str, cli: Callable, tiny: Callable, tmp_path: Path
):
    options = [x for s in settings for x in ("--set", s)]
    outcome = cli("run", "--out", tmp_path / "r", *tiny(), *options)
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: expected")
    assert says in line
    assert not (tmp_path / "r").exists()
