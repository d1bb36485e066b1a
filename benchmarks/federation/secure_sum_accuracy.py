"""The accuracy of the shared head by who sees the releases: local noise, secure sum, or none.

Each of K sites has n private samples, of all classes alike, as rows of the common map of
`panas.features`, which is fitted on unlabelled public images. All of epsilon (delta 1e-5) but a
tenth for the label histogram goes to one release of moments; no public sample has a label.

| row | noise on the sum of all moments, in units of s^2, that of one site's release |
|---|---|
| local | K: the server sees each release; class counts are the sum of the noised histograms |
| secure sum | K / (K - t): discrete Gaussian shares on the grid, t by the rule, nobody missing |
| secure sum, t missing | 1: the same without the vectors of t sites |
| secure sum, t = 0 | 1: where no site may be missing, or tell its part |
| secure sum, own counts | K / (K - t): class counts are the sum of the noised histograms |
| central | 1: as if the sites trusted the server, which adds the noise once |
| exact | none |

In the secure sums and centrally, class counts are part of the sum, under its noise: s is 2.5 %
larger for that. "Own counts" is what a sum of moments alone would bring.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.joining_methods import all_released
from benchmarks.joining_world import DELTA, samples_of
from dprbft.config.sections import FederationSettings
from panas.data.facts import infer
from panas.data.sources import Reading, read
from panas.features.map import WIDTH, fit_map
from panas.privacy.accounting.epsilon import epsilon as epsilon_of
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import release_multiplier
from panas.privacy.discrete_gaussian import discrete_gaussian
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import SumNoise, in_steps
from panas.privacy.release.kind import summed_kind
from panas.privacy.release.kinds import moments
from panas.runtime.seeds import stream
from panas.training.linear.ridge import logits, shared_head
from panas.training.linear.rules import histogram_share

SITES, EPSILONS = (4, 10, 50), (1.0, 3.0, 8.0)
SECURE = ("secure sum", "secure sum, t missing", "secure sum, t = 0", "secure sum, own counts")
ROWS = ("local", *SECURE, "central", "exact")
SIZES = {"digits": (300, 400, None), "fashion-mnist": (2000, 5000, 150)}
"""Public and test samples, and those of a site; None: the rest, shared out."""
FIRST_SEED, DRAWS = 2000, 10
"""Of the noise, of each seed: what is told of it is their mean."""


def one(root: str, task: tuple[str, int, int]) -> dict[str, Any]:
    """Accuracy of each row on the test samples, by epsilon, of one seed."""
    dataset, sites, seed = task
    parts, test, classes = shared_out(dataset, root, sites, seed)
    record: dict[str, Any] = {"n": len(parts[0].y)}
    for epsilon in EPSILONS:
        scores: dict[str, list[float]] = {name: [] for name in ROWS}
        for draw in range(DRAWS):
            heads, noise = _heads(parts, classes, epsilon, f"{seed}, {epsilon:g}, {draw}")
            for name, head in heads.items():
                right = (logits(head, test.z).argmax(1) == test.y).double().mean()
                scores[name].append(float(right))
        means = {name: statistics.fmean(values) for name, values in scores.items()}
        prices = {
            "of sum": epsilon_of([Gaussian(noise.noise_multiplier)], DELTA),
            "of share": epsilon_of([Gaussian(noise.local)], DELTA),
        }
        record[str(epsilon)] = {"accuracy": means, "epsilon": prices, "missing": noise.missing}
    return record


def shared_out(
    dataset: str, root: str, sites: int, seed: int, n: int | None = None
) -> tuple[list[Rows], Rows, int]:
    """The rows of each site, of `n` each where that is given, those to test on, and the number of
    classes."""
    pool, rng = samples_of(dataset, root), stream(seed, "secure sum")
    public, tested, own = SIZES[dataset]
    order = rng.permutation(len(pool))
    facts = infer(read(dataset, Reading(data_root=root)))
    width = min(WIDTH, int(np.prod(facts.shape)))
    phi = fit_map(facts, pool.take(order[:public]), width)
    rest = order[public + tested :]
    size = n or own or len(rest) // sites

    def rows(at: np.ndarray) -> Rows:
        part = pool.take(at)
        return Rows(phi(part.inputs()), part.y)

    parts = [rows(rest[i * size : (i + 1) * size]) for i in range(sites)]
    return parts, rows(order[public : public + tested]), pool.classes


def _heads(
    parts: Sequence[Rows], classes: int, epsilon: float, draw: str
) -> tuple[dict[str, Tensor], SumNoise]:
    """The shared head of each row, and how the secure sum's noise is shared out."""
    sites, m = len(parts), all_released(len(parts[0].y), epsilon)
    noise = ReproducibleNoise(stream(0, "secure sum", "noise", draw))
    histogram = release_multiplier(Budget(epsilon, DELTA), 1, histogram_share(epsilon))
    exact = torch.stack([moments.numbers(part, classes) for part in parts])
    counts = torch.stack([torch.bincount(part.y, minlength=classes) for part in parts]).double()
    noised = (counts + histogram * noise.normal(*counts.shape)).sum(0), sites * histogram**2
    t, size = FederationSettings().secure_missing_of(sites), exact.shape[1]
    shares, all_there = (SumNoise.of(summed_kind("moments"), m, sites, k, size) for k in (t, 0))
    alone, s, there = moments.SENSITIVITY * m, moments.SUM_SENSITIVITY * m, sites - t
    summed = _opened(exact, shares, stream(0, "secure sum", "shares", draw))
    whole = _opened(exact, all_there, stream(0, "secure sum", "all there", draw)).sum(0)
    total, own = exact.sum(0), alone * (sites / there) ** 0.5
    local = total + alone * sites**0.5 * noise.normal(size)
    rows: dict[str, tuple[Tensor, float, tuple[Tensor, float] | None]] = {
        "local": (local, alone * sites**0.5, noised),
        "secure sum": (summed.sum(0), shares.scale(sites), None),
        "secure sum, t missing": (summed[:there].sum(0), shares.scale(there), None),
        "secure sum, t = 0": (whole, all_there.scale(sites), None),
        "secure sum, own counts": (total + own * noise.normal(size), own, noised),
        "central": (total + s * noise.normal(size), s, None),
        "exact": (total, 0.0, None),
    }
    return {name: _head(*row, classes) for name, row in rows.items()}, shares


