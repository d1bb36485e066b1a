"""What n - 1 colluding sites learn of the last: an empirical lower bound beside its local claim.

They know the sum and their own vectors, and subtract them: what is left is the last site's vector
with its own share of the noise, in steps of the grid. One sample moves it as far as any can: two
numbers by 1, and a count by c. The bound is that of `attacks.epsilon.mechanism` from `DRAWS` draws
in each world, at delta .01 and 95 %. The planted bug halves the share: its bound must pass the
claim.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attacks.epsilon.mechanism import ceiling, gaussian_score, lower_bound
from dprbft.config.sections import FederationSettings
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.session import Session
from dprbft.secure_sum.total import total
from panas.privacy.accounting.closed_form import gaussian_multiplier
from panas.privacy.accounting.epsilon import epsilon as epsilon_of
from panas.privacy.accounting.events import Gaussian
from panas.privacy.discrete_gaussian import discrete_gaussian
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import SumNoise, in_steps
from panas.privacy.release.kind import summed_kind
from panas.privacy.release.kinds import moments

DELTA, RELEASE_DELTA = 0.01, 1e-5
SIZE = moments.numbers_of(128, 10)
DRAWS = 100_000


def audits(sites: Iterable[int], epsilons: Iterable[float]) -> list[dict[str, Any]]:
    """A row for each number of sites and epsilon of the sum."""
    results = []
    for n in sites:
        last = np.arange(-50, 50)  # the protocol itself: nothing is lost, and nothing added
        exact = bool((left_of_sum(last, n) == last).all())
        results += [audit(n, epsilon) | {"exact": exact} for epsilon in epsilons]
    return results


def audit(sites: int, epsilon: float, draws: int = DRAWS) -> dict[str, Any]:
    """Claims at delta .01 of the sum and of one share, and what colluding sites can show."""
    m = gaussian_multiplier(epsilon, RELEASE_DELTA)
    noise = SumNoise.of(
        summed_kind("moments"), m, sites, FederationSettings().secure_missing_of(sites), SIZE
    )
    return {
        "sites": sites,
        "missing": noise.missing,
        "epsilon": epsilon,
        "claim_of_sum": epsilon_of([Gaussian(noise.noise_multiplier)], DELTA),
        "claim_of_share": epsilon_of([Gaussian(noise.local)], DELTA),
        "bound": _bound(noise, noise.sigma, draws),
        "bound_half_noise": _bound(noise, noise.sigma // 2, draws),
        "ceiling": ceiling(draws, DELTA),
    }


def _bound(noise: SumNoise, sigma: int, draws: int) -> float:
    """The lower bound on epsilon from shares of this sigma."""
    row = torch.ones(1, 1, dtype=torch.float64)
    one = Rows(row, torch.zeros(1, dtype=torch.int64))
    worlds = [in_steps(moments.numbers(part, 1), noise.step) for part in (one, _nobody(one))]
    seen = [_seen(steps, noise, sigma, draws) for steps in worlds]
    means = [torch.from_numpy(steps * noise.step) for steps in worlds]
    std = torch.full((len(worlds[0]),), sigma * noise.step, dtype=torch.float64)
    score = gaussian_score(means[0], means[1], std)
    return lower_bound(score(seen[0]), score(seen[1]), DELTA)


def _nobody(rows: Rows) -> Rows:
    return Rows(rows.z[:0], rows.y[:0])


def _seen(steps: np.ndarray, noise: SumNoise, sigma: int, draws: int) -> Tensor:
    """What is left of the opened sum, of so many releases."""
    shares = discrete_gaussian(sigma, draws * len(steps)).reshape(draws, len(steps))
    last = steps + shares
    return torch.from_numpy(last * noise.step)


def left_of_sum(last: np.ndarray, sites: int) -> np.ndarray:
    """One site's numbers as the others find them: a secure sum, less what they put in."""
    vectors = [np.random.default_rng(i).integers(-(2**30), 2**30, last.size) for i in range(sites)]
    vectors[-1] = last.ravel()
    session = Session(os.urandom(16), tuple(range(sites)), (sites - 1) // 3)
    parties = [Party.new(session, i) for i in range(sites)]
    keys = {i: party.keys() for i, party in enumerate(parties)}
    sealed = {i: party.shares(keys) for i, party in enumerate(parties)}
    masked = {
        i: party.mask(vectors[i].view(np.uint64), {j: sealed[j][i] for j in range(sites) if j != i})
        for i, party in enumerate(parties)
    }
    answers = {i: party.unmask(masked) for i, party in enumerate(parties)}
    opened = total(session, keys, sealed, masked, answers).view(np.int64)
    return (opened - sum(vectors[:-1])).reshape(last.shape)


def text(rows: list[dict[str, Any]]) -> str:
    """The table of the documents."""
    lines = [
        "| sites (t) | epsilon at 1e-5 | claim of the sum | claim of a share | bound "
        "| planted: half the share |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['sites']} ({r['missing']}) | {r['epsilon']:g} | {r['claim_of_sum']:.2f} | "
        f"{r['claim_of_share']:.2f} | {r['bound']:.2f} | {r['bound_half_noise']:.2f} |"
        for r in rows
    ]
    return "\n".join(lines)
