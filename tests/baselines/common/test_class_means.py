"""Class means that leave a site: naive ones without noise, and what one sample can move."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from noises import NoNoise, Ones
from site_data import with_data
from tiny_methods import FREE, method_config
from torch import Tensor

from baselines.common import class_means
from baselines.common.class_means import ClassMeans, bound_of, means_in, release_means
from baselines.common.spending import Planned, Spending, begin
from dprbft.site.site import Site
from dprbft.updates import Bundle
from panas.data.samples import Samples
from panas.privacy.accounting.events import Unprotected
from panas.privacy.release.kinds import class_sums
from panas.runtime.errors import BadInput

MakeSite = Callable[..., Site]
D = 6


def site_of(make_site: MakeSite, run: Path, **privacy: Any) -> tuple[Site, Spending]:
    config = method_config("fedavg", {}, privacy, limit=80, clients=1, rounds=1)
    site = make_site(config, run)
    return site, begin(site, Planned(batch_size=1000, clip=1.0, epochs=1, releases=1))


def represent(samples: Samples) -> Tensor:
    """Some map to six numbers, of no particular norm."""
    x = samples.inputs().flatten(1)
    return 3 * torch.stack([x[:, i::D].sum(1) for i in range(D)], 1)


def naive(z: Tensor, y: Tensor) -> dict[int, Tensor]:
    return {
        c: torch.stack([row for row, label in zip(z, y, strict=True) if label == c]).mean(0)
        for c in sorted(set(y.tolist()))
    }


def test_without_a_budget_the_means_are_those_of_the_samples(make_site: MakeSite, tmp_path: Path):
    site, spending = site_of(make_site, tmp_path / "r", **FREE)
    means, receipt = release_means(site, represent, spending, 1, bound_of(D))
    wanted = naive(represent(site.data.train), site.data.train.y)
    assert means.classes.tolist() == list(wanted)
    stacked = torch.stack(list(wanted.values()))
    torch.testing.assert_close(means.means, stacked, rtol=1e-4, atol=1e-4)  # rows lie on a grid
    assert means.counts.tolist() == site.data.train.y.bincount().tolist()
    (entry,) = site.account.entries
    assert (entry.id, entry.event) == (receipt, Unprotected())


def test_at_zero_noise_the_means_are_those_of_clipped_rows(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site, spending = site_of(make_site, tmp_path / "r")
    monkeypatch.setattr(class_means, "SystemNoise", NoNoise)
    monkeypatch.setattr(class_sums, "SENSITIVITY", 1e-9)  # nothing counts as within the noise
    z = represent(site.data.train)
    bound = float(z.norm(dim=1).median())  # half of them are clipped
    means, _ = release_means(site, represent, spending, 1, bound)
    clipped = z * torch.clamp(bound / z.norm(dim=1, keepdim=True), max=1.0)
    wanted = naive(clipped, site.data.train.y)
    assert means.classes.tolist() == list(wanted)
    stacked = torch.stack(list(wanted.values()))
    torch.testing.assert_close(means.means, stacked, rtol=1e-4, atol=1e-4)  # rows lie on a grid


def test_the_noise_is_that_of_the_plan_and_charged(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site, spending = site_of(make_site, tmp_path / "r")
    results = []
    original = class_sums.run

    def run(*given: Any) -> dict[str, Tensor]:
        results.extend([original(*given), original(*given[:3], NoNoise())])
        return results[0]

    monkeypatch.setattr(class_means, "SystemNoise", Ones)
    monkeypatch.setattr(class_sums, "run", run)
    _, receipt = release_means(site, represent, spending, 1, 1.0)
    assert spending.plan is not None
    for name in ("S", "counts"):
        moved = results[0][name] - results[1][name]
        wanted = math.sqrt(2) * spending.plan.release_event.noise_multiplier
        torch.testing.assert_close(moved, torch.full_like(moved, wanted))
    count, entry = site.account.entries
    assert count.charge.mechanism == "count"
    assert (entry.id, entry.event) == (receipt, spending.plan.release_event)
    assert entry.charge.sensitivity == math.sqrt(2)


def test_one_sample_moves_sums_and_counts_by_the_sensitivity_at_most(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site, spending = site_of(make_site, tmp_path / "r")
    monkeypatch.setattr(class_means, "charged", lambda *_: _Free())
    train = site.data.train
    x = train.inputs().clone()
    x[0], x[1] = math.nan, 1e30
    train = Samples(x, train.y, train.classes)
    captured: list[dict[str, Tensor]] = []
    original = class_sums.run

    def run(rows: Any, classes: int, scale: float, noise: Any) -> dict[str, Tensor]:
        captured.append(original(rows, classes, 0.0, NoNoise()))
        return captured[-1]

    monkeypatch.setattr(class_sums, "run", run)

    def released(samples: Samples) -> Tensor:
        other = with_data(site, replace(site.data, train=samples))
        release_means(other, represent, spending, 1, 1.0)
        result = captured[-1]
        return torch.cat([result["S"].flatten(), result["counts"]]).double()

    whole = released(train)
    moved = [
        float((whole - released(train.take([j for j in range(len(train)) if j != i]))).norm())
        for i in range(len(train))
    ]
    assert max(moved) <= math.sqrt(2) + 1e-5
    assert max(moved) > math.sqrt(2) - 1e-3


class _Free:
    """A charge that a test does not make."""

    id = "none"

    def __enter__(self) -> "_Free":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


GOOD = {
    "classes": torch.tensor([0, 3]),
    "means": torch.ones(2, D),
    "counts": torch.tensor([1.0, 2.0]),
}


def test_means_arrive_as_they_were_sent():
    means = ClassMeans(**GOOD)
    got = means_in(Bundle(means.to_arrays()), 4, D)
    assert torch.equal(got.means, means.means)
    none = ClassMeans(torch.empty(0, dtype=torch.int64), torch.empty(0, D), torch.empty(0))
    assert len(means_in(Bundle(none.to_arrays()), 4, D).classes) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": torch.tensor([0, 4])},
        {"classes": torch.tensor([-1, 0])},
        {"classes": torch.tensor([3, 3])},
        {"classes": torch.tensor([0, 1, 2])},
        {"classes": torch.tensor(1)},
        {"classes": torch.tensor([0.0, 1.0])},
        {"classes": torch.arange(9)},
        {"means": torch.ones(2, D + 1)},
        {"means": torch.ones(1, D)},
        {"counts": torch.tensor([1.0, 0.0])},
        {"more": torch.ones(1)},
    ],
    ids=lambda c: "-".join(f"{k}{list(v.shape)}" for k, v in c.items()),
)
def test_other_means_are_refused(changes: dict[str, Tensor]):
    with pytest.raises(BadInput, match=r"^expected .* update"):
        means_in(Bundle({**GOOD, **changes}), 4, D)
    with pytest.raises(BadInput):
        means_in(Bundle(), 4, D)
