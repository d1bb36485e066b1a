"""What each search looks at and pays: prices that hold, and samples left alone."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Code, Verb
from dprbft.methods.serve import Machine, serve
from dprbft.paths import (
    histogram_file,
    home,
    ledger_file,
    read_sites,
    search_file,
    search_log,
    tune_file,
)
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import join_stage, search_prices
from dprbft.site import site as clients
from dprbft.site.data import SiteData, load_data
from dprbft.site.search import search_price
from dprbft.site.site import Site
from panas.data.samples import Samples
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json
from panas.search_modes.mode import SearchPrice, mode_names

Tiny = Callable[..., RunConfig]
MakeSite = Callable[..., Site]

COLD = {"data__public_fraction": 0.0, "federation__warm_start": "none"}
TUNED = {"tuning__trials": 2, "tuning__initial": 1}
MODES: dict[str, dict[str, Any]] = {
    "public-proxy": {"privacy__search": "public-proxy"} | TUNED,
    "public-proxy, random": {
        "privacy__search": "public-proxy",
        "search__algorithm": "random",
    },
    "data-free": {"privacy__search": "data-free"} | TUNED,
    "data-free, nothing public": {"privacy__search": "data-free"} | TUNED | COLD,
    "unaccounted": {"privacy__search": "unaccounted", "privacy__allow_unprotected": True},
}


def account(run: Path, site: int = 0) -> Account:
    return Ledger(ledger_file(read_sites(run)[site].folder)).account()


def searched(site: Site, stages: str = "st") -> dict[str, Any]:
    """A site's search, and tuning; returns what the search left."""
    for verb in (Verb.SEARCH, Verb.TUNE)[: len(stages)]:
        assert serve(site.paths, Machine(), verb, b"").code is Code.DONE
    return read_json(search_file(site.home))


def prices_of(run: Path, config: RunConfig) -> dict[int, SearchPrice]:
    prepare(run, config, resume=True)
    with InProcess(read_sites(run)) as engine:
        opened = OpenRun(run, config, engine)
        join_stage(opened)
        return search_prices(opened)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_price_that_is_shown_is_what_the_ledger_holds_afterwards(
    mode: str, tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    config = tiny(**MODES[mode])
    site = make_site(config, tmp_path / "r")
    price = search_price(site)
    searched(site)
    spent = account(tmp_path / "r").spent("search")
    assert price.epsilon == pytest.approx(spent, rel=1e-9)
    assert price.epsilon <= 8.0 or mode == "unaccounted"


def test_each_client_has_a_price_of_its_own(tiny: Tiny, make_site: MakeSite, tmp_path: Path):
    prices = prices_of(tmp_path / "r", tiny(privacy__epsilons=[8.0, 1.0]))
    assert prices.keys() == {0, 1}
    assert prices[0].epsilon > prices[1].epsilon > 0
    assert {p.reason for p in prices.values()} == {"histogram"}


class Touched(Exception):
    """Somebody looked at samples that were to be left alone."""


class Guarded(Samples):
    """Samples of which only the number may be known."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("x", "y", "take", "inputs", "histogram"):
            raise Touched(name)
        return super().__getattribute__(name)

    def __len__(self) -> int:
        return 50


def guarded(monkeypatch: pytest.MonkeyPatch, *parts: str) -> None:
    """From now on sites load the same samples, of which the named parts cannot be looked at."""

    def guard(samples: Samples) -> Samples:
        return Guarded(samples.x[:0], samples.y[:0], samples.classes)

    def load(*where: Any) -> SiteData:
        data = load_data(*where)
        return dataclasses.replace(data, **{p: guard(getattr(data, p)) for p in parts})

    monkeypatch.setattr(clients, "load_data", load)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["data-free", "data-free, nothing public"])
def test_a_search_never_looks_at_samples_that_it_has_not_paid_for(
    mode: str, tiny: Tiny, make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    guarded(monkeypatch, "search", "train", "validation", "test")
    assert searched(make_site(tiny(**MODES[mode]), tmp_path / "r"))["genome"]


def test_the_guard_has_teeth(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A proxy search reads the training labels, the paper's its own split: both are noticed."""
    for mode, part in (("public-proxy", "train"), ("unaccounted", "search")):
        with monkeypatch.context() as m:
            guarded(m, part)
            site = make_site(tiny(**MODES[mode]), tmp_path / mode)
            with pytest.raises(Touched):
                searched(site)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("data-free", marks=pytest.mark.thorough),
        pytest.param("data-free, nothing public", marks=pytest.mark.thorough),
    ],
)
def test_a_data_free_search_is_the_same_with_any_number_of_workers(
    mode: str, tiny: Tiny, carry: Callable[..., None], tmp_path: Path
):
    config = tiny(**MODES[mode], search__generations=1)
    for workers in (1, 2):
        carry(tmp_path / str(workers), config, workers=workers, stages="s")
    for i in range(2):
        one, two = (read_json(search_file(home(tmp_path / str(w), i))) for w in (1, 2))
        assert one == two
    assert account(tmp_path / "1").entries == ()


