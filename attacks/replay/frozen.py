"""Record every noise call of a mechanism, freeze the draws, and run it on neighbours.

With frozen noise a mechanism is a function of the data alone, and with frozen data one of the noise
alone. So no statistics are needed: each test below is exact, but for rounding.

| symbol | name |
|---|---|
| x | the m normal numbers that it draws, `Recorded.row` |
| f(D, x) | its k numbers |
| J | `_Probed.jacobian`: f(D, x) = f(D, 0) + J x, the same for all D |
| change | f(D, x) - f(D', x), what one unit adds; independent of x |
| mu | length of the shortest x with J x = change: what the unit's presence costs |

An additive Gaussian mechanism of noise multiplier m has mu at most 1 / m for every unit, and if no
x gives the change, part of it has no noise. So noise that is too small, in one entry or along one
direction, a unit that counts more than once, noise from elsewhere, and branches on the data show.

Source: record and replay of noise calls, arXiv 2602.17454; the Gaussian mechanism in whitened form,
Dong, Roth and Su 2022.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.conformance.finding import Finding
from attacks.replay.mechanism import Mechanism, Neighbour, World, flat, worlds_of
from attacks.replay.recorded import Frozen, Recorded, fits
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BadInput

PROBE = 8.0  # standard deviations at which the effect of each draw is measured
ROUNDING = 2.0**-19  # of the largest number: 16 steps of a number of 32 bits
LOOSE = 1e-3  # by which a unit's mu may exceed what was charged, relatively
LEAST_NOISE = 1e-5  # directions with less, of the largest, count as without
WORST = 10  # units that are shown


@dataclass(frozen=True)
class UnitLoss:
    """What one unit's presence costs, over what was charged; infinity: part of it has no noise."""

    world: str
    unit: str
    over_charge: float


@dataclass(frozen=True)
class Replayed:
    """What runs on neighbours with frozen noise found."""

    findings: tuple[Finding, ...]
    worst: tuple[UnitLoss, ...]  # the largest first


def replay(mechanism: Mechanism, rng: np.random.Generator) -> Replayed:
    """All tests of a mechanism with frozen noise.

    Args:
        mechanism: to run again and again, some hundred times.
        rng: draws rows and probes; no privacy rests on it.
    """
    runs = _Runs(mechanism)
    worlds = worlds_of(mechanism, rng)
    try:
        problems, losses = runs.all_worlds(worlds, rng)
    except _Broken as e:
        problems, losses = [(e.test, e.says)], []
    first = dict(reversed(problems))
    findings = [_finding(test, mechanism.name, first.get(test)) for test in TESTS]
    worst = sorted(losses, key=lambda u: -u.over_charge)[:WORST]
    return Replayed(tuple(findings), tuple(worst))


def check_runs(mechanism: Mechanism, rng: np.random.Generator) -> None:
    """BadInput for a mechanism that does not run at all, on rows of all kinds.

    Args:
        mechanism: to run once.
        rng: draws rows.
    """
    runs, worlds = _Runs(mechanism), worlds_of(mechanism, rng)
    try:
        runs.output(worlds[0].rows, Recorded())
    except Exception as e:
        raise BadInput(
            f"expected {mechanism.name} to run on {len(worlds[0].rows.y)} rows of "
            f"{mechanism.width} numbers, got {type(e).__name__}: {e!s:.80}; mend it"
        ) from e


TESTS = {
    "frozen": "the same noise on the same rows gives another output: it draws noise from elsewhere",
    "calls": "its noise calls depend on the data",
    "outputs": "names, shapes or types of what leaves depend on the data",
    "failures": "it fails on some data, which shows that they are such",
    "linear": "its noise is not added once, at one scale, whatever the data",
    "contribution": "what a unit adds depends on the noise",
    "sensitivity": "a unit adds more than was charged for its noise",
    "unprotected": "part of what a unit adds has no noise",
    "sampling": "a unit counts that was not drawn into the batch",
}
"""What a failed test means."""


def _finding(test: str, part: str, found: str | None) -> Finding:
    says = TESTS[test]
    return Finding(
        test, part, 1.0 if found is None else 0.0, f"{says} ({found})" if found else says
    )


class _Broken(Exception):
    """The mechanism cannot be tested any further."""

    def __init__(self, test: str, says: str) -> None:
        super().__init__(says)
        self.test, self.says = test, says


Problem = tuple[str, str]


@dataclass(frozen=True)
class _Probed:
    """A mechanism's noise: what one unit of each draw adds to each number."""

    recorded: Recorded
    jacobian: Float[Tensor, "k m"]
    inverse: Float[Tensor, "m k"]
    rounding: float  # how far a number of the Jacobian may be off


