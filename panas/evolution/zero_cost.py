"""A score of an architecture without any data: how promising a genome is, judged on noise alone.

All inputs are drawn from the given generator; no sample is read, so that a score costs epsilon 0.
Ours; it ranks genomes more like their accuracy than the proxies of `benchmarks.data_free` do.
"""

import numpy as np
import torch
from torch.nn import functional as F

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.runtime.seeds import one_thread, torch_generator

STEPS, BATCH, RATE = 30, 32, 0.005  # optimiser steps, samples a step, Adam's learning rate
CLASSES = 10  # of the noise task, at most: more would need more steps
LAST = 5  # steps whose loss counts
REPEATS = 2  # tasks and networks that are averaged
SMOOTH = 4  # side of the noise that is stretched to a class's image


def score(genome: Genome, spec: NetworkSpec, rng: np.random.Generator) -> float:
    """How surely a fresh network names classes of noise after a few steps; in (0, 1].

    A class is an image: a few Gaussian numbers, stretched smoothly to the images' size, since
    structure of pixel size would punish every pool. Its samples are that image plus as much white
    noise. The score is exp(-cross-entropy), averaged over the last steps, each on samples not seen
    before: the geometric mean of the right class's probability. It is the same in every process.

    Privacy: reads no data, epsilon 0.
    """
    generator = torch_generator(rng)
    with one_thread():  # sums over threads differ in their last bits, which training would magnify
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
    parameters = [*bottom.parameters(), *(head.parameters() if spec.head_moves else ())]
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
