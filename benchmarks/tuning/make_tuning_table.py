"""Train DP-SGD at every setting of a grid, and keep how well each did: a table to tune against.

    python -m benchmarks.make_tuning_table [--out FILE] [--seeds 1] [--again 0.2]

| axis | levels |
|---|---|
| epsilon | budget of the whole training, at delta 1e-5 |
| learning_rate | eta |
| clip | C |
| batch | B, expected samples of a Poisson batch |
| epochs | passes over the data |
| noise_factor | sigma over the least that the budget affords at that batch size and length |
| seed | initial weights, batches and noise |

Every training is real, on digits, and starts from random weights: no warm start on public samples,
after which most settings do about as well. One split for all seeds: 1000 samples train, 300
validate, 497 test. The paper's fixed configurations (Table VI) train for as many steps as the
budget affords them at their noise; none at all where it affords none.

The first seed trains everything. Others, if asked for, train what decides who finds the best: of
the settings at the least noise, the share `--again` that did best with the first seed. What they
left out is -1.

The data are public, so noise comes from the seed, and the table repeats to the last count on the
same machine. It is written after every twentieth training and goes on where it stopped. It holds
integers and one line of JSON, `about`, and loads without pickle.
"""

import argparse
import itertools
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.affordable_steps import affordable_steps
from benchmarks.fixed_configurations import FIXED_CONFIGURATIONS
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.load import DataSettings, load
from panas.data.samples import Samples
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import ReproducibleNoise, poisson_batches
from panas.privacy.plan import Plan, TrainingSchedule
from panas.runtime.seeds import stream, torch_generator
from panas.training.evaluate import accuracy

GENOME = "c16k3-max-c32k3"
WIDTH = 64
DELTA = 1e-5
TRAIN, VALIDATION = 1000, 300
AXES: dict[str, tuple[float, ...]] = {
    "epsilon": (1.0, 3.0, 8.0),
    "learning_rate": (0.03, 0.08, 0.2, 0.5, 1.25, 3.0, 8.0),
    "clip": (0.1, 0.4, 1.6, 6.4),
    "batch": (64, 192, 576),
    "epochs": (4, 12, 36),
    "noise_factor": (1.0, 2.0),
}


def digits() -> tuple[Samples, Samples, Samples]:
    """Training, validation and test samples, the same for everybody."""
    pool = load(
        DataSettings(dataset="digits", public_fraction=0.0), stream(0, "tuning table")
    ).private
    order = stream(0, "tuning table", "split").permutation(len(pool))
    ends = (TRAIN, TRAIN + VALIDATION)
    a, b, c = (pool.take(part) for part in np.split(order, ends))
    return a, b, c


def trained(
    samples: Samples,
    spec: NetworkSpec,
    genome: Genome,
    plan: Plan,
    steps: int,
    rate: float,
    seed: int,
    key: str,
) -> tuple[Bottom, Head]:
    """The network after `steps` steps of a plan's DP-SGD by learning rate `rate`.

    One seed starts all its settings from the same weights; `key` names the noise.
    """
    generator = torch_generator(stream(seed, "initial"))
    bottom, head = spec.bottom(genome, generator), spec.head(generator)
    head.requires_grad_(spec.head_moves)
    model = torch.nn.Sequential(bottom, head).train()
    noise = ReproducibleNoise(stream(seed, "noise", key))
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    gradient = PrivateGradient(model)
    for batch in poisson_batches(plan.samples, plan.rate, steps, noise):
        gradient.step(samples.inputs(batch), samples.y[batch], plan.clip_and_noise, noise)
        optimiser.step()
    return bottom, head


def count(bottom: Bottom, head: Head, samples: Samples) -> int:
    """How many of some samples a network gets right."""
    return round(accuracy(bottom, head, samples) * len(samples))


