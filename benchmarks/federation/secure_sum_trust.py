"""What a secure sum's epsilon becomes where more than it trusts come together.

"Left out" is where t sites help the server, which also leaves t others out: n - 2 t shares of the
noise are unknown to it. "Share" is where all others help it: one share is left.
"""

import math
from collections.abc import Iterable
from typing import Any

from benchmarks.secure_sum_cost import NUMBERS, SITES
from dprbft.config.sections import FederationSettings
from panas.privacy.accounting.closed_form import gaussian_epsilon, gaussian_multiplier
from panas.privacy.accounting.distributed import SummedVector, share_sigma, sum_multiplier
from panas.privacy.release.kinds.moments import SENSITIVITY

EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-5


def trusts(
    sites: Iterable[int] = SITES, epsilons: Iterable[float] = EPSILONS
) -> list[dict[str, Any]]:
    """A row for each number of sites and epsilon, at the settings' own t."""
    return [_row(n, e) for n in sites for e in epsilons]


def _row(sites: int, epsilon: float) -> dict[str, Any]:
    missing = FederationSettings().secure_missing_of(sites)
    multiplier = gaussian_multiplier(epsilon, DELTA)
    step = math.ldexp(0.5, math.frexp(SENSITIVITY * multiplier)[1] - 24)
    vector = SummedVector(sensitivity=SENSITIVITY, step=step, size=NUMBERS)
    sigma = share_sigma(vector, multiplier, sites - missing)

    def of(shares: int) -> float:
        return round(gaussian_epsilon(1 / sum_multiplier(vector, sigma, shares), DELTA), 2)

    return {
        "sites": sites,
        "missing": missing,
        "epsilon": epsilon,
        "sum": of(sites - missing),
        "left_out": of(sites - 2 * missing),
        "share": of(1),
    }


def text(rows: list[dict[str, Any]]) -> str:
    """The table of the documents."""
    lines = [
        "| sites | t | epsilon of the sum | t help, t others are left out | all others help |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        first = f"| {r['sites']} | {r['missing']} | {r['epsilon']:g} "
        lines.append(f"{first}| {r['left_out']:.2f} | {r['share']:.2f} |")
    return "\n".join(lines)
