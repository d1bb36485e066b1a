"""What leaves a site does not tell how many samples it has: 104 or 105 look alike."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lifetimes import Life
from scipy.stats import ks_2samp

from dprbft.site.predictor.budget import planned_release, recipe_of, residual_plan
from dprbft.site.predictor.residual import settings_by, trained
from dprbft.site.search import paid_histogram
from dprbft.site.site import Client
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds import moments

SHARE = Budget(1.0, 1e-5)
WIDTH, CLASSES = 128, 10
UNITS = Client.units


def rows(n: int) -> Rows:
    """Of length 1, drawn once: one more leaves the others as they are."""
    g = torch.Generator().manual_seed(0)
    z = torch.randn(200, WIDTH, generator=g)
    return Rows((z / z.norm(dim=1, keepdim=True))[:n], torch.arange(n) % CLASSES)


def seen(folder: Path, n: int) -> list[float]:
    """What a run of the default method shows: plan, release, and what DP-SGD has trained."""
    client = Life(folder, Budget(8.0, 1e-5), n).client(
        "run", SHARE, federation={"method": "joined"}, privacy={"search": "public-proxy"}
    )
    histogram = paid_histogram(client, "server")
    assert histogram is not None
    release = planned_release(client)
    assert isinstance(release, Gaussian)
    recipe = recipe_of(client, 0.85)
    plan = residual_plan(client, settings_by(client, recipe), [release])
    sent = moments.run(
        rows(n), CLASSES, moments.SENSITIVITY * release.noise_multiplier, SystemNoise()
    )
    prior = torch.zeros(n, CLASSES)
    residual = trained(rows(n), prior, plan, recipe.learning_rate)
    mechanism = plan.clip_and_noise
    return [
        *(sum(histogram), release.noise_multiplier),
        *(plan.rate, plan.steps, plan.noise_multiplier, mechanism.batch_size),
        *(recipe.learning_rate, recipe.epochs, recipe.batch_size),
        *(float(part.norm()) for part in sent.values()),
        *(float(part.norm()) for part in (residual.weight, residual.bias)),
    ]


def least_p(folder: Path, runs: int) -> float:
    """The least p-value by which any of it tells the two numbers apart, times how many there are."""
    a, b = (np.array([seen(folder / f"{n}-{run}", n) for run in range(runs)]) for n in (104, 105))
    tests = [ks_2samp(a[:, k], b[:, k]).pvalue for k in range(a.shape[1])]
    return float(min(tests)) * len(tests)


RUNS = [12, pytest.param(200, marks=pytest.mark.slow)]


@pytest.mark.parametrize("runs", RUNS)
def test_nothing_tells_104_samples_from_105(tmp_path: Path, runs: int) -> None:
    assert least_p(tmp_path, runs) > 1e-3


def test_a_plan_for_the_exact_number_tells_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact: Callable[[Client], int] = lambda client: client.data.train.units  # noqa: E731
    monkeypatch.setattr(Client, "units", property(exact))
    assert least_p(tmp_path, 12) < 1e-4