class Table:
    """The counts on disk; -1 where nothing was trained yet."""

    def __init__(self, path: Path, seeds: int) -> None:
        self.path = path
        grid = (*(len(levels) for levels in AXES.values()), seeds)
        fixed = (len(AXES["epsilon"]), len(FIXED_CONFIGURATIONS), seeds)
        self.arrays = {
            "validation": np.full(grid, -1, np.int16),
            "test": np.full(grid, -1, np.int16),
            "fixed_validation": np.full(fixed, -1, np.int16),
            "fixed_test": np.full(fixed, -1, np.int16),
            "fixed_steps": np.full(fixed[:2], -1, np.int32),
            "least_noise": np.full([len(AXES[k]) for k in ("epsilon", "batch", "epochs")], np.nan),
        }
        if path.exists():
            with np.load(path, allow_pickle=False) as old:
                for name, array in self.arrays.items():
                    if name not in old:
                        continue
                    some = tuple(
                        slice(0, min(k)) for k in zip(array.shape, old[name].shape, strict=True)
                    )
                    array[some] = old[name][some]

    def save(self, about: dict[str, Any]) -> None:
        """Write all, so that a death leaves the old table or the new one."""
        part = self.path.with_suffix(".part.npz")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {"about": np.array(json.dumps(about)), **self.arrays}
        np.savez_compressed(part, **arrays)
        part.replace(self.path)


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/tables/tuning-digits.npz"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--again", type=float, default=0.2)
    a = parser.parse_args()
    torch.set_num_threads(1)
    train, validation, test = digits()
    genome = Genome.parse(GENOME)
    spec = NetworkSpec(shape=train.shape, classes=10, width=WIDTH)
    table = Table(a.out, a.seeds)
    about = {
        "what": "right answers after DP-SGD on digits from random weights, one entry a training",
        "genome": GENOME,
        "width": WIDTH,
        "delta": DELTA,
        "axes": AXES,
        "seeds": a.seeds,
        "again": a.again,
        "configurations": {k: v._asdict() for k, v in FIXED_CONFIGURATIONS.items()},
        "samples": {"train": len(train), "validation": len(validation), "test": len(test)},
        "versions": {name: version(name) for name in ("panas", "torch", "numpy")},
    }

    parts = {"validation": validation, "test": test}
    least = table.arrays["least_noise"]
    for at in np.ndindex(least.shape):
        if np.isnan(least[at]):
            epsilon, batch, epochs = (
                AXES[k][i] for k, i in zip(("epsilon", "batch", "epochs"), at, strict=True)
            )
            least[at] = calibrate(
                Budget(epsilon, DELTA),
                TrainingSchedule(samples=len(train), epochs=int(epochs)),
                batch_size=int(batch),
                clip=1.0,
            ).noise_multiplier

    def wanted(seed: int) -> list[tuple[int, ...]]:
        """Which settings a seed trains."""
        settings = [*itertools.product(*(range(len(levels)) for levels in AXES.values()))]
        if not seed:
            return settings
        right = np.sum([table.arrays[part][..., 0].astype(int) for part in parts], axis=0)
        least = right[..., 0]
        enough = np.quantile(least, 1 - a.again, axis=(1, 2, 3, 4), keepdims=True)
        chosen = least >= enough
        return [at for at in settings if at[-1] == 0 and chosen[at[:-1]]]

    done = 0
    for seed in range(a.seeds):
        for e, (i, row) in itertools.product(
            range(len(AXES["epsilon"])), enumerate(FIXED_CONFIGURATIONS.items())
        ):
            name, (rate, sigma, clip, ratio) = row
            if table.arrays["fixed_test"][e, i, seed] >= 0:
                continue
            epsilon = AXES["epsilon"][e]
            plan = Plan(
                samples=len(train),
                batch_size=round(ratio * len(train)),
                clip=clip,
                noise_multiplier=sigma,
                epochs=1,
                rounds=1,
            )
            steps = affordable_steps(Budget(epsilon, DELTA), plan.rate, sigma)
            networks = trained(train, spec, genome, plan, steps, rate, seed, f"{name} {epsilon:g}")
            table.arrays["fixed_steps"][e, i] = steps
            for part, samples in parts.items():
                table.arrays[f"fixed_{part}"][e, i, seed] = count(*networks, samples)
        table.save(about)
        for at in wanted(seed):
            if table.arrays["test"][(*at, seed)] >= 0:
                continue
            epsilon, rate, clip, batch, epochs, factor = (
                levels[k] for levels, k in zip(AXES.values(), at, strict=True)
            )
            plan = Plan(
                samples=len(train),
                batch_size=int(batch),
                clip=clip,
                noise_multiplier=factor * float(least[at[0], at[3], at[4]]),
                epochs=int(epochs),
                rounds=1,
            )
            networks = trained(train, spec, genome, plan, plan.steps, rate, seed, str(at))
            for part, samples in parts.items():
                table.arrays[part][(*at, seed)] = count(*networks, samples)
            done += 1
            if done % 20 == 0:
                table.save(about)
        table.save(about)


if __name__ == "__main__":
    main()
