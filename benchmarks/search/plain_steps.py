"""What a training step without privacy costs: plain torch in both layouts, and panas.

    python -m benchmarks.plain_steps [--threads 1] [--batch 32] [--repeats 30] [--json]

Networks of the search's space on inputs of 28 x 28; forward, backward, Adam. All ways take turns in
one process; reported are medians in milliseconds, and how many times as long plain torch takes.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import nn
from torch.nn import functional as F

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.runtime.memory import keep_freed_memory
from panas.runtime.seeds import stream
from panas.training.channels_last import LAST, channels_last
from panas.training.sgd import OptimizerConfig, make_optimizer

GENOMES = ("c16k3-c32k3-avg-c64k5", "c16k3-max-c32k3-c64k5", "c64k3-avg-c64k3", "c32k3-max-c64k3")
WAYS = ("channels first", "channels last", "panas")


def stepper(genome: str, way: str, batch: int) -> Callable[[], None]:
    """A step of a network that this way trains."""
    spec = NetworkSpec(shape=(1, 28, 28), classes=10, width=64)
    bottom, head = spec.network(Genome.parse(genome), stream(0, "network"), "cpu")
    model = nn.Sequential(bottom, head)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, *spec.shape, generator=generator)
    y = torch.randint(10, (batch,), generator=generator)
    parameters = list(model.parameters())
    held = ExitStack()  # by the step, for as long as it is there
    if way == "panas":
        held.enter_context(channels_last(model, bottom.blocks))
        optimizer = make_optimizer(parameters, OptimizerConfig(optimiser="adam"))
    else:
        layout = LAST if way == "channels last" else torch.contiguous_format
        model, x = model.to(memory_format=layout), x.contiguous(memory_format=layout)
        optimizer = torch.optim.Adam(parameters)

    def step(held: ExitStack = held) -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x.clone(memory_format=LAST) if way == "panas" else x), y).backward()
        optimizer.step()

    return step


def medians(genome: str, batch: int, repeats: int) -> dict[str, float]:
    """Milliseconds of a step in each way."""
    steps = {way: stepper(genome, way, batch) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(repeats + 3):
        for way, step in steps.items():
            began = time.perf_counter()
            step()
            if turn >= 3:  # the first ones come up
                times[way].append(1e3 * (time.perf_counter() - began))
    return {way: statistics.median(taken) for way, taken in times.items()}


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    keep_freed_memory()
    found = {genome: medians(genome, a.batch, a.repeats) for genome in GENOMES}
    if a.json:
        print(json.dumps(found))
        return
    for genome, ms in found.items():
        rest = ", ".join(f"{way} {ms[way]:.1f} ({ms[way] / ms['panas']:.2f}x)" for way in WAYS[:2])
        print(f"{genome}: panas {ms['panas']:.1f} ms, {rest}")


if __name__ == "__main__":
    main()
