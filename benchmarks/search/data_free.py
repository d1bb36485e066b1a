"""Which data-free proxy ranks architectures most like their accuracy does?

    python -m benchmarks.data_free [--dataset digits --data-root DIR] [--genomes 24] [--json]

| proxy | what it measures | source |
|---|---|---|
| `learnability` | how well a few steps tell smooth Gaussian images apart | `panas`' own |
| `synaptic_flow` | log sum of w dR/dw at w = abs(w), R = the sum of outputs | Tanaka et al. 2020 |
| `activation_agreement` | log determinant of the kernel of ReLU patterns | Mellor et al. 2021 |

Random genomes of the default space are trained as a search trains them, on the public part of a
data set, and scored on held-out public samples; each proxy scores them without any data. What is
printed is Spearman's rank correlation between the two, beside that of two facts that cost nothing
either: the number of parameters and of multiply-adds.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import spearmanr
from torch import Tensor

from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, NetworkSpec, SeparableBlock
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.data.load import DataSettings, load
from panas.data.samples import Samples
from panas.data.splits import split, stratified
from panas.evolution.fitness import TrainingFitness, score
from panas.runtime.seeds import stream, torch_generator
from panas.training.sgd import OptimizerConfig

Proxy = Callable[[Genome, NetworkSpec, np.random.Generator], float]

HOW = OptimizerConfig(
    learning_rate=0.005, optimiser="adam", decay="cosine", batch_size=32, epochs=8
)
CPU = torch.device("cpu")


def synaptic_flow(genome: Genome, spec: NetworkSpec, rng: np.random.Generator) -> float:
    """Log of the synaptic flow: products of absolute weights along all paths, without norms.

    A custom block runs as it is, norms included; -inf if there is no positive flow then.
    """
    bottom = spec.bottom(genome, torch_generator(rng)).eval()
    with torch.no_grad():
        for p in bottom.parameters():
            p.abs_()
    x = torch.ones(1, *spec.shape)
    for block in bottom.blocks:
        if isinstance(block, SeparableBlock):
            x = block.pointwise(block.depthwise(x)) + block.shortcut(x)
        else:
            x = block(x)
    bottom.adapt(x.mean(dim=(2, 3))).sum().backward()
    flows = [(p * p.grad).sum() for p in bottom.parameters() if p.grad is not None]
    flow = torch.stack(flows).detach().double().sum()
    return float(flow.log()) if flow > 0 else -math.inf


def activation_agreement(genome: Genome, spec: NetworkSpec, rng: np.random.Generator) -> float:
    """Log determinant of K, where K_ij counts the ReLUs on which noise images i and j agree.

    ReLUs within a custom block do not count, so that genomes with it compare badly.
    """
    generator = torch_generator(rng)
    bottom = spec.bottom(genome, generator).eval()
    x = torch.randn(32, *spec.shape, generator=generator)
    K = sum((p @ p.T + (1 - p) @ (1 - p).T for p in _patterns(bottom, x)), torch.zeros(32, 32))
    return float(torch.linalg.slogdet(K.double()).logabsdet)


def _patterns(bottom: Bottom, x: Float[Tensor, "n c h w"]) -> list[Tensor]:
    """For each block, which of its ReLUs are on, (n, units) of 0 and 1."""
    values: list[Tensor] = []
    for block in bottom.blocks:
        if isinstance(block, SeparableBlock):
            before = block.norm(block.pointwise(block.depthwise(x)))
            values.append((before > 0).flatten(1).float().detach())
        x = block(x).detach()
    return values


PROXIES: Mapping[str, Proxy] = {
    "learnability": score,
    "synaptic flow": synaptic_flow,
    "activation agreement": activation_agreement,
}
"""All of them, by name, to compare; larger is better."""


def public_parts(dataset: str, root: str | None, samples: int) -> tuple[Samples, Samples]:
    """Samples to train on, so many, and others to score on."""
    source = load(
        DataSettings(
            dataset=dataset,
            data_root=root,
            public_fraction=0.5,
            public_limit=3 * samples,
            limit=100,
        ),
        stream(0, "data"),
    )
    public = source.public
    s = split(public.y, search=0.0, validation=0.4, test=0.0, rng=stream(0, "split"))
    train = public.take(s.train)
    few = stratified(train.y, min(samples, len(train)), stream(0, "few"))
    return train.take(few), public.take(s.validation)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-root")
    parser.add_argument("--genomes", type=int, default=24)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=2, help="trainings of each genome")
    parser.add_argument("--start", type=int, default=0, help="seed of the genomes")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    train, held = public_parts(a.dataset, a.data_root, a.samples)
    spec = NetworkSpec(shape=train.shape, classes=train.classes, width=64)
    space = SearchSpace(shape=train.shape, min_blocks=3, max_blocks=6, widths=(16, 32, 64))
    rng, genomes = stream(a.start, "genomes"), list[Genome]()
    while len(genomes) < a.genomes:
        genome = random_genome(space, rng)
        genomes += [genome] * (genome not in genomes)
    scores: dict[str, list[float]] = {name: [] for name in (*PROXIES, "parameters", "macs")}
    reached = []
    for genome in genomes:
        fitness = (TrainingFitness(train, held, spec, HOW, a.start, k) for k in range(a.repeats))
        reached.append(statistics.fmean(f(genome) for f in fitness))
        for name, proxy in PROXIES.items():
            scores[name].append(proxy(genome, spec, stream(a.start, name, str(genome))))
        size = cost(genome, spec)
        scores["parameters"].append(float(size.parameters))
        scores["macs"].append(float(size.macs))
    results = {name: float(spearmanr(reached, values).statistic) for name, values in scores.items()}
    if a.json:
        print(json.dumps({a.dataset: results, "accuracies": reached}))
        return
    print(f"{a.dataset}: {a.genomes} genomes, accuracy {min(reached):.3f} to {max(reached):.3f}")
    for name, rho in results.items():
        print(f"  {name:22s} Spearman {rho:+.3f}")


if __name__ == "__main__":
    main()
