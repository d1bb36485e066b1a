"""What each search looks at and pays: prices that hold, samples left alone, noise that is there."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import search_file, tune_file, tune_log
from dprbft.run.stages import prepare, search_prices
from dprbft.simulation.federation import Federation, load_federation, search_parts
from dprbft.site import search as search_work
from dprbft.site import search_modes as searching
from dprbft.site import site as clients
from dprbft.site.search_modes import MIN_SEARCH, planned_scoring, search_price
from dprbft.site.site import build_client
from dprbft.site.task import Task
from panas.data.samples import Samples
from panas.evolution.noised_selection import Scoring
from panas.privacy.accounting.events import Gaussian, PrivateSelection, SampledGaussian
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import read_json, write_json

COLD = {"data__public_fraction": 0.0, "federation__warm_start": "none"}
TUNED = {"tuning__trials": 2, "tuning__initial": 1}
MODES: dict[str, dict[str, Any]] = {
    "proxy": {"privacy__search": "proxy"} | TUNED,
    "proxy, random": {"privacy__search": "proxy", "search__algorithm": "random"},
    "data-free": {"privacy__search": "data-free"} | TUNED,
    "data-free, nothing public": {"privacy__search": "data-free"} | TUNED | COLD,
    "dp": {"privacy__search": "dp", "search__generations": 1} | TUNED,
    "dp, random": {"privacy__search": "dp", "search__algorithm": "random"} | TUNED,
    "dp, nothing public": {"privacy__search": "dp"} | TUNED | COLD,
    "dp, random, nothing public": {"privacy__search": "dp", "search__algorithm": "random"} | COLD,
    "unaccounted": {"privacy__search": "unaccounted", "privacy__allow_unprotected": True},
}
DP = [m for m in MODES if m.startswith("dp")]


def account(run: Path, client: int = 0) -> Account:
    return Ledger(run / "ledger.jsonl").account(client)


def searched(config: RunConfig, run: Path, stages: str = "st", client: int = 0) -> dict[str, Any]:
    """One client's search, and tuning; returns what the search left."""
    prepare(run, config, resume=True, shared=True)
    task = Task(config.model_dump_json(), run, client, "cpu")
    found = search_work.search(task)
    write_json(search_file(run, client), found)
    if "t" in stages:
        write_json(tune_file(run, client), search_work.tune(task))
    return read_json(search_file(run, client))