def _head(numbers: Tensor, scale: float, own: tuple[Tensor, float] | None, classes: int) -> Tensor:
    """The shared head, with the sum's own class counts or with others of a variance."""
    result = moments.from_numbers(numbers, classes, scale)
    if own is not None:
        result = replace(result, counts=own[0].float(), counts_variance=own[1])
    return shared_head(result)


def _opened(exact: Tensor, noise: SumNoise, rng: np.random.Generator) -> Tensor:
    """What each site adds, as the server would read it: on the grid, with its share."""
    steps = [
        in_steps(own, noise.step) + discrete_gaussian(noise.sigma, len(own), rng.bytes)
        for own in exact
    ]
    return torch.from_numpy(np.stack(steps) * noise.step)


def summary(
    tasks: Sequence[tuple[Any, ...]], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Means over seeds by data set, sites and epsilon; differences to "central", paired."""
    rows = []
    for dataset, sites in dict.fromkeys((d, k) for d, k, _ in tasks):
        of = [r for t, r in zip(tasks, results, strict=True) if t[:2] == (dataset, sites)]
        for epsilon in map(str, EPSILONS):
            result = [r[epsilon]["accuracy"] for r in of]
            gaps = [100 * (f["secure sum"] - f["central"]) for f in result]
            rows.append(
                {
                    "dataset": dataset,
                    "sites": sites,
                    "missing": of[0][epsilon]["missing"],
                    "n": of[0]["n"],
                    "epsilon": float(epsilon),
                    "seeds": len(of),
                    "accuracy": {name: statistics.fmean(f[name] for f in result) for name in ROWS},
                    "points_to_central": statistics.fmean(gaps),
                    "error": statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else None,
                    "epsilon_of_sum": of[0][epsilon]["epsilon"]["of sum"],
                    "epsilon_of_share": of[0][epsilon]["epsilon"]["of share"],
                }
            )
    return rows


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of the documents."""
    lines = [
        f"| data, sites x samples (t) | epsilon | {' | '.join(ROWS)} | to central, points "
        "| epsilon of the release: sum, share |",
        "|" + "---|" * (len(ROWS) + 4),
    ]
    for r in rows:
        scores = " | ".join(f"{r['accuracy'][name]:.3f}" for name in ROWS)
        error = "" if r["error"] is None else f" +- {r['error']:.2f}"
        lines.append(
            f"| {r['dataset']}, {r['sites']} x {r['n']} ({r['missing']}) | {r['epsilon']:g} | "
            f"{scores} | {r['points_to_central']:+.2f}{error} | "
            f"{r['epsilon_of_sum']:.2f}, {r['epsilon_of_share']:.2f} |"
        )
    return "\n".join(lines)
