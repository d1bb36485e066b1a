"""Method joined with a secure sum: what leaves, what it costs, and what the server makes of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from summed_runs import summed_config

from dprbft.config.files import merge
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.methods.joined import exchange as joined
from dprbft.methods.side import Side
from dprbft.paths import masked_file, read_sites, sent_file, server_folder, sum_folder
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.exchange import server_files
from dprbft.run.stages import exchange_stage, search_stage, train_stage, tune_stage
from dprbft.run.summary import summarise
from dprbft.run.view import RunView
from dprbft.secure_sum.messages import MaskedRelease
from dprbft.secure_sum.release import masked_size
from dprbft.server.records import read_rounds
from dprbft.site.site import open_site
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian
from panas.privacy.release.estimate import Moments
from panas.privacy.release.kinds import moments
from panas.runtime.store import read_tensors
from panas.search_modes.mode import WHOEVER

SITES = 4
SIZES: dict[str, Any] = {
    "data": {"limit": 400, "public_limit": 60},
    "network": {"width": 16, "features": 16},
}


def config_of(**sections: dict[str, Any]) -> RunConfig:
    return summed_config(**merge(SIZES, sections))


def exchanged(run: Path, config: RunConfig) -> Path:
    """A run whose sites have joined."""
    prepare(run, config, resume=(run / "config.toml").exists())
    with InProcess(read_sites(run), 1) as engine:
        exchange_stage(OpenRun(run, config, engine))
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four sites that have joined."""
    return exchanged(tmp_path_factory.mktemp("summed") / "run", config_of())


@pytest.mark.slow
def test_a_site_pays_for_the_sum_and_says_what_its_share_costs(whole: Path):
    for paths in read_sites(whole):
        site = open_site(paths)
        events = site.account.entries
        assert [e.charge.mechanism for e in events] == ["label-histogram", "moments"]
        assert [e.charge.recipient for e in events] == [WHOEVER, "server"]
        sent = events[1].charge
        assert isinstance(sent.event, Gaussian)
        assert sent.trust is not None
        assert (sent.trust.sites, sent.trust.missing) == (SITES, 1)
        # A share has a third of the variance of the sum over three.
        assert sent.trust.local == pytest.approx(sent.event.noise_multiplier / 3**0.5, rel=1e-3)
        assert site.account.spent() <= site.budget.epsilon
        alone = [Gaussian(sent.trust.local) if e is events[1] else e.event for e in events]
        assert site.account.local.spent() == epsilon(alone, site.budget.delta)
        assert site.account.local.spent() > site.account.spent()


@pytest.mark.slow
def test_what_leaves_is_masked_and_names_its_charges(whole: Path):
    for paths in read_sites(whole):
        assert not sent_file(paths.home, 1).exists()
        content = masked_file(paths.home, 1).read_bytes()
        message = MaskedRelease.from_bytes(content, masked_size(16, 10))
        entries = {e.id: e.charge.mechanism for e in open_site(paths).account.entries}
        assert entries[message.receipt] == "moments"
        # Uniform: with 347 numbers the mean of 8 bytes is near the middle.
        middle = message.numbers.astype(np.float64).mean() / 2.0**64
        assert abs(middle - 0.5) < 5 / (12 * len(message.numbers)) ** 0.5


def test_the_server_has_the_sum_and_no_release(whole: Path):
    server = server_folder(whole)
    assert not list(server.glob("round-*/site-*"))
    (record,) = read_rounds(server)
    assert record.releases == {}
    assert set(record.masked) == set(range(SITES))
    assert record.sites == tuple(range(SITES))
    sums, about = read_tensors(sum_folder(server, 1) / "sum.safetensors")
    sites = read_sites(whole)
    clients = [open_site(paths) for paths in sites]
    noise = clients[0].account.entries[1].event
    assert isinstance(noise, Gaussian)
    s2 = (moments.SUM_SENSITIVITY * noise.noise_multiplier) ** 2
    assert float(about["variance"]) == pytest.approx(4 / 3 * s2, rel=1e-3)
    exact = torch.zeros(10, 16).double()
    for site in clients:
        z, y = site.phi(site.data.train.inputs()).double(), site.data.train.y
        exact.index_add_(0, y, z / z.norm(dim=1, keepdim=True).clamp(min=1))
    # 160 numbers: their variance is within 5 standard errors of the sum's.
    ratio = float((sums["B"] - exact).square().mean()) / (4 / 3 * s2)
    assert abs(ratio - 1) < 5 * (2 / 160) ** 0.5
    labels = torch.cat([site.data.train.y for site in clients])
    gaps = sums["counts"] - torch.bincount(labels, minlength=10)
    ratio = float(gaps.square().mean()) / (4 / 3 * s2 / moments.COUNTS**2)
    assert 0.08 < ratio < 5  # 10 numbers: outside by chance once in 10,000 runs


def test_the_head_is_that_of_the_sum(whole: Path):
    config, view = config_of(), RunView(whole, config_of())
    sums, about = read_tensors(sum_folder(server_folder(whole), 1) / "sum.safetensors")
    side = Side(config, view.facts, view.public, view.feature_map)
    s2 = float(about["variance"])
    total = Moments(sums["A"], sums["B"], s2, sums["counts"], s2 / moments.COUNTS**2)
    head = server_files(view).broadcast(1)
    assert torch.equal(joined.sum_round(side, total, 1).weight, head.weight)


@pytest.mark.thorough
def test_a_whole_run_names_the_trust_and_both_figures(tmp_path: Path):
    run = exchanged(tmp_path / "r", config_of())
    with InProcess(read_sites(run), 1) as engine:
        opened = OpenRun(run, config_of(), engine)
        search_stage(opened)
        tune_stage(opened)
        train_stage(opened)
    summary: Any = summarise(run, config_of())
    assert summary["finished"]
    assert summary["communication"]["up_bytes"] > SITES * 8 * masked_size(16, 10)
    for row in summary["clients"]:
        assert row["trust"][0]["trust"] == "secure-sum"
        assert "at most 1 of 4 sites" in row["trust"][0]["assumption"]
        assert row["spent_local"] > row["epsilon"]["spent"] > 0.97 * 8
        # Its own noised sums, which it must not keep, are no part of its predictor.
        assert "own" not in row["shares"]
        assert row["accuracy"]["selected"] > 0.3


def test_a_run_that_is_through_changes_nothing(whole: Path):
    config = config_of()
    kept = {p: p.read_bytes() for p in whole.rglob("*") if p.is_file() and "round-001" in str(p)}
    ledgers = {p: p.read_bytes() for p in whole.rglob("ledger.jsonl")}
    exchanged(whole, config)
    assert {p: p.read_bytes() for p in kept} == kept
    assert {p: p.read_bytes() for p in ledgers} == ledgers