class _Runs:
    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = mechanism

    def output(self, rows: Rows, noise: NoiseSource) -> dict[str, Tensor]:
        return self.mechanism.arrays(rows, noise)

    def frozen(
        self, rows: Rows, recorded: Recorded, row: Tensor, neighbour: Neighbour | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """A run with given noise, as one row and by name; _Broken where calls or shapes differ."""
        without = None if neighbour is None else neighbour.without
        source = Frozen(row, recorded.uniforms, without)
        about = "a run" if neighbour is None else f"without {neighbour.about}"
        try:
            arrays = self.output(rows, source)
        except Exception as e:
            raise _Broken("failures", f"{about}: {type(e).__name__}: {e!s:.60}") from e
        if not fits(source.calls, recorded.calls, without is not None):
            raise _Broken("calls", about)
        return flat(arrays), arrays

    def all_worlds(
        self, worlds: Sequence[World], rng: np.random.Generator
    ) -> tuple[list[Problem], list[UnitLoss]]:
        problems, losses, first = list[Problem](), list[UnitLoss](), None
        for world in worlds:
            recorded = self.record(world.rows)
            if first is None:
                first = self.probe(world.rows, recorded)
            normal_calls = [
                [c for c in r.calls if c[0] == "normal"] for r in (first.recorded, recorded)
            ]
            if normal_calls[0] != normal_calls[1]:
                raise _Broken("calls", f"{world.name} beside {worlds[0].name}")
            probed = replace(first, recorded=recorded)
            for problem, loss in self.of_world(world, probed, rng):
                problems += [problem] if problem else []
                losses += [loss] if loss else []
        return problems, losses

    def record(self, rows: Rows) -> Recorded:
        """The calls and draws of a run; _Broken where they do not repeat its output."""
        recorded = Recorded()
        try:
            first = flat(self.output(rows, recorded))
        except Exception as e:
            raise _Broken("failures", f"{type(e).__name__}: {e!s:.60}") from e
        if not bool(first.isfinite().all()):
            raise _Broken("failures", "numbers that are not finite")
        again, _ = self.frozen(rows, recorded, recorded.row)
        if not torch.equal(first, again):
            raise _Broken("frozen", f"{int((first != again).sum())} of {len(first)} numbers")
        return recorded

    def probe(self, rows: Rows, recorded: Recorded) -> _Probed:
        m = len(recorded.row)
        zero, _ = self.frozen(rows, recorded, torch.zeros(m, dtype=torch.float64))
        columns = [
            (self.frozen(rows, recorded, PROBE * one)[0] - zero) / PROBE
            for one in torch.eye(m, dtype=torch.float64)
        ]
        if not m:
            raise _Broken("unprotected", "no noise is drawn from its source")
        jacobian = torch.stack(columns, 1)
        rounding = ROUNDING * float(zero.abs().max() + PROBE * jacobian.abs().max()) / PROBE
        inverse = torch.linalg.pinv(jacobian, rtol=LEAST_NOISE)
        return _Probed(recorded, jacobian, inverse, rounding)

    def of_world(
        self, world: World, probed: _Probed, rng: np.random.Generator
    ) -> Iterator[tuple[Problem | None, UnitLoss | None]]:
        m = len(probed.recorded.row)
        usual, far = (s * torch.from_numpy(rng.standard_normal(m)) for s in (1.0, PROBE))
        base = self.pair(world.rows, probed, usual, far)
        if problem := _not_linear(base, probed, usual, far):
            yield ("linear", f"{world.name}: {problem}"), None
        for neighbour in world.neighbours:
            other = self.pair(neighbour.rows, probed, usual, far, neighbour)
            about = f"{world.name}, {neighbour.about}"
            if _layout(base.arrays) != _layout(other.arrays):
                raise _Broken("outputs", about)
            if problem := _not_linear(other, probed, usual, far):
                yield ("linear", f"{about}: {problem}"), None
            change, noisier = base.usual - other.usual, base.far - other.far
            if bool(((change - noisier).abs() > 2 * (base.rounding + other.rounding)).any()):
                yield ("contribution", about), None
            yield self.loss(change, 2 * (base.rounding + other.rounding), probed, neighbour, world)

    def pair(
        self,
        rows: Rows,
        probed: _Probed,
        usual: Tensor,
        far: Tensor,
        neighbour: Neighbour | None = None,
    ) -> "_Pair":
        one, arrays = self.frozen(rows, probed.recorded, usual, neighbour)
        two, _ = self.frozen(rows, probed.recorded, far, neighbour)
        return _Pair(one, two, arrays)

    def loss(
        self, change: Tensor, rounding: float, probed: _Probed, neighbour: Neighbour, world: World
    ) -> tuple[Problem | None, UnitLoss]:
        about = f"{world.name}, {neighbour.about}"
        x = probed.inverse @ change
        bare = (change - probed.jacobian @ x).abs() > 4 * rounding
        mu = float(x.norm()) * self.mechanism.noise_multiplier
        if bool(bare.any()):
            problem: Problem | None = ("unprotected", f"{about}: {int(bare.sum())} numbers")
            return problem, UnitLoss(world.name, neighbour.about, float("inf"))
        loss = UnitLoss(world.name, neighbour.about, mu)
        at = neighbour.without
        drawn = self.mechanism.rate >= 1 or at is None or self._drawn(probed.recorded, at)
        if not drawn and bool((change.abs() > rounding).any()):
            return ("sampling", about), loss
        most = float(torch.linalg.matrix_norm(probed.inverse, 2)) * self.mechanism.noise_multiplier
        if mu > 1 + LOOSE + 4 * rounding * most:
            return ("sensitivity", f"{about}: {mu:.3g} times as much"), loss
        return None, loss

    def _drawn(self, recorded: Recorded, unit: int) -> bool:
        return any(float(u[unit]) < self.mechanism.rate for u in recorded.uniforms)


@dataclass(frozen=True)
class _Pair:
    """Two runs on the same rows, with usual and with far noise."""

    usual: Float[Tensor, "k"]
    far: Float[Tensor, "k"]
    arrays: dict[str, Tensor]

    @property
    def rounding(self) -> float:
        """How far a number may be off."""
        return ROUNDING * float(torch.cat([self.usual, self.far]).abs().max())


def _not_linear(pair: _Pair, probed: _Probed, usual: Tensor, far: Tensor) -> str | None:
    added = probed.jacobian @ (far - usual)
    rounding = 4 * (pair.rounding + probed.rounding * float((far - usual).norm()))
    wrong = (pair.far - pair.usual - added).abs() > rounding
    return f"{int(wrong.sum())} of {len(wrong)} numbers" if bool(wrong.any()) else None


def _layout(arrays: dict[str, Tensor]) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
    return [(name, a.dtype, tuple(a.shape)) for name, a in arrays.items()]