@pytest.mark.parametrize("mode", MODES)
def test_the_price_that_is_shown_is_what_the_ledger_holds_afterwards(
    mode: str, tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny(**MODES[mode])
    price = search_price(build_client(config, 0, tmp_path / "before", "cpu"))
    searched(config, tmp_path / "r")
    spent = account(tmp_path / "r").spent("search")
    assert price.epsilon == pytest.approx(spent, rel=1e-9)
    assert price.epsilon <= 8.0 or mode == "unaccounted"
    said = "infinity" if math.isinf(spent) else "epsilon 0" if not spent else f"{spent:.2f}"
    assert said in price.text
    assert "\n" not in price.text
    if mode in DP:
        assert price.epsilon > 0.97 * 8.0
        assert not account(tmp_path / "r").events_on("train")


def test_one_line_says_the_price_unless_clients_differ(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    (line,) = search_prices(tmp_path / "a", tiny())
    assert line.startswith("search price: epsilon 0.")
    two = search_prices(tmp_path / "b", tiny(privacy__epsilons=[8.0, 1.0]))
    assert len(two) == 2
    assert two[1].startswith("search price, client 1: epsilon 0.")


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


def guarded(federation: Federation, *parts: str) -> Federation:
    """The same clients, of whom the named parts cannot be looked at."""

    def guard(samples: Samples) -> Samples:
        return Guarded(samples.x[:0], samples.y[:0], samples.classes)

    hidden = [
        dataclasses.replace(c, **{p: guard(getattr(c, p)) for p in parts})
        for c in federation.clients
    ]
    return dataclasses.replace(federation, clients=tuple(hidden))


@pytest.mark.parametrize("mode", [*DP, "data-free", "data-free, nothing public"])
def test_a_search_never_looks_at_samples_that_it_has_not_paid_for(
    mode: str, tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = tiny(**MODES[mode])
    parts = ["train", "validation", "test", *([] if mode in DP else ["search"])]
    hidden = guarded(load_federation(config), *parts)
    monkeypatch.setattr(clients, "load_federation", lambda _: hidden)
    assert searched(config, tmp_path / "r")["genome"]


def test_the_guard_has_teeth(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A proxy search reads the training labels, a dp search its own split: both are noticed."""
    for mode, part in (("proxy", "train"), ("dp", "search")):
        config = tiny(**MODES[mode])
        hidden = guarded(load_federation(config), part)
        with monkeypatch.context() as m:
            m.setattr(clients, "load_federation", lambda _, hidden=hidden: hidden)
            with pytest.raises(Touched):
                searched(config, tmp_path / mode)


@pytest.mark.parametrize("mode", DP)
def test_samples_are_looked_at_only_after_they_were_charged(
    mode: str, tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = tmp_path / "r"
    config = tiny(**MODES[mode])
    seen = []

    def watching(name: str) -> None:
        real = getattr(searching, name)

        def watched(*args: Any, **named: Any) -> Any:
            seen.append((name, [type(e.event) for e in account(run).entries]))
            return real(*args, **named)

        monkeypatch.setattr(searching, name, watched)

    watching("accuracy")
    watching("fit_private")
    searched(config, run, "s")
    assert any(name == "accuracy" for name, _ in seen)
    for name, charged in seen:
        if config.search.algorithm == "random":
            assert PrivateSelection in charged
        else:
            assert (SampledGaussian if name == "fit_private" else Gaussian) in charged


def shares(found: dict[str, Any], run: Path) -> list[float]:
    """All scores that a search and tuning left, except those clipped to 0 or 1."""
    trials = read_json(tune_file(run, 0))["trials"]
    values = [found["fitness"], *(e["fitness"] for e in found["history"])]
    values += [x for r in found["logbook"] for x in (r["best"], r["min"])]
    values += [t["value"] for t in trials]
    return [v for v in values if 0 < v < 1]


def exact(values: list[float], samples: int) -> bool:
    """Whether the scores look like shares of so many samples, as no noised ones would."""
    return all(abs(v * samples - round(v * samples)) < 1e-6 for v in values)


@pytest.mark.parametrize("mode", ["dp", "dp, random"])
def test_nothing_exact_about_private_samples_is_written(
    mode: str, tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # So many samples, so well learnt, that noise hardly ever carries a score below 0 or above 1.
    config = tiny(**MODES[mode], data__limit=600, search__epochs=4, training__warm_epochs=6)
    samples = len(load_federation(config).clients[0].search)
    found = searched(config, tmp_path / "r")
    assert found["histogram"] is None
    assert found["noise"] > 0
    assert not exact(shares(found, tmp_path / "r"), samples)
    if mode == "dp, random":
        # How many candidates there were, and what they scored, is not covered.
        assert (found["evaluations"], found["history"], found["logbook"]) == (None, [], [])
    # Planted: scores whose noise was forgotten.
    monkeypatch.setattr(searching, "calibrate_scores", lambda draft, *_: _silent(draft))
    found = searched(config, tmp_path / "planted")
    assert shares(found, tmp_path / "planted")
    assert exact(shares(found, tmp_path / "planted"), samples)


def _silent(draft: Scoring) -> Scoring:
    """A scoring that charges for noise (so much that anything fits) and adds next to none."""

    class Silent(Scoring):
        @property
        def search_event(self) -> Gaussian:
            return Gaussian(50.0)

        @property
        def trial_event(self) -> Gaussian:
            return Gaussian(50.0)

    fields = {f.name: getattr(draft, f.name) for f in dataclasses.fields(draft)}
    return Silent(**(fields | {"noise": 1e-9}))


def test_the_noise_of_scores_is_not_the_seeds(tiny: Callable[..., RunConfig], tmp_path: Path):
    config = tiny(**MODES["dp"])
    a, b = (searched(config, tmp_path / name, "s") for name in "ab")
    assert a["history"][0]["genome"] == b["history"][0]["genome"]
    # All scores, as one alone may end at 0 in both: noised shares are cut to [0, 1].
    assert [h["fitness"] for h in a["history"]] != [h["fitness"] for h in b["history"]]
    assert a["noise"] == b["noise"]


def test_a_search_that_died_has_spent_its_charge(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, config = tmp_path / "r", tiny(**MODES["dp"])
    prepare(run, config, resume=False)
    client = build_client(config, 0, run, "cpu")
    before = planned_scoring(client)
    with monkeypatch.context() as m:
        m.setattr(searching, "accuracy", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            searched(config, run, "s")
    assert [e.event for e in account(run).entries] == [before.search_event]
    after = planned_scoring(client)
    assert after.noise > 1.1 * before.noise
    price = search_price(client)
    searched(config, run)
    assert account(run).spent("search") == pytest.approx(price.epsilon, rel=1e-9)
    assert account(run).spent() <= 8.0


def test_searches_that_spent_everything_are_refused_and_training_is_not_blamed(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    run, config = tmp_path / "r", tiny(**MODES["dp, random"])
    searched(config, run)
    charged = len(account(run).entries)
    with pytest.raises(BudgetExhausted, match="noised scores"):
        searched(config, run)
    assert len(account(run).entries) == charged
    assert not account(run).events_on("train")


def test_trials_that_spent_everything_leave_the_settings_and_training_alone(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    run, config = tmp_path / "r", tiny(**MODES["dp"])
    searched(config, run)
    charged = len(account(run).entries)
    task = Task(config.model_dump_json(), run, 0, "cpu")
    # Its process died between the last trial and the file: the trials are there, and paid for.
    assert search_work.tune(task) == read_json(tune_file(run, 0))
    assert len(account(run).entries) == charged
    # It died in every trial: nothing is there, and all is paid for.
    tune_log(run, 0).unlink()
    again = search_work.tune(task)
    assert (again["trials"], again["setting"]["learning_rate"]) == ([], 0.5)
    assert "refused" not in again
    assert len(account(run).entries) == charged


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["data-free", "data-free, nothing public"])
def test_a_data_free_search_is_the_same_with_any_number_of_workers(
    mode: str, tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    config = tiny(**MODES[mode], search__generations=1)
    for workers in (1, 2):
        carry(tmp_path / str(workers), config, workers=workers, stages="s")
    for i in range(2):
        one, two = (read_json(search_file(tmp_path / str(w), i)) for w in (1, 2))
        assert one == two
    assert account(tmp_path / "1").entries == ()


def test_without_data_the_settings_are_kept(tiny: Callable[..., RunConfig], tmp_path: Path):
    for mode in ("data-free", "dp, nothing public"):
        config = tiny(**MODES[mode])
        searched(config, tmp_path / mode)
        tuned = read_json(tune_file(tmp_path / mode, 0))
        assert tuned["trials"] == []
        assert tuned["setting"]["learning_rate"] == config.training.learning_rate


def test_generations_of_more_children_than_individuals_are_paid_for_whole(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    more = {"search__population": 2, "search__offspring": 3, "search__generations": 1}
    config = tiny(**MODES["dp, nothing public"], **more)
    found = searched(config, tmp_path / "r", "s")
    assert max(Counter(e["generation"] for e in found["history"]).values()) == 3
    events = [entry.event for entry in account(tmp_path / "r").entries]
    trained = [event for event in events if isinstance(event, SampledGaussian)]
    assert len(trained) == 2
    assert all(event.steps % 3 == 0 for event in trained)


def test_a_random_search_looks_at_as_many_genomes_and_breeds_none(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny(search__algorithm="random", search__population=2, search__generations=1)
    found = searched(config, tmp_path / "r", "s")
    assert found["evaluations"] == 2 + 5  # children of a generation
    assert {e["generation"] for e in found["history"]} == {0}


@pytest.mark.parametrize(
    ("search", "public", "parts"),
    [
        ("proxy", 9, ()),
        ("data-free", 0, ()),
        ("unaccounted", 9, ("search",)),
        ("dp", 9, ("search",)),
        ("dp", 0, ("search/train", "search/validation")),
    ],
)
def test_the_ledger_knows_the_parts_beforehand(
    search: str, public: int, parts: tuple, tiny: Callable[..., RunConfig]
):
    config = tiny(privacy__search=search, privacy__allow_unprotected=True)
    assert search_parts(config, public) == parts


@pytest.mark.parametrize("search", ["dp", "unaccounted"])
def test_too_few_search_samples_are_refused_beforehand(
    search: str, tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny(
        privacy__search=search, privacy__allow_unprotected=True, data__search_fraction=0.01
    )
    with pytest.raises(BadInput, match=f"at least {MIN_SEARCH[search]} search samples"):
        prepare(tmp_path / "r", config, resume=False)
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_carries_a_run_to_its_end_within_the_budget(
    mode: str, tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    carry(tmp_path / "r", tiny(**MODES[mode]))
    for i in range(2):
        spent = account(tmp_path / "r", i).spent()
        assert spent <= 8.0 or mode == "unaccounted"
        assert account(tmp_path / "r", i).events_on("train")
    with InProcess(1):
        assert search_prices(tmp_path / "r", tiny(**MODES[mode])) == []
