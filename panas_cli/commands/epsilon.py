"""`panas epsilon`: what DP-SGD would cost, by every accountant, before anything is run."""

import math
from typing import Any, Literal

from panas.privacy.accounting.epsilon import epsilon as price
from panas.privacy.accounting.epsilon import prv_bounds
from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.ledger.account import number
from panas.runtime.errors import BadInput
from panas_cli.text.printing import counted, print_json, print_text


def epsilon(
    q: float,
    sigma: float,
    steps: int,
    delta: float,
    group: int,
    relation: Literal["add-or-remove-one", "replace-one"],
    json: bool,
) -> None:
    """Show epsilon of DP-SGD by four accountants beside each other.

    Args:
        q: sampling rate, in (0, 1].
        sigma: noise multiplier, above 0.
        steps: of the optimiser, at least 1.
        delta: in (0, 1).
        group: samples that one user holds, at least 1.
        relation: which data sets are neighbours.
        json: print one JSON object.
    """
    _check("--q in (0, 1]", 0 < q <= 1, q)
    _check("a finite --sigma above 0", 0 < sigma < math.inf, sigma)
    _check("--steps of 1 or more", steps >= 1, steps)
    _check("--delta in (0, 1)", 0 < delta < 1, delta)
    _check("a --group of 1 or more", group >= 1, group)
    events = [SampledGaussian(q, sigma, steps)]
    pld = price(events, delta, relation=relation, group=group)
    rdp = price(events, delta, method="rdp", relation=relation, group=group)
    gdp = price(events, delta, method="gdp", relation=relation, group=group)
    low, _, high = prv_bounds(events, delta, relation=relation, group=group)
    if json:
        figures = {"pld": pld, "rdp": rdp, "prv": high, "gdp": gdp}
        bracket = {"prv_low": low, "prv_high": high}
        settings = {"q": q, "sigma": sigma, "steps": steps, "delta": delta}
        terms: dict[str, Any] = {"group": group, "relation": relation}
        print_json({k: number(x) for k, x in (figures | bracket).items()} | settings | terms)
        return
    print_text(f"DP-SGD: q = {q:g}, sigma = {sigma:g}, {steps} steps, at delta = {delta:g}")
    print_text(f"neighbours: {relation}, a user holds {counted(group, 'sample')}")
    print_text(f"pld  {_text(pld)}  upper bound by privacy loss distributions; the ledger's")
    print_text(f"rdp  {_text(rdp)}  upper bound by Renyi divergences")
    print_text(f"prv  {_text(high)}  upper bound by Opacus; its lower bound is {low:.3f}")
    print_text(f"gdp  {_text(gdp)}  approximate, no bound: the central limit")


def _check(expected: str, holds: bool, got: float) -> None:
    if not holds:
        raise BadInput(f"expected {expected}, got {got}; see panas epsilon --help")


def _text(x: float) -> str:
    return f"{x:8.3f}" if math.isfinite(x) else "infinity"
