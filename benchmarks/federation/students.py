"""What searching students costs for one site and for many, and what it brings.

    python -m benchmarks.students --data-root DIR [--seeds 5] [--sites 1,10,100] [--json]

Sites of 150 Fashion-MNIST samples at half size, classes by a Dirichlet draw (.3); the teacher is a
ridge head of exact moments, which stands for the shared head. One search, with all classes alike,
serves all sites: each takes what agrees best in its own frequencies ("together"). "Apart" searches
for every site by itself, in its own frequencies. Cost is in sample-passes, over those of one site.
Fitness is agreement on held-out public samples; "agreement" is the same on samples that nothing
was chosen by, weighed by the site's true mix. Gains are paired by seed.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.joining_world import samples_of
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.data.facts import infer
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.evolution.agreement import AgreementFitness, chosen_for
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionConfig
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.features.map import fit_map
from panas.privacy.release.estimate import Rows
from panas.runtime.seeds import stream
from panas.training.distillation import SoftSamples
from panas.training.linear.public_head import fit_public_head
from panas.training.linear.ridge import logits
from panas.training.sgd import SHORT

FIRST_SEED, SAMPLES = 1000, 150
TAUGHT, HELD_OUT, UNSEEN, HEAD = 1000, 400, 2000, 1500
EVOLUTION = EvolutionConfig(population=6, generations=3)
APART = 5  # sites that are searched for apart, too


def half(samples: Samples) -> Samples:
    """At half the size, as bytes."""
    x = F.avg_pool2d(samples.x.float(), 2).round().to(torch.uint8)
    return Samples(x, samples.y, samples.classes)


def one(root: str, seed: int, sites: Sequence[int]) -> dict[str, Any]:
    """One seed: cost by number of sites, and what both ways come to."""
    pool, rng = samples_of("fashion-mnist", root), stream(seed, "students")
    order = rng.permutation(len(pool))[: TAUGHT + HELD_OUT + UNSEEN + HEAD]
    parts = np.split(order, np.cumsum([TAUGHT, HELD_OUT, UNSEEN]))
    taught, held_out, unseen, known = (half(pool.take(part)) for part in parts)
    facts = replace(infer(read("fashion-mnist", Reading(data_root=root))), shape=taught.shape)
    phi = fit_map(facts, taught)
    head = fit_public_head(Rows(phi(known.inputs()), known.y), known.classes)

    def soft(samples: Samples) -> SoftSamples:
        return SoftSamples(samples, logits(head, phi(samples.inputs())).softmax(1))

    spec = NetworkSpec(shape=taught.shape, classes=taught.classes, width=64)
    space = SearchSpace(shape=taught.shape, max_blocks=6, widths=(16, 32, 64))
    mixes = [rng.dirichlet(np.full(taught.classes, 0.3)) for _ in range(max(sites))]
    with tempfile.TemporaryDirectory() as folder:
        alike = AgreementFitness(
            taught=soft(taught),
            held_out=soft(held_out),
            histogram=torch.ones(taught.classes),
            spec=spec,
            optimizer=SHORT,
            seed=seed,
            client=0,
            augment=True,
            cache=Path(folder),
        )
        judge = replace(alike, held_out=soft(unseen), cache=None)

        def search(fitness: AgreementFitness) -> Any:
            problem = SearchProblem(space, fitness, None, prior_of(spec.shape))
            return evolve(problem, config=EVOLUTION, rng=stream(seed, "search"))

        def of(client: int) -> AgreementFitness:
            counts = torch.from_numpy(SAMPLES * mixes[client]).float()
            return replace(alike, histogram=counts, client=client)

        passes, picked = 0, dict[int, Genome]()
        cost = {}
        for client in range(max(sites)):
            found = search(replace(alike, client=client))
            passes += found.passes
            picked[client] = chosen_for(found, of(client)).best
            if client + 1 in sites:
                cost[client + 1] = passes
        gains, random_gains = [], []
        for client in range(min(APART, max(sites))):
            lone = search(replace(of(client), cache=Path(folder) / "apart"))
            mine = replace(judge, histogram=of(client).histogram)
            chance = random_genome(space, stream(seed, "chance", client))
            scores = [mine(g) for g in (picked[client], lone.best, chance)]
            gains.append(scores[0] - scores[1])
            random_gains.append(scores[0] - scores[2])
    return {
        "cost": {str(k): passes / cost[min(sites)] for k, passes in cost.items()},
        "over_apart": statistics.fmean(gains),
        "over_random": statistics.fmean(random_gains),
        "genomes": len(set(picked.values())),
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", required=True, help="folder of FashionMNIST")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sites", default="1,10,100")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    sites = [int(k) for k in a.sites.split(",")]
    runs = [one(a.data_root, FIRST_SEED + k, sites) for k in range(a.seeds)]
    found: dict[str, Any] = {
        f"cost of {k} sites": _mean([r["cost"][str(k)] for r in runs]) for k in sites
    }
    found |= {
        name: _mean([r[name] for r in runs]) for name in ("over_apart", "over_random", "genomes")
    }
    if a.json:
        print(json.dumps({"found": found, "runs": runs}))
        return
    for name, (mean, error) in found.items():
        print(f"{name:20} {mean:7.3f} +- {error:.3f}")


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.fmean(values), error


if __name__ == "__main__":
    main()
