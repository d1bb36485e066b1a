"""What it costs to tune the residuals of many sites by one rehearsal, and what that brings.

    python -m benchmarks.rehearsals --data-root DIR [--seeds 5] [--workers 2] [--json]

Ten sites of Fashion-MNIST (Dirichlet .3), over the head of 1,000 labelled public images, by DP-SGD
of all that the histogram leaves of epsilon. They are tuned as in the product, which is one
rehearsal for all, with the settings of the preset `sound`.

| line | what is compared |
|---|---|
| cost of K sites | trainings at simulated sites, and CPU seconds, of K sites over those of one |
| shared | what the rehearsal chose, against the rule |
| nothing | no residual, against the rule |

Gains are in points, paired, means of a seed's sites, with their standard error over seeds: of the
residual by itself, and of the average of it and the public head by 30 (n = 150) or 100 validation
samples. Accuracies are of test samples in the site's true mix.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks import joining_world
from benchmarks.joining_methods import histogram_noise, recipe_of
from benchmarks.joining_world import DELTA, Setting, World, draw, samples_of
from benchmarks.kept import kept
from dprbft.methods.joined.budget import histogram_event
from dprbft.methods.joined.tuning import Rehearsal, Rehearsed, rehearsed
from panas.data.facts import infer
from panas.data.sources import Reading, read
from panas.features.map import fit_map
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.noise import ReproducibleNoise
from panas.runtime.seeds import one_thread, stream
from panas.training.linear.averaging import average, log_prior, worth_of
from panas.training.linear.residual import fit_residual, zero_residual
from panas.training.linear.ridge import fit_public_head, logits
from panas.training.linear.rules import HISTOGRAM, residual_schedule
from panas.tuning.objective import SimulatedSite
from panas.tuning.trial import TuningConfig

DATASET, LABELLED, ALPHA, CLIENTS = "fashion-mnist", 1000, 0.3, 10
CONFIG = TuningConfig(trials=8, initial=4)  # of the preset `sound`
SITES = (1, 10, 100)
Settings = tuple[float, int]  # learning rate over the rule's, and epochs


def one(root: str, task: tuple[int, int, float]) -> dict[str, Any]:
    """One federation: what its rehearsal costs, and what it brings."""
    seed, n, epsilon = task
    with one_thread():
        world = draw(Setting(DATASET, n, LABELLED, epsilon, CLIENTS, ALPHA), root, seed)
        result, costs = together(rehearsal(root, seed, epsilon))
        rule: Settings = (1.0, recipe_of(n, epsilon, 0.0).epochs)
        chosen: dict[str, Settings | None] = {"rule": rule, "nothing": None, "shared": rule}
        if result.choice != "rule":
            factor = result.best.learning_rate / rehearsal(root, seed, epsilon).recipe.learning_rate
            tuned = (factor, result.best.epochs or 1)
            chosen["shared"] = tuned if result.choice == "tuned" else None
        head = fit_public_head(world.public, world.classes)
        sites = [
            {name: accuracies(world, at, head, settings) for name, settings in chosen.items()}
            for at in range(CLIENTS)
        ]
        return {"n": n, "epsilon": epsilon, "choice": result.choice, "cost": costs, "sites": sites}


def rehearsal(root: str, seed: int, epsilon: float) -> Rehearsal:
    """Of the federation that `draw` gives."""
    pool = samples_of(DATASET, root)
    known = pool.take(stream(seed, "joining").permutation(len(pool))[: joining_world.PUBLIC])
    return Rehearsal(
        public=known.take(range(LABELLED)),
        labelled=True,
        phi=fit_map(infer(read(DATASET, Reading(data_root=root))), known),
        budget=Budget(epsilon, DELTA),
        histogram_share=HISTOGRAM,
        release_share=0.0,
        config=CONFIG,
        seed=seed,
    )


def together(wanted: Rehearsal) -> tuple[Rehearsed, list[dict[str, float]]]:
    """The rehearsal of all sites, one after the other; its cost so far at each of `SITES`."""
    train, trainings, costs = SimulatedSite.__call__, [0], list[dict[str, float]]()

    def counted(site: SimulatedSite, settings: Any) -> float:
        trainings[0] += 1
        return train(site, settings)

    with tempfile.TemporaryDirectory() as folder, patch.object(SimulatedSite, "__call__", counted):
        begin = time.process_time()
        for site in range(max(SITES)):
            log = Path(folder) / f"{site}.jsonl"
            result = rehearsed(replace(wanted), Path(folder), log, 1)
            if site + 1 in SITES:
                seconds = time.process_time() - begin
                costs.append({"sites": site + 1, "trainings": trainings[0], "seconds": seconds})
    return result, costs


def accuracies(world: World, at: int, head: Tensor, settings: Settings | None) -> list[float]:
    """Of a site's residual, and of the average of it and the public head; None trains nothing."""
    site, test = world.sites[at], world.test
    n, prior = len(site.train.y), log_prior(site.histogram)
    residual = zero_residual(site.train.z.shape[1], world.classes)
    if settings is not None:
        factor, epochs = settings
        recipe, budget = recipe_of(n, world.epsilon, 0.0), Budget(world.epsilon, DELTA)
        schedule = residual_schedule(n, recipe, histogram_event(budget, HISTOGRAM))
        fit_residual(
            residual,
            site.train,
            logits(head, site.train.z) + prior,
            plan=calibrate(
                budget, schedule, batch_size=recipe.batch_size, clip=recipe.clip, epochs=epochs
            ),
            learning_rate=factor * recipe.learning_rate,
            noise=ReproducibleNoise(stream(world.seed, "real", at, 0)),
        )

    def answers(z: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            said = {"residual": residual(z) + logits(head, z) + prior}
        return {"public": logits(head, z)} | (said if settings else {})

    named = ["residual"] if settings else []
    worth = worth_of(site.histogram, histogram_noise(world))
    held = site.validation
    weighed = average(answers(held.z), held.y, prior, named, worth=worth)
    said = answers(test.z)
    by_itself = said.get("residual", said["public"] + prior)
    both = weighed.probabilities(said, prior)
    return [in_mix(world, site.mix, scores) for scores in (by_itself, both)]


def in_mix(world: World, mix: Tensor, values: Tensor) -> float:
    """Accuracy on test samples, under a site's mix."""
    y, classes = world.test.y, world.classes
    right = torch.zeros(classes, dtype=torch.float64)
    right.index_add_(0, y, (values.argmax(1) == y).double())
    return float((right / torch.bincount(y, minlength=classes).clamp(min=1)) @ mix.double())


def main() -> None:
    """Run what the folder lacks, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", required=True, help="folder of FashionMNIST")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "panas-rehearse")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    seeds = range(a.first_seed, a.first_seed + a.seeds)
    tasks = [(s, n, e) for s in seeds for n in (150, 500) for e in (3.0, 8.0)]
    runs = kept(a.work, "rehearsals", {}, one, a.data_root, tasks, workers=a.workers)
    if a.json:
        print(json.dumps({"found": summary(runs), "runs": runs}))
        return
    for name, (mean, error) in summary(runs).items():
        print(f"{name:52}{mean:10.3f} +- {error:.3f}")


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Each line's mean over seeds, with its standard error."""
    result: dict[str, list[float]] = {}
    for run in runs:
        first, *rest = run["cost"]
        result.setdefault("CPU seconds of one site", []).append(first["seconds"])
        for c in rest:
            for what in ("trainings", "seconds"):
                name = f"cost of {c['sites']} sites, {what}"
                result.setdefault(name, []).append(c[what] / first[what])
        for name in ("shared", "nothing"):
            for k, of in enumerate(("residual", "average")):
                gains = [100 * (site[name][k] - site["rule"][k]) for site in run["sites"]]
                line = f"n = {run['n']}, epsilon {run['epsilon']:g}: {of}, {name} over rule"
                result.setdefault(line, []).append(statistics.fmean(gains))
    return {name: _mean(values) for name, values in result.items()}


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.fmean(values), error


if __name__ == "__main__":
    main()
