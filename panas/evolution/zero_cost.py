"""Scores of an architecture without any data: how promising a genome is, judged on noise alone.

| proxy | what it measures | source |
|---|---|---|
| `learnability` | how well a few steps tell smooth Gaussian images apart | ours |
| `synaptic_flow` | log sum of w dR/dw at w = abs(w), R = the sum of outputs | Tanaka et al. 2020 |
| `activation_agreement` | log determinant of the kernel of ReLU patterns | Mellor et al. 2021 |

All inputs are drawn from the given generator; no sample of anybody's is read, so that a score
costs epsilon 0. Each network is fresh, with its spec's norm, which works on noise as it
does on images. `score` is the one that a search uses: of the three it ranks genomes most like
their accuracy does (`python -m benchmarks.data_free`). It alone takes a few optimiser steps, on
noise.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, NetworkSpec, SeparableBlock
from panas.runtime.seeds import torch_generator

Proxy = Callable[[Genome, NetworkSpec, np.random.Generator], float]

STEPS, BATCH, RATE = 30, 32, 0.005  # of `learnability`: optimiser steps, samples a step, Adam's
CLASSES = 10  # of the noise task, at most: more would need more steps
LAST = 5  # steps whose loss counts
REPEATS = 2  # tasks and networks that are averaged
SMOOTH = 4  # side of the noise that is stretched to a class's image


def learnability(genome: Genome, spec: NetworkSpec, rng: np.random.Generator) -> float:
    """How surely a fresh network names classes of noise after a few steps; in (0, 1].

    A class is an image: a few Gaussian numbers, stretched smoothly to the images' size, since
    structure of pixel size would punish every pool. Its samples are that image plus as much white
    noise. The score is exp(-cross-entropy), averaged over the last steps, each on samples not seen
    before: the geometric mean of the right class's probability.

    Args:
        genome: the architecture.
        spec: shape, width, norm and head of the networks.
        rng: source of weights and noise.

    Privacy: reads no data.

    """
    generator = torch_generator(rng)
    losses = [_losses(genome, spec, generator) for _ in range(REPEATS)]
    return float(np.exp(-np.mean(losses)))


def _losses(genome: Genome, spec: NetworkSpec, generator: torch.Generator) -> list[float]:
    """Cross-entropies of the last steps."""
    bottom, head = spec.bottom(genome, generator), spec.head(generator)
    channels, height, width = spec.shape
    classes = min(CLASSES, spec.classes)
    coarse = torch.randn(classes, channels, SMOOTH, SMOOTH, generator=generator)
    images = F.interpolate(coarse, size=(height, width), mode="bilinear")
    images = images / images.square().mean().sqrt()
    y = torch.arange(BATCH) % classes
    parameters = list(bottom.parameters())
    if spec.head_moves:
        parameters += head.parameters()
    optimiser = torch.optim.Adam(parameters, lr=RATE)
    losses = []
    for _ in range(STEPS):
        x = images[y] + torch.randn(BATCH, channels, height, width, generator=generator)
        loss = F.cross_entropy(head(bottom(x)), y)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses[-LAST:]


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
    found: list[Tensor] = []
    for block in bottom.blocks:
        if isinstance(block, SeparableBlock):
            before = block.norm(block.pointwise(block.depthwise(x)))
            found.append((before > 0).flatten(1).float().detach())
        x = block(x).detach()
    return found


PROXIES: Mapping[str, Proxy] = {
    "learnability": learnability,
    "synaptic flow": synaptic_flow,
    "activation agreement": activation_agreement,
}
"""All of them, by name, to compare; larger is better."""


def score(genome: Genome, spec: NetworkSpec, rng: np.random.Generator) -> float:
    """The score by which a data-free search chooses, in [0, 1]; larger is better.

    A function of its arguments: the same in every process, whatever its number of threads (sums
    over threads differ in their last bits, which training would magnify). Privacy: reads no data,
    epsilon 0.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return learnability(genome, spec, rng)
    finally:
        torch.set_num_threads(threads)
