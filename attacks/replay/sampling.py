"""Whether the batches of a plan are Poisson samples at the rate that is charged.

Each unit is to enter each batch by itself with probability q, with all its rows, and a round is to
have as many batches as its event has steps. So the sizes of batches are binomial, and two batches,
of one round or of two, have q^2 of the units in common.
"""

from collections.abc import Iterator

import numpy as np
import scipy.stats
import torch
from jaxtyping import Bool
from torch import Tensor

from attacks.conformance.finding import Finding, of_many
from attacks.conformance.noise import both_sides
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import Plan
from panas.privacy.unit import number_units

UNITS = 400  # of the data that batches are drawn from
PLAN = Plan(samples=UNITS, batch_size=80, clip=0.5, noise_multiplier=1.5, epochs=20, rounds=2)


def findings_of_batches(plan: Plan) -> list[Finding]:
    """Tests of a plan's rounds of batches, of `UNITS` single rows, and of groups of two."""
    event = plan.training_event
    found = [_is(event.noise_multiplier == plan.clip_and_noise.noise_multiplier, "its noise")]
    ids = torch.arange(UNITS).repeat_interleave(2)
    for name, groups in (("rows", None), ("groups", ids)):
        rounds = []
        for _ in range(plan.rounds):
            size = UNITS if groups is None else len(groups)
            rounds.append([_hit(b, size) for b in plan.batches(SystemNoise(), size, groups)])
        found.append(_is(all(len(r) == event.steps for r in rounds), f"steps of {name}"))
        drawn = torch.stack([hit for of_round in rounds for hit in of_round])
        if groups is not None:
            units = number_units(groups)
            whole = torch.zeros(len(drawn), UNITS).index_add_(1, units, drawn.float())
            found.append(_is(bool(((whole == 0) | (whole == 2)).all()), "groups are whole"))
            drawn = whole > 0
        found += _of_drawn(name, drawn.numpy(), event.rate)
    return found


def _hit(batch: Tensor, size: int) -> Bool[Tensor, "n"]:
    hit = torch.zeros(size, dtype=torch.bool)
    hit[batch] = True
    return hit


def _is(right: bool, what: str) -> Finding:
    says = "a round does other than what it is charged as"
    return Finding("batches", what, 1.0 if right else 0.0, says)


def _of_drawn(name: str, drawn: np.ndarray, q: float) -> Iterator[Finding]:
    steps, n = drawn.shape
    p = scipy.stats.binomtest(int(drawn.sum()), drawn.size, q).pvalue
    yield Finding("rate", name, float(p), "units enter batches at another rate than is charged")
    for axis, parts in ((1, "sizes of batches"), (0, "how often a unit enters")):
        counts, of = drawn.sum(axis), drawn.shape[axis]
        spread = float(((counts - of * q) ** 2).sum() / (of * q * (1 - q)))
        p = both_sides(spread, len(counts))
        # Sums of squares of binomials have longer tails than chi-squares: half as unlikely.
        yield Finding(
            "independence", f"{name}, {parts}", p**0.5, "units do not enter by themselves"
        )
    common = (drawn[:, None] & drawn[None]).sum(2)[np.triu_indices(steps, 1)]
    far = int(np.abs(common - n * q * q).argmax())
    p = float(scipy.stats.binomtest(int(common[far]), n, q * q).pvalue)
    says = "batches have more units in common, or fewer, than chance gives them"
    yield Finding("independence", f"{name}, two batches", of_many(p, len(common)), says)
