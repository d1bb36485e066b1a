"""The stages: what they write, skip and refuse; search and tuning see no private sample."""

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from ledgers import accounts
from site_data import with_data

from dprbft.config.files import load_config
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import home, read_sites, search_file, tune_file
from dprbft.run import directory
from dprbft.run.bookkeeping import is_done, seconds, timed
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.sites.plan import SitesPlan
from dprbft.run.stages import event_counts, search_stage, train_stage, tune_stage
from dprbft.run.summary import summarise
from dprbft.site import directory as site_directory
from dprbft.site import search as architecture
from dprbft.site import site as clients
from dprbft.site.data import SiteData, load_data
from dprbft.site.site import Site
from panas.architecture.genome import Genome
from panas.data.samples import Samples
from panas.privacy.noise import ReproducibleNoise
from panas.runtime import store
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.seeds import stream
from panas.runtime.store import read_json
from panas.search_modes import public_proxy

Tiny = Callable[..., RunConfig]
Carry = Callable[..., None]
MakeSite = Callable[..., Site]

SPLITS = ("search", "train", "validation", "test")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_new_directory_gets_the_whole_configuration_and_its_sites(tiny: Tiny, tmp_path: Path):
    config = tiny()
    prepare(tmp_path / "r", config, resume=False)
    public = {"config.toml", ".config.toml.lock", "facts.json", "public.safetensors", "sites.json"}
    sites = {
        f"sites/client-{i:03d}/{name}"
        for i in range(2)
        for name in ("site.toml", "split.key", "samples.safetensors")
    }
    assert set(tree(tmp_path / "r")) == public | sites
    assert load_config(tmp_path / "r") == config


def test_an_existing_run_needs_leave_and_the_same_settings(tiny: Tiny, tmp_path: Path):
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
    tiny: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    together = threading.Barrier(len(seeds))
    plan = directory.plan_sites

    def wait_for_the_others(run: Path, config: RunConfig) -> SitesPlan:
        together.wait(60)  # nobody has written anything yet
        return plan(run, config)

    saved: list[RunConfig] = []
    save = directory.save_config

    def keep(run: Path, config: RunConfig) -> None:
        saved.append(config)
        save(run, config)

    monkeypatch.setattr(directory, "plan_sites", wait_for_the_others)
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


def test_a_configuration_that_is_just_being_written_is_no_other_work(tiny: Tiny, tmp_path: Path):
    (tmp_path / ".config.toml.x1y2").write_text("")
    prepare(tmp_path, tiny(), resume=False, shared=True)
    assert load_config(tmp_path) == tiny()


