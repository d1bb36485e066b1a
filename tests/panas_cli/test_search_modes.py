"""`panas run` with every way to search: its price on stderr, and a run that ends well."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ledgers import accounts

NOTHING_PUBLIC = ["--warm-start", "none", "--set", "data.public_fraction=0"]
UNACCOUNTED = ["privacy.search=unaccounted", "privacy.allow_unprotected=true"]


def priced(err: str) -> list[str]:
    return [x for x in err.splitlines() if x.startswith("search price")]


@pytest.mark.thorough
@pytest.mark.parametrize("public", [[], NOTHING_PUBLIC], ids=["public", "nothing public"])
def test_a_data_free_run_ends_well_and_says_its_price(
    public: list[str], cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    options = tiny(tuning__trials=2, tuning__initial=1)
    search = ["--set", "privacy.search=data-free"]
    outcome = cli("run", "--out", run, *options, *search, *public, "--json")
    assert outcome.code == 0, outcome.err
    (line,) = priced(outcome.err)
    assert "epsilon 0 " in line
    for site, account in zip(json.loads(outcome.out)["clients"], accounts(run), strict=True):
        assert site["epsilon"]["search"] == account.spent("search") == 0
        assert account.spent() <= 8.0
    assert (run / "audit.json").is_file()
    again = cli("run", "--out", run, "--resume", "--workers", 1)
    assert (again.code, priced(again.err)) == (0, [])


@pytest.mark.slow
def test_the_price_comes_before_the_search(cli: Callable, tiny: Callable, tmp_path: Path):
    outcome = cli("search", "--out", tmp_path / "r", *tiny(), "--json")
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    (line,) = priced(outcome.err)
    assert line.startswith("search price: epsilon 0.80 of 8, for one noised label histogram")
    assert lines.index(line) < next(k for k, x in enumerate(lines) if "fitness" in x)
    assert "search price" not in outcome.out


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["privacy.search=private"], "privacy.search: expected a search mode of data-free, p"),
        (["search.algorithm=greedy"], "search.algorithm"),
        (["privacy.search=dp"], "privacy.search"),
        (["privacy.search=proxy"], "public-proxy, as proxy is called now"),
        ([*UNACCOUNTED, "data.search_fraction=0"], "data.search_fraction"),
        ([*UNACCOUNTED, "data.search_fraction=0.01"], "4 search samples"),
        (["privacy.search=public-proxy", "data.public_fraction=0"], "data-free"),
        (["privacy.search=unaccounted"], "allow_unprotected"),
    ],
)
def test_what_a_search_cannot_do_is_said_in_one_line(
    settings: list[str], says: str, cli: Callable, tiny: Callable, tmp_path: Path
):
    options = [x for s in settings for x in ("--set", s)]
    line = cli("run", "--out", tmp_path / "r", *tiny(), *options).refusal
    assert "expected" in line
    assert says in line
    assert not (tmp_path / "r").exists()
