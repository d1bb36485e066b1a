"""DecNAS in whole runs: what leaves is paid for, it resumes, it shrinks, and it learns."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from deaths import Death, die_in
from ledgers import accounts
from site_data import with_data
from tiny_methods import FREE, method_config, side_of

from baselines import decnas
from baselines.searches.decnas import Here, label_counts, right_and_wrong, stand_apart
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import read_sites, server_folder, state_file
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import train_stage
from dprbft.server.records import read_rounds
from dprbft.site.results.report import SiteReport
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.architecture.network import weights_of
from panas.privacy.accounting.events import Gaussian, Unprotected
from panas.runtime.errors import BadInput, BudgetExhausted

MakeSite = Callable[..., Site]

OPTIONS: dict[str, Any] = {
    **{"widths": [4, 6], "hidden": [8], "batch_size": 1000, "epochs": 1, "learning_rate": 0.5},
    **{"turns": [2], "reduction": 0.1, "start_share": 0.2, "final_share": 0.2},
}
KEEP = "dprbft.methods.updates.site:_keep"


def config(
    privacy: dict[str, Any] | None = None,
    rounds: int = 8,
    clients: int = 3,
    size: int = 180,
    **options: Any,
) -> RunConfig:
    """A run on so many samples a site."""
    how: dict[str, Any] = {"clients": clients, "rounds": rounds, "limit": size * clients}
    return method_config("decnas", {**OPTIONS, **options}, privacy, **how)


def carried(run: Path, settings: RunConfig) -> list[SiteReport]:
    prepare(run, settings, resume=True)
    with InProcess(read_sites(run), 1) as engine:
        train_stage(OpenRun(run, settings, engine))
    return [SiteReport.read(paths.home) for paths in read_sites(run)]


def about(report: SiteReport) -> dict[str, Any]:
    return dict(report.setting["about"])


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SiteReport]]:
    run = tmp_path_factory.mktemp("decnas") / "r"
    return run, carried(run, config(FREE))


@pytest.mark.slow
def test_the_network_shrinks_along_a_frontier(free: tuple[Path, list[SiteReport]]):
    _, reports = free
    first = about(reports[0])
    assert len(first["frontier"]) == 1  # 2 turns take 4 of the 4 rounds between
    point = first["frontier"][0]
    assert 0 <= point["accuracy"] <= 1
    assert all(about(r)["widths"] == point["widths"] for r in reports)
    assert all(r.setting["macs"] == point["macs"] for r in reports)


@pytest.mark.slow
def test_counted_bytes_are_those_of_the_wire(free: tuple[Path, list[SiteReport]]):
    run, reports = free
    records = read_rounds(server_folder(run))
    phases = [about(r)["cost"] for r in reports]
    assert all(set(cost) == {"start", "search", "final"} for cost in phases)
    for way in ("up", "down"):
        counted = sum(cost[phase][way] for cost in phases for phase in cost)
        assert counted == sum(getattr(r, f"{way}_bytes") for r in records)
    # One epoch at 3 times the MACs of the whole network, in two rounds of the start.
    n = reports[0].samples["train"]
    whole = 64 * 4 * 9 + 16 * 6 * 36 + 24 * 8 + 8 * 10
    tested = reports[0].samples["validation"] * whole
    assert phases[0]["start"]["macs"] == 2 * 3 * n * whole + tested


@pytest.mark.slow
def test_what_processes_that_died_have_spent_is_made_up_for(tmp_path: Path):
    settings = config({})
    for call in (3 + 2 * 3 + 2, 1, 2 + 3 + 2):  # reports twice at one site, then final tuning
        die_in(tmp_path / "r", settings, Death(KEEP, call=call))
    reports = carried(tmp_path / "r", settings)
    assert all(about(r)["frontier"] for r in reports)
    for account in accounts(tmp_path / "r"):
        assert 7 < account.spent() <= 8


@pytest.mark.slow
def test_a_run_that_dies_between_reports_and_weights_ends_as_one_that_did_not(
    free: tuple[Path, list[SiteReport]], tmp_path: Path
):
    run, reports = free
    settings = config(FREE)
    for call in (3 + 2 * 3 + 2, 2 + 1):  # in the round of reports, then in that of weights
        die_in(tmp_path / "r", settings, Death(KEEP, call=call))
    again = carried(tmp_path / "r", settings)
    assert [r.to_json() for r in again] == [r.to_json() for r in reports]
    for one, other in zip(read_sites(run), read_sites(tmp_path / "r"), strict=True):
        a, b = Bundle.read(state_file(one.home)), Bundle.read(state_file(other.home))
        assert a.record == b.record
        assert all(torch.equal(a.arrays[k], b.arrays[k]) for k in a.arrays)


def two_rounds(site: Site) -> tuple[Update, Update, Here]:
    """What a site sends that trains a candidate, and then its weights."""
    side = side_of(site)
    memory, server = decnas.site_start(site), decnas.server_start(side)
    sent = []
    for number in (1, 2):
        bundle = decnas.orders(side, server, [0, 1], number)[site.id]
        turn = decnas.site_round(site, memory, Order(number, bundle))
        memory = turn.memory
        sent.append(Update(site.id, number, turn.update, turn.receipts))
        server = decnas.server_round(side, server, sent[-1:], None)  # type: ignore[arg-type]
    return sent[0], sent[1], Here.from_json(memory.record)


TWO = {"widths": [4], "turns": [1], "start_share": 0, "final_share": 0, "rounds": 2, "clients": 2}


@pytest.mark.parametrize("privacy", [{}, FREE], ids=["sound", "paper"])
def test_all_that_leaves_is_charged_to_the_samples_it_tells_of(
    privacy: dict[str, Any], make_site: MakeSite, tmp_path: Path
):
    site = make_site(config(privacy, size=360, **TWO), tmp_path / "r")
    first, second, here = two_rounds(site)
    entries = {e.id: e for e in site.account.entries}
    charges = [entries[id].charge for id in first.receipts]
    assert [(c.mechanism, c.subset) for c in charges] == [
        ("label-histogram", "train"),
        ("right-answers", "search"),
    ]
    assert not first.bundle.arrays  # weights wait until nobody drops them
    (receipt,) = second.receipts
    assert entries[receipt].charge.phase == "training"
    assert second.bundle.arrays
    assert here.waiting == {}
    (counts,) = first.bundle.record["counts"].values()
    exact = site.data.train.histogram().float().tolist()
    if privacy:
        assert all(isinstance(c.event, Unprotected) for c in charges)
        assert first.bundle.record["labels"] == exact
        assert sum(counts) == len(site.data.validation)
    else:
        assert all(isinstance(c.event, Gaussian) for c in charges)
        assert first.bundle.record["labels"] != exact
        assert site.account.spent() <= 8
        # Disjoint samples: neither is charged for the other's releases.
        events = [site.account.events_on(subset) for subset in ("train", "search")]
        assert [len(e) for e in events] == [3, 1]  # the count, the labels and training


@pytest.mark.slow
def test_counts_are_right_and_their_noise_is_as_charged(make_site: MakeSite, tmp_path: Path):
    site = make_site(config(FREE, **TWO), tmp_path / "r")
    model = decnas._work(site).whole
    counts, _ = right_and_wrong(site, model, None, 1)
    held = site.data.validation
    right = sum(
        int(model.eval()(held.inputs()[i : i + 1]).argmax() == held.y[i]) for i in range(len(held))
    )
    assert counts == [right, len(held) - right]
    exact = torch.tensor(site.data.train.histogram().tolist(), dtype=torch.float32)
    noised = torch.tensor([label_counts(site, 2.0, 1)[0] for _ in range(40)])
    assert float((noised - exact).std()) == pytest.approx(2, rel=0.2)  # 400 draws


def test_a_group_moves_the_counts_by_one(make_site: MakeSite, tmp_path: Path):
    site = make_site(config(FREE, **TWO), tmp_path / "r")
    held = site.data.validation
    alone = replace(held, groups=torch.zeros(len(held), dtype=torch.int64))
    grouped = with_data(site, replace(site.data, validation=alone))
    counts, _ = right_and_wrong(grouped, decnas._work(site).whole, None, 1)
    assert math.hypot(*counts) <= 1 + 1e-6


def test_without_room_for_reports_a_site_trains_and_says_nothing(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise BudgetExhausted("expected room, got none; raise --epsilon")

    monkeypatch.setattr("baselines.searches.decnas.right_and_wrong", refuse)
    site = make_site(config({}, **TWO), tmp_path / "r")
    first, second, _ = two_rounds(site)
    assert "counts" not in first.bundle.record
    assert second.bundle.arrays


@pytest.mark.slow
def test_a_site_too_small_for_parts_that_stand_apart_reports_nothing(
    make_site: MakeSite, tmp_path: Path
):
    """Its validation part may be one sample that it takes from training: "search" would not do."""
    for size, reports in ((360, True), (75, False)):
        site = make_site(config({}, size=size, **TWO), tmp_path / str(size))
        assert stand_apart(site) is reports
        first, second, _ = two_rounds(site)
        assert ("counts" in first.bundle.record) is reports
        assert bool(site.account.events_on("search")) is reports
        assert second.bundle.arrays


@pytest.mark.slow
def test_final_rounds_share_what_the_search_has_left(make_site: MakeSite, tmp_path: Path):
    """With fewer groups than the plan allowed for, noise is less at last, and the budget holds."""
    reports = carried(tmp_path / "r", config({}, grouping=False, drop_ratio=1.0))
    assert len(reports) == 3
    site = make_site(config({}, grouping=False, drop_ratio=1.0), tmp_path / "r")
    training = [e.event for e in site.account.entries if e.charge.phase == "training"]
    assert site.account.spent() <= 8
    assert site.account.spent() > 7.5
    assert training


@pytest.mark.slow
@pytest.mark.parametrize("resource", ["bytes", "latency"])
def test_other_resources_are_limited_as_well(resource: str, tmp_path: Path):
    reports = carried(tmp_path / "r", config(FREE, resource=resource, turns=[1], clients=2))
    assert about(reports[0])["frontier"]


@pytest.mark.thorough
def test_switches_of_the_three_optimisations(tmp_path: Path):
    costs = {}
    for name, options in {
        "all": {},
        "no dropping": {"early_dropping": False},
        "no groups": {"grouping": False},
    }.items():
        reports = carried(tmp_path / name.replace(" ", "-"), config(FREE, iterations=1, **options))
        costs[name] = sum(about(r)["cost"]["search"]["up"] for r in reports)
    assert costs["all"] < costs["no dropping"]
    assert costs["all"] < costs["no groups"]


def test_nothing_to_prune_is_refused_in_one_line(tmp_path: Path):
    with pytest.raises(BadInput, match=r"^expected .*nothing to prune; .*$"):
        prepare(tmp_path / "r", config(widths=[], hidden=[]), resume=False)
    with pytest.raises(BadInput, match=r"^expected .*nothing to prune; .*$"):
        prepare(tmp_path / "r", config(widths=[1], hidden=[1]), resume=False)
    with pytest.raises(BadInput, match="start_share"):
        prepare(tmp_path / "r", config(start_share=0.7, final_share=0.7), resume=False)


@pytest.mark.thorough
def test_it_learns_at_its_smoke_settings(tmp_path: Path):
    base = {
        "federation": {"method": "decnas", "clients": 2, "baselines": False, "partition": "iid"}
    }
    settings = build_config(base, dict(decnas.SMOKE))
    for report in carried(tmp_path / "r", settings):
        assert report.metrics.accuracy is not None
        assert report.metrics.accuracy > 0.6


def test_weights_are_kept_as_they_are_sent(make_site: MakeSite, tmp_path: Path):
    site = make_site(config(FREE, **TWO), tmp_path / "r")
    memory = decnas.site_start(site)
    kept = memory.part("gm")
    assert kept.keys() == weights_of(decnas._work(site).whole).keys()
    assert decnas.size(site, memory).parameters == sum(
        p.numel() for p in decnas._work(site).whole.parameters()
    )