def test_a_directory_of_something_else_is_left_alone(tiny: Tiny, tmp_path: Path):
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
        {"data__public_fraction": 1e-6},
        {"privacy__delta": 0.5},
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_before_anything_is_written(
    changes: dict, tiny: Tiny, tmp_path: Path
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


@pytest.mark.slow
def test_one_clients_search_does_not_finish_the_stage(tiny: Tiny, tmp_path: Path):
    config, said = tiny(), []
    prepare(tmp_path, config, resume=False)
    homes = [paths.home for paths in read_sites(tmp_path)]
    with InProcess(read_sites(tmp_path)) as engine:
        run = OpenRun(tmp_path, config, engine, listener=said.append)
        search_stage(run, [1])
        assert not is_done(tmp_path, "search")
        assert not homes[0].exists()
        with pytest.raises(BadInput, match=r"client-000.*best\.json"):
            tune_stage(run)
        first = search_file(homes[1]).read_bytes()
        search_stage(run)
        assert is_done(tmp_path, "search")
        assert search_file(homes[1]).read_bytes() == first
        with pytest.raises(BadInput, match="site of 0 to 1"):
            search_stage(run, [2])
    assert [event.site for event in said] == ["client-001", "client-000"]


@pytest.mark.slow
def test_every_stage_makes_the_reports_that_it_announces(tiny: Tiny, tmp_path: Path):
    config = tiny(federation__clients=3, federation__rounds=2, federation__participation=0.7)
    prepare(tmp_path, config, resume=False)
    announced = event_counts(config, 3)
    with InProcess(read_sites(tmp_path)) as engine:
        stages = {"search": search_stage, "tune": tune_stage, "train": train_stage}
        for name, stage in stages.items():
            events: list[object] = []
            stage(OpenRun(tmp_path, config, engine, listener=events.append))
            assert len(events) == announced[name]


@pytest.mark.slow
def test_a_search_leaves_all_that_its_contract_names(tiny: Tiny, carry: Carry, tmp_path: Path):
    carry(tmp_path / "r", tiny(search__population=2, search__generations=1), stages="s")
    record = read_json(search_file(home(tmp_path / "r", 0)))
    genome = Genome.parse(record["genome"])
    assert Genome.from_json(record["blocks"]) == genome
    assert 0 <= record["fitness"] <= 1
    assert {"parameters", "macs", "bytes"} <= record["cost"].keys()
    assert len(record["histogram"]) == 10
    assert len(record["logbook"]) == 2
    (event,) = accounts(tmp_path / "r")[0].events()
    assert event.noise_multiplier > 0


def blinded(data: SiteData, *, labels: bool, nan: bool = True) -> SiteData:
    """As many samples, whose images (and labels, unless `labels`) tell nothing."""

    def blind(samples: Samples) -> Samples:
        y = samples.y if labels else samples.y * 0
        x = torch.full(samples.x.shape, torch.nan) if nan else samples.x * 0
        return Samples(x, y, samples.classes)

    hidden = {name: blind(getattr(data, name)) for name in SPLITS}
    return dataclasses.replace(data, **hidden)


def load_blinded(monkeypatch: pytest.MonkeyPatch, *, labels: bool) -> None:
    """Let sites load blinded samples from now on."""
    monkeypatch.setattr(
        clients, "load_data", lambda *where: blinded(load_data(*where), labels=labels)
    )
    clients.data_of.cache_clear()


@pytest.mark.slow
def test_a_proxy_search_and_tuning_see_no_private_sample_but_the_histogram(
    tiny: Tiny, carry: Carry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = tiny(tuning__trials=2, tuning__initial=2, search__generations=1)
    # The only noise in search is the histogram's; with it repeated, all must repeat.
    monkeypatch.setattr(public_proxy, "SystemNoise", lambda: ReproducibleNoise(stream(0, "test")))
    carry(tmp_path / "open", config, stages="st")
    load_blinded(monkeypatch, labels=True)
    carry(tmp_path / "blind", config, stages="s")
    # From here on the labels are gone, too: tuning knows the histogram from the search.
    load_blinded(monkeypatch, labels=False)
    carry(tmp_path / "blind", config, stages="st")
    for file in (search_file, tune_file):
        for i in range(2):
            seen = read_json(file(home(tmp_path / "open", i)))
            assert seen == read_json(file(home(tmp_path / "blind", i)))


@pytest.mark.slow
def test_a_search_on_private_samples_would_be_noticed(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    """The test above has teeth: the paper's search does change when its samples are blinded."""
    config = tiny(privacy__search="unaccounted", privacy__allow_unprotected=True)
    open_ = make_site(config, tmp_path / "a")
    other = make_site(config, tmp_path / "b")
    blind = with_data(other, blinded(other.data, labels=False, nan=False))
    histories = [architecture.search(site).result.history for site in (open_, blind)]
    assert histories[0] != histories[1]


@pytest.mark.slow
def test_the_histogram_draws_its_noise_from_the_system(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    opened = [make_site(tiny(), tmp_path / name) for name in "ab"]
    results = [architecture.search(site).histogram for site in opened]
    assert results[0] != results[1]
    exact = opened[0].data.train.histogram().numpy()
    assert np.abs(np.array(results[0]) - exact).max() < 60


@pytest.mark.slow
def test_searches_that_died_may_use_up_the_histogram_but_not_the_run(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = make_site(tiny(privacy__histogram_share=0.9), tmp_path / "r")
    with monkeypatch.context() as m:
        m.setattr(architecture, "write_json", lambda *a, **k: 1 / 0)  # before it is kept
        with pytest.raises(ZeroDivisionError):
            architecture.search(site)
    assert architecture.search(site).histogram == [1.0] * 10
    account = site.ledger.account()
    assert len(account.entries) == 1
    assert account.spent() <= 8.0


@pytest.mark.slow
def test_a_budget_too_small_for_a_histogram_searches_alike_for_all(
    tiny: Tiny, carry: Carry, tmp_path: Path
):
    config = tiny(privacy__epsilon=1e-3)
    with pytest.raises(BudgetExhausted):
        carry(tmp_path / "r", config)
    assert read_json(search_file(home(tmp_path / "r", 0)))["histogram"] == [1.0] * 10
    assert accounts(tmp_path / "r")[0].entries == ()


@pytest.mark.slow
def test_tuning_that_fits_nothing_leaves_the_settings_and_says_so(
    tiny: Tiny, carry: Carry, tmp_path: Path
):
    config = tiny(privacy__epsilon=1e-3, tuning__trials=2)
    carry(tmp_path / "r", config, stages="st")
    tuned = read_json(tune_file(home(tmp_path / "r", 0)))
    assert "raise epsilon" in tuned["refused"]
    assert tuned["setting"]["learning_rate"] == config.training.optimizer.learning_rate


@pytest.mark.slow
def test_no_stage_takes_note_of_another_ledger(tiny: Tiny, carry: Carry, tmp_path: Path):
    config, mine = tiny(), tmp_path / "mine"
    for name in ("mine", "other"):
        carry(tmp_path / name, config, stages="s")
    before = tree(home(mine, 0))
    for name in ("ledger.jsonl", "ledger.head"):
        there, here = (read_sites(tmp_path / run)[0].folder for run in ("other", "mine"))
        (here / name).write_bytes((there / name).read_bytes())
    for refused in (partial(carry, mine, config), partial(summarise, mine, config)):
        with pytest.raises(BadInput, match=r"another copy was put in its place|was copied"):
            refused()
    noted = tree(home(mine, 0))
    assert {name for name in noted if noted[name] != before.get(name)} <= {"refused.json"}


@pytest.mark.slow
def test_a_directory_whose_sites_were_not_all_made_is_completed(
    tiny: Tiny, carry: Carry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A process may die after any file of them; only the same settings go on."""
    config, whole = tiny(), tmp_path / "whole"
    prepare(whole, config, resume=False)
    for written in range(1, 7):
        run = tmp_path / f"{written}"
        with monkeypatch.context() as m:
            die_at(m, written)
            with pytest.raises(ZeroDivisionError):
                prepare(run, config, resume=False)
        with pytest.raises(BadInput, match="settings"):
            prepare(run, tiny(seed=1), resume=True)
        prepare(run, config, resume=True)
        assert tree(run) == tree(whole)


def die_at(monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    """Let the process die when it begins to write this file of its sites."""
    count, write = [0], store.write_bytes

    def dying(path: Path, content: bytes) -> None:
        count[0] += 1
        if count[0] == written:
            raise ZeroDivisionError
        write(path, content)

    for module in (store, site_directory):
        monkeypatch.setattr(module, "write_bytes", dying)
