"""Mechanisms run again with frozen noise: sound ones pass, and each planted fault fails by name."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from attacks.replay.audit import audit_implementation
from attacks.replay.frozen import Replayed, check_runs, replay
from attacks.replay.mechanism import Mechanism, worlds_of
from attacks.replay.own import own_mechanisms
from panas.privacy.accounting.events import REPLACE
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BadInput

M = 2.0


def unit(rows: Rows) -> Tensor:
    z = rows.z.double()
    return z / z.norm(dim=1, keepdim=True).clamp(min=1)


def sums(rows: Rows) -> Tensor:
    return unit(rows).sum(0)


def sound(rows: Rows, noise: NoiseSource) -> Tensor:
    return sums(rows) + M * noise.normal(rows.z.shape[1])


def replayed(run: Callable[[Rows, NoiseSource], Tensor], **facts: object) -> Replayed:
    return replay(mechanism(run, **facts), np.random.default_rng(0))


def mechanism(run: Callable[..., object], **facts: object) -> Mechanism:
    return Mechanism(name="mine", run=run, **{"noise_multiplier": M} | facts)  # type: ignore[arg-type]


def failed(result: Replayed) -> set[str]:
    return {f.test for f in result.findings if f.p < 1}


def test_a_sound_sum_costs_what_was_charged():
    result = replayed(sound)
    assert failed(result) == set()
    assert len(result.worst) == 10
    assert result.worst[0].over_charge == pytest.approx(1.0, rel=1e-4)
    costs = [u.over_charge for u in result.worst]
    assert costs == sorted(costs, reverse=True)


def test_more_noise_than_charged_costs_less():
    assert replayed(sound, noise_multiplier=M / 2).worst[0].over_charge == pytest.approx(
        0.5, rel=1e-4
    )


def mixed(rows: Rows, noise: NoiseSource) -> Tensor:
    """Rotated noise: what counts is the noise in each direction, not on each number."""
    d = rows.z.shape[1]
    turn = torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(0)).double()).Q
    return sums(rows) + M * turn @ noise.normal(d)


def in_parts(rows: Rows, noise: NoiseSource) -> Tensor:
    """Noise of several calls that add up."""
    d = rows.z.shape[1]
    return sums(rows) + M / math.sqrt(2) * (noise.normal(d) + noise.normal(1, d)[0])


@pytest.mark.parametrize("run", [mixed, in_parts])
def test_noise_may_be_mixed_and_of_several_calls(run: Callable):
    assert failed(replayed(run)) == set()


def weighted(rows: Rows, noise: NoiseSource) -> Tensor:
    u = unit(rows)
    u[:1] *= 3
    return u.sum(0) + M * noise.normal(u.shape[1])


def unclipped(rows: Rows, noise: NoiseSource) -> Tensor:
    return rows.z.double().sum(0) + M * noise.normal(rows.z.shape[1])


def a_little_less(rows: Rows, noise: NoiseSource) -> Tensor:
    return sums(rows) + 0.95 * M * noise.normal(rows.z.shape[1])


def one_number_bare(rows: Rows, noise: NoiseSource) -> Tensor:
    x = noise.normal(rows.z.shape[1])
    x[2] = 0
    return sums(rows) + M * x


def bare_along_a_row(rows: Rows, noise: NoiseSource) -> Tensor:
    x, v = noise.normal(rows.z.shape[1]), torch.nn.functional.normalize(rows.z[:1].double())
    return sums(rows) + M * (x - v.T.flatten() * (v @ x).sum() if len(v) else x)


def elsewhere(rows: Rows, noise: NoiseSource) -> Tensor:
    return sums(rows) + M * torch.randn(rows.z.shape[1])


def hashed(rows: Rows, noise: NoiseSource) -> Tensor:
    seed = int(abs(float(rows.z.double().sum())) * 1e6) % 2**32
    g = torch.Generator().manual_seed(seed)
    return sums(rows) + M * torch.randn(rows.z.shape[1], generator=g).double()


def none_for_few(rows: Rows, noise: NoiseSource) -> Tensor:
    return sums(rows) + M * (len(rows.y) > 1) * noise.normal(rows.z.shape[1])


def none_for_wild(rows: Rows, noise: NoiseSource) -> Tensor:
    scale = 0 if float(rows.z.abs().sum()) > 500 else M
    return sums(rows) + scale * noise.normal(rows.z.shape[1])


def half_for_many(rows: Rows, noise: NoiseSource) -> Tensor:
    return sums(rows) + (M if len(rows.y) < 900 else M / 2) * noise.normal(rows.z.shape[1])


def a_call_a_row(rows: Rows, noise: NoiseSource) -> Tensor:
    for _ in rows.y[:-1]:
        noise.normal(1)
    return sound(rows, noise)


def refuses_zeros(rows: Rows, noise: NoiseSource) -> Tensor:
    if len(rows.y) and not bool(rows.z.any(1).all()):
        raise ValueError("a row of zeros")
    return sound(rows, noise)


def a_number_a_row(rows: Rows, noise: NoiseSource) -> Tensor:
    return torch.cat([sound(rows, noise), torch.zeros(len(rows.y)).double()])


def tails_cut(rows: Rows, noise: NoiseSource) -> Tensor:
    return sums(rows) + M * noise.normal(rows.z.shape[1]).clamp(-3, 3)


def mean(rows: Rows, noise: NoiseSource) -> Tensor:
    """A divisor that follows the number of rows."""
    return sound(rows, noise) / max(1, len(rows.y))


def counted(rows: Rows, noise: NoiseSource) -> Tensor:
    return torch.cat([sound(rows, noise), torch.tensor([float(len(rows.y))]).double()])


FAULTS = {
    weighted: "sensitivity",
    unclipped: "sensitivity",
    a_little_less: "sensitivity",
    one_number_bare: "unprotected",
    bare_along_a_row: "linear",
    elsewhere: "frozen",
    hashed: "unprotected",
    none_for_few: "linear",
    none_for_wild: "linear",
    half_for_many: "linear",
    a_call_a_row: "calls",
    refuses_zeros: "failures",
    a_number_a_row: "outputs",
    tails_cut: "linear",
    mean: "linear",
    counted: "unprotected",
}


@pytest.mark.parametrize(("run", "test"), FAULTS.items(), ids=lambda x: getattr(x, "__name__", x))
def test_each_fault_fails_its_test(run: Callable, test: str):
    assert test in failed(replayed(run))


def test_what_a_weighted_row_costs_is_shown_first():
    worst = replayed(weighted).worst
    assert worst[0].over_charge > 3
    assert {u.world for u in worst if u.over_charge > 3} >= {"rows of all kinds", "tame rows"}
    assert replayed(one_number_bare).worst[0].over_charge == math.inf


def drawn(rows: Rows, noise: NoiseSource) -> Tensor:
    some = noise.uniform(len(rows.y)) < 0.5
    return sound(Rows(rows.z[some], rows.y[some], None), noise)


def drawn_too_often(rows: Rows, noise: NoiseSource) -> Tensor:
    some = noise.uniform(len(rows.y)) < 0.8
    return sound(Rows(rows.z[some], rows.y[some], None), noise)


def test_a_unit_that_was_not_drawn_does_not_count():
    assert failed(replayed(drawn, rate=0.5)) == set()
    assert "sampling" in failed(replayed(drawn_too_often, rate=0.5))


def test_groups_count_as_one():
    assert "sensitivity" in failed(replayed(sound, grouped=True))


def test_a_replaced_unit_moves_a_sum_twice():
    assert failed(replayed(sound, relation=REPLACE, noise_multiplier=M / 2)) == set()
    assert failed(replayed(sound, relation=REPLACE)) == {"sensitivity"}


def test_rows_that_are_not_finite_come_where_nothing_was_checked():
    for hostile in (False, True):
        rows = worlds_of(mechanism(sound, hostile=hostile), np.random.default_rng(0))[0].rows
        assert bool(rows.z.isfinite().all()) != hostile
    assert "failures" in failed(replayed(sound, hostile=True))


@pytest.mark.parametrize("part", ["moments of groups", "class_sums of", "a step on"])
def test_the_projects_own_pass(part: str, tmp_path: Path):
    for own in own_mechanisms(tmp_path):
        if own.name.startswith(part):
            result = replay(own, np.random.default_rng(1))
            assert failed(result) == set()
            assert result.worst[0].over_charge == pytest.approx(1.0, rel=1e-3)


@pytest.mark.slow
def test_the_projects_own_pass_through_ledgers(tmp_path: Path):
    for own in own_mechanisms(tmp_path):
        result = replay(own, np.random.default_rng(2))
        assert failed(result) == set(), own.name
        assert result.worst[0].over_charge == pytest.approx(1.0, rel=1e-3), own.name


def test_a_mechanism_that_does_not_run_is_refused():
    def broken(rows: Rows, noise: NoiseSource) -> Tensor:
        raise KeyError("weights")

    with pytest.raises(
        BadInput, match="expected mine to run on 15 rows of 6 numbers, got KeyError"
    ):
        check_runs(mechanism(broken), np.random.default_rng(0))
    with pytest.raises(BadInput, match="expected tensors of mine, got list"):
        mechanism(lambda rows, noise: {"a": [1.0]}).arrays(
            Rows(*torch.zeros(2, 1, 1)), SystemNoise()
        )
    with pytest.raises(BadInput, match="expected a mechanism with a function"):
        mechanism(sound, rate=0.0)


def test_an_audit_of_parts_finds_a_users_fault():
    rng = np.random.default_rng(0)
    result = audit_implementation(mechanism(one_number_bare), rng=rng, only=("mine",))
    assert [name for name, _ in result.alarms] == ["mine"]
    record = result.to_json()
    assert not record["sound"]
    assert record["parts"][0]["worst_units"][0]["over_charge"] == "infinity"
    assert audit_implementation(mechanism(sound), rng=rng, only=("mine",)).alarms == ()
