"""What leaves a site does not tell how many samples it has: 104 or 105 look alike."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lifetimes import Life
from scipy.stats import ks_2samp

from dprbft.methods.joined.budget import planned_release, recipe_of, residual_plan
from dprbft.methods.joined.residual import settings_by, trained
from dprbft.site.counting import count_units
from dprbft.site.search import paid_histogram
from dprbft.site.site import USUAL, Site
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds import moments
from panas.privacy.unit import planned_units

SHARE = Budget(1.0, 1e-5)
WIDTH, CLASSES = 128, 10


def rows(n: int) -> Rows:
    """Of length 1, drawn once: one more leaves the others as they are."""
    g = torch.Generator().manual_seed(0)
    z = torch.randn(200, WIDTH, generator=g)
    return Rows((z / z.norm(dim=1, keepdim=True))[:n], torch.arange(n) % CLASSES)


def seen(folder: Path, n: int, *, trains: bool) -> list[float]:
    """What a run of the default method shows: plan, release, and what DP-SGD has trained, if it
    `trains`."""
    site = Life(folder, Budget(8.0, 1e-5), n).site(
        "run", SHARE, federation={"method": "joined"}, privacy={"search": "public-proxy"}
    )
    histogram = paid_histogram(site, "server")
    assert histogram is not None
    release = planned_release(site)
    assert isinstance(release, Gaussian)
    recipe = recipe_of(site, 0.85)
    plan = residual_plan(site, settings_by(site, recipe), [release])
    sent = moments.run(
        rows(n), CLASSES, moments.SENSITIVITY * release.noise_multiplier, SystemNoise()
    )
    learnt = list[torch.Tensor]()
    if trains:
        prior = torch.zeros(n, CLASSES)
        learnt = list(trained(rows(n), prior, plan, recipe.learning_rate).parameters())
    mechanism = plan.clip_and_noise
    return [
        *(sum(histogram), release.noise_multiplier),
        *(plan.rate, plan.steps, plan.noise_multiplier, mechanism.batch_size),
        *(recipe.learning_rate, recipe.epochs, recipe.batch_size),
        *(float(part.norm()) for part in sent.values()),
        *(float(part.norm()) for part in learnt),
    ]


def least_p(folder: Path, runs: int, *, trains: bool = False) -> float:
    """The least p-value by which any of it tells them apart, times the number of tests."""
    a, b = (
        np.array([seen(folder / f"{n}-{run}", n, trains=trains) for run in range(runs)])
        for n in (104, 105)
    )
    tests = [ks_2samp(a[:, k], b[:, k]).pvalue for k in range(a.shape[1])]
    return float(min(tests)) * len(tests)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [12, pytest.param(200, marks=pytest.mark.thorough)])
def test_nothing_tells_104_samples_from_105(tmp_path: Path, runs: int) -> None:
    assert least_p(tmp_path, runs, trains=runs > 12) > 1e-3


@pytest.mark.slow
def test_a_plan_for_the_exact_number_tells_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact: Callable[[Site], int] = lambda site: site.data.train.units  # noqa: E731
    monkeypatch.setattr(Site, "units", property(exact))
    assert least_p(tmp_path, 12) < 1e-4


def test_a_count_is_charged_once_and_kept(tmp_path: Path) -> None:
    life = Life(tmp_path, Budget(8.0, 1e-5), 4000)
    site = life.site("run", Budget(8.0, 1e-5), federation={"method": "fedavg"})
    assert site.units == USUAL
    first = count_units(site)
    assert abs(first - 4000) < 100
    assert [e.charge.mechanism for e in site.account.entries] == ["count"]
    assert count_units(site) == site.units == first
    assert len(site.account.entries) == 1
    assert 3900 < site.least_units() < 4000


def test_a_declared_number_is_used_and_nothing_is_charged_for_it(tmp_path: Path) -> None:
    life = Life(tmp_path, Budget(8.0, 1e-5), 104)
    settings = (tmp_path / "site.toml").read_text()
    (tmp_path / "site.toml").write_text(f"samples = 200\n{settings}")
    site = life.site("run", SHARE, federation={"method": "fedavg"})
    data = site.config.data
    expected = round(200 * (1 - data.validation_fraction - data.test_fraction))
    assert count_units(site) == site.units == site.least_units() == expected
    assert site.account.entries == ()


def test_without_a_budget_the_number_is_exact(tmp_path: Path) -> None:
    life = Life(tmp_path, Budget(8.0, 1e-5), 104)
    site = replace(life.site("run", SHARE), budget=Budget(math.inf, 1e-5))
    assert count_units(site) == site.least_units() == 104


@pytest.mark.parametrize(
    ("noised", "deviation", "wanted"),
    [(152.4, 46.0, 150), (-80.0, 46.0, 46), (7.6, 1.0, 8), (1234.0, 46.0, 1200), (-3.0, 0.0, 1)],
)
def test_a_number_to_plan_with(noised: float, deviation: float, wanted: int) -> None:
    assert planned_units(noised, deviation) == wanted