@pytest.mark.slow
def test_without_data_the_settings_are_kept(tiny: Tiny, make_site: MakeSite, tmp_path: Path):
    config = tiny(**MODES["data-free"])
    site = make_site(config, tmp_path / "r")
    searched(site)
    tuned = read_json(tune_file(site.home))
    assert tuned["trials"] == []
    assert tuned["setting"]["learning_rate"] == config.training.optimizer.learning_rate


@pytest.mark.slow
def test_a_random_search_looks_at_as_many_genomes_and_breeds_none(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    config = tiny(search__algorithm="random", search__population=2, search__generations=1)
    record = searched(make_site(config, tmp_path / "r"), "s")
    assert record["evaluations"] == 2 + 5  # children of a generation
    assert {e["generation"] for e in record["history"]} == {0}


@pytest.mark.parametrize("mode", mode_names())
def test_the_ledger_knows_the_parts_beforehand(
    mode: str, tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    config = tiny(privacy__search=mode, privacy__allow_unprotected=True)
    site = make_site(config, tmp_path / "r")
    assert site.ledger.account().subsets == ("train", "search")
    assert site.ledger.account().entries == ()


def test_too_few_search_samples_are_refused_beforehand(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    config = tiny(**MODES["unaccounted"], data__search_fraction=0.01)
    with pytest.raises(BadInput, match="at least 4 search samples"):
        prepare(tmp_path / "r", config, resume=False)
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_carries_a_run_to_its_end_within_the_budget(
    mode: str, tiny: Tiny, carry: Callable[..., None], tmp_path: Path
):
    carry(tmp_path / "r", tiny(**MODES[mode]))
    for i in range(2):
        spent = account(tmp_path / "r", i).spent()
        assert spent <= 8.0 or mode == "unaccounted"
        assert account(tmp_path / "r", i).events_on("train")
    assert prices_of(tmp_path / "r", tiny(**MODES[mode])) == {}


def killed_once_paid(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that dies after it has paid, before its first generation."""
    with monkeypatch.context() as m:
        m.setattr(type(site.config.privacy.mode), "search", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            serve(site.paths, Machine(), Verb.SEARCH, b"")


def delete_the_ledger(site: Site) -> None:
    site.ledger.path.unlink()
    site.ledger.path.with_suffix(".head").unlink()
    (site.home / "book.json").unlink(missing_ok=True)


def test_a_paid_histogram_is_refused_without_its_receipt(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = make_site(tiny(), tmp_path / "r")
    killed_once_paid(site, monkeypatch)
    (entry,) = site.account.entries
    kept = read_json(histogram_file(site.home))
    assert kept["receipt"]["charges"] == [entry.id]
    delete_the_ledger(site)
    again = make_site(tiny(), tmp_path / "r")  # which opens another, of as many lines
    again.ledger.charge(entry.charge)
    assert serve(again.paths, Machine(), Verb.SEARCH, b"").code is Code.REFUSED
    assert not search_file(site.home).exists()


@pytest.mark.slow
def test_a_search_that_goes_on_has_its_charge_in_the_ledger(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = make_site(tiny(**MODES["unaccounted"]), tmp_path / "r")
    killed_once_paid(site, monkeypatch)
    assert search_log(site.home).exists()
    make_site(tiny(**MODES["unaccounted"]), tmp_path / "r")
    delete_the_ledger(site)
    again = make_site(tiny(**MODES["unaccounted"]), tmp_path / "r")
    searched(again, "s")
    assert len(again.account.entries) == 1
    assert again.account.spent("search") == float("inf")
