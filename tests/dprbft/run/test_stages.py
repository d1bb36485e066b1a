"""The stages: what they write, skip and refuse; search and tuning see no private sample."""

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from dprbft.config.files import build_config, load_config
from dprbft.config.schema import RunConfig, participants
from dprbft.engines import verbs
from dprbft.engines.inprocess import InProcess
from dprbft.paths import ledger_file, search_file, tune_file
from dprbft.run import directory
from dprbft.run.bookkeeping import is_done, seconds, timed
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import event_counts, search_stage, train_stage, tune_stage
from dprbft.run.summary import summarise
from dprbft.simulation.federation import Federation, load_federation
from dprbft.site import search as architecture
from dprbft.site import site as clients
from panas.architecture.genome import Genome
from panas.data.samples import Samples
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import ReproducibleNoise
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.seeds import stream
from panas.runtime.store import read_json
from panas.search_modes import public_proxy


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_new_directory_gets_the_whole_configuration(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny()
    prepare(tmp_path / "r", config, resume=False)
    assert set(tree(tmp_path / "r")) == {"config.toml", ".config.toml.lock"}
    assert load_config(tmp_path / "r") == config


def test_an_existing_run_needs_leave_and_the_same_settings(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny()
    prepare(tmp_path, config, resume=False)
    before = tree(tmp_path)
    with pytest.raises(BadInput, match="--resume"):
        prepare(tmp_path, config, resume=False)
    for leave in ({"resume": True}, {"resume": False, "shared": True}):
        assert prepare(tmp_path, config, **leave) == config
        with pytest.raises(BadInput, match="settings"):
            prepare(tmp_path, tiny(seed=1), **leave)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("seeds", [(0, 0, 0, 0), (0, 1, 2, 3)])
def test_commands_that_begin_at_once_share_a_directory_on_the_same_settings_only(
    seeds: tuple[int, ...],
    tiny: Callable[..., RunConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    together = threading.Barrier(len(seeds))
    load = directory.load_federation

    def wait_for_the_others(config: RunConfig) -> Federation:
        together.wait(60)  # nobody has written anything yet
        return load(config)

    saved: list[RunConfig] = []
    save = directory.save_config

    def keep(run: Path, config: RunConfig) -> None:
        saved.append(config)
        save(run, config)

    monkeypatch.setattr(directory, "load_federation", wait_for_the_others)
    monkeypatch.setattr(directory, "save_config", keep)
    run = tmp_path / "r"

    def begin(seed: int) -> bool:
        try:
            prepare(run, tiny(seed=seed), resume=False, shared=True)
        except BadInput:
            return False
        return True

    with ThreadPoolExecutor(len(seeds)) as threads:
        went_on = list(threads.map(begin, seeds))
    assert saved == [load_config(run)]
    assert went_on == [saved[0].seed == seed for seed in seeds]


def test_a_configuration_that_is_just_being_written_is_no_other_work(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    (tmp_path / ".config.toml.x1y2").write_text("")
    prepare(tmp_path, tiny(), resume=False, shared=True)
    assert load_config(tmp_path) == tiny()


def test_a_directory_of_something_else_is_left_alone(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(BadInput, match="empty run directory"):
        prepare(tmp_path, tiny(), resume=False)
    with pytest.raises(BadInput, match="empty run directory"):
        prepare(tmp_path / "thesis.tex", tiny(), resume=False)
    assert list(tree(tmp_path)) == ["thesis.tex"]


@pytest.mark.parametrize(
    "changes",
    [
        {"data__dataset": "nope"},
        {"search__min_blocks": 5},
        {"search__kernels": [4]},
        {"search__kernels": []},
        {"search__widths": []},
        {"tuning__batch_sizes": []},
        {"tuning__learning_rate": [2.0, 0.1]},
        {"tuning__noise_factor": [0.5, 2.0]},
        {"network__width": 5},
        {"data__public_fraction": 1e-6},
        {"privacy__delta": 0.5},
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_before_anything_is_written(
    changes: dict, tiny: Callable[..., RunConfig], tmp_path: Path
):
    with pytest.raises(BadInput):
        prepare(tmp_path / "r", tiny(**changes), resume=False)
    assert not (tmp_path / "r").exists()


def test_seconds_add_up_and_a_stage_is_done_only_when_it_ends_well(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), timed(tmp_path, "search"):
        raise ZeroDivisionError
    first = seconds(tmp_path)["search"]
    assert first > 0
    assert not is_done(tmp_path, "search")
    with timed(tmp_path, "search", lambda: False):
        pass
    assert not is_done(tmp_path, "search")
    with timed(tmp_path, "search"):
        pass
    assert is_done(tmp_path, "search")
    assert seconds(tmp_path)["search"] > first
    assert seconds(tmp_path)["audit"] == 0


def test_one_clients_search_does_not_finish_the_stage(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    config, said = tiny(), []
    prepare(tmp_path, config, resume=False)
    with InProcess(1) as engine:
        run = OpenRun(tmp_path, config, engine, listener=said.append)
        search_stage(run, [1])
        assert not is_done(tmp_path, "search")
        assert not search_file(tmp_path, 0).exists()
        with pytest.raises(BadInput, match=r"client-000.best\.json"):
            tune_stage(run)
        first = search_file(tmp_path, 1).read_bytes()
        search_stage(run)
        assert is_done(tmp_path, "search")
        assert search_file(tmp_path, 1).read_bytes() == first
        with pytest.raises(BadInput, match="client of 0 to 1"):
            search_stage(run, [2])
    assert len(said) == 2


@pytest.mark.slow
def test_every_stage_makes_the_reports_that_it_announces(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny(federation__clients=3, federation__rounds=2, federation__participation=0.7)
    prepare(tmp_path, config, resume=False)
    announced = event_counts(config, 3)
    with InProcess(1) as engine:
        for name, stage in (
            ("search", search_stage),
            ("tune", tune_stage),
            ("train", train_stage),
        ):
            said: list[object] = []
            stage(OpenRun(tmp_path, config, engine, listener=said.append))
            assert len(said) == announced[name]


def test_a_search_leaves_all_that_its_contract_names(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    carry(tmp_path / "r", tiny(search__population=2, search__generations=1), stages="s")
    found = read_json(search_file(tmp_path / "r", 0))
    genome = Genome.parse(found["genome"])
    assert Genome.from_json(found["blocks"]) == genome
    assert 0 <= found["fitness"] <= 1
    assert {"parameters", "macs", "bytes"} <= found["cost"].keys()
    assert len(found["histogram"]) == 10
    assert len(found["logbook"]) == 2
    (event,) = Ledger(ledger_file(tmp_path / "r", 0)).account().events()
    assert event.noise_multiplier > 0


def blinded(federation: Federation, *, labels: bool, nan: bool = True) -> Federation:
    """The same clients, whose images (and labels, unless `labels`) tell nothing."""

    def blind(samples: Samples) -> Samples:
        y = samples.y if labels else samples.y * 0
        x = torch.full(samples.x.shape, torch.nan) if nan else samples.x * 0
        return Samples(x, y, samples.classes)

    hidden = [
        dataclasses.replace(
            c,
            search=blind(c.search),
            train=blind(c.train),
            validation=blind(c.validation),
            test=blind(c.test),
        )
        for c in federation.clients
    ]
    return dataclasses.replace(federation, clients=tuple(hidden))


@pytest.mark.slow
def test_a_proxy_search_and_tuning_see_no_private_sample_but_the_histogram(
    tiny: Callable[..., RunConfig],
    carry: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    config = tiny(tuning__trials=2, tuning__initial=2, search__generations=1)
    # The only noise in search is the histogram's; with it repeated, all must repeat.
    monkeypatch.setattr(public_proxy, "SystemNoise", lambda: ReproducibleNoise(stream(0, "test")))
    carry(tmp_path / "open", config, stages="st")
    federation = load_federation(config)
    monkeypatch.setattr(clients, "load_federation", lambda _: blinded(federation, labels=True))
    carry(tmp_path / "blind", config, stages="s")
    # From here on the labels are gone, too: tuning knows the histogram from the search.
    monkeypatch.setattr(clients, "load_federation", lambda _: blinded(federation, labels=False))
    carry(tmp_path / "blind", config, stages="st")
    for file in (search_file, tune_file):
        for i in range(2):
            seen = read_json(file(tmp_path / "open", i))
            assert seen == read_json(file(tmp_path / "blind", i))


def test_a_search_on_private_samples_would_be_noticed(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The test above has teeth: the paper's search does change when its samples are blinded."""
    config = tiny(privacy__search="unaccounted", privacy__allow_unprotected=True)
    open_, blind = (verbs.Task(config.model_dump_json(), tmp_path / n, 0, "cpu") for n in "ab")
    histories = [verbs.search(open_).result.history]
    hidden = blinded(load_federation(config), labels=False, nan=False)
    monkeypatch.setattr(clients, "load_federation", lambda _: hidden)
    histories.append(verbs.search(blind).result.history)
    assert histories[0] != histories[1]


def test_the_histogram_draws_its_noise_from_the_system(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny()
    found = []
    for name in ("a", "b"):
        task = verbs.Task(config.model_dump_json(), tmp_path / name, 0, "cpu")
        found.append(verbs.search(task).histogram)
    assert found[0] != found[1]
    exact = load_federation(config).clients[0].train.histogram().numpy()
    assert np.abs(np.array(found[0]) - exact).max() < 60


def test_searches_that_died_may_use_up_the_histogram_but_not_the_run(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    task = verbs.Task(tiny(privacy__histogram_share=0.9).model_dump_json(), tmp_path, 0, "cpu")
    with monkeypatch.context() as m:
        m.setattr(architecture, "write_json", lambda *a, **k: 1 / 0)  # before it is kept
        with pytest.raises(ZeroDivisionError):
            verbs.search(task)
    assert verbs.search(task).histogram == [1.0] * 10
    account = Ledger(ledger_file(tmp_path, 0)).account()
    assert len(account.entries) == 1
    assert account.spent() <= 8.0


def test_a_budget_too_small_for_a_histogram_searches_alike_for_all(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    config = tiny(privacy__epsilon=1e-3)
    with pytest.raises(BudgetExhausted):
        carry(tmp_path / "r", config)
    assert read_json(search_file(tmp_path / "r", 0))["histogram"] == [1.0] * 10
    assert Ledger(ledger_file(tmp_path / "r", 0)).account().entries == ()


def test_tuning_that_fits_nothing_leaves_the_settings_and_says_so(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    config = tiny(privacy__epsilon=1e-3, tuning__trials=2)
    carry(tmp_path / "r", config, stages="st")
    tuned = read_json(tune_file(tmp_path / "r", 0))
    assert "raise --epsilon" in tuned["refused"]
    assert tuned["setting"]["learning_rate"] == config.training.optimizer.learning_rate


def test_the_participants_of_the_first_round_are_not_all_by_accident():
    config = build_config({"federation": {"clients": 9, "participation": 0.34}})
    assert {len(c) for c in participants(config)} == {3}


def test_no_stage_takes_note_of_another_ledger(tiny: Callable[..., RunConfig], tmp_path: Path):
    config = tiny()
    with InProcess(1) as engine:
        for name in ("mine", "other"):
            prepare(tmp_path / name, config, resume=False)
            search_stage(OpenRun(tmp_path / name, config, engine))
    mine, noted = tmp_path / "mine", read_json(tmp_path / "mine" / "stages.json")
    for name in ("ledger.jsonl", "ledger.head"):
        site = ledger_file(mine, 0).parent
        (site / name).write_bytes((ledger_file(tmp_path / "other", 0).parent / name).read_bytes())
    Ledger(ledger_file(mine, 0)).account()  # whole in itself, it is only the wrong one
    with pytest.raises(BadInput, match="another copy was put in its place"), timed(mine, "audit"):
        raise AssertionError("nothing may run")
    with pytest.raises(BadInput, match="another copy was put in its place"):
        summarise(mine, config)
    assert read_json(mine / "stages.json") == noted
