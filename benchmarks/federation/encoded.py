"""Vectors of a named data set's pictures by a frozen encoder, as a file that other benchmarks read.

    python -m benchmarks.encoded --data-root DIR --dataset cifar10 --encoder FILE --out FILE.npz
        [--samples 14000] [--seed 0]

`benchmarks.joining --vectors FILE.npz` and `benchmarks.vectors --dataset FILE.npz` take it.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from panas.data.facts import fit, infer
from panas.data.sources import Reading, read
from panas.features.encoders.files import load_encoder
from panas.runtime.seeds import stream

TOLD = 1000  # pictures between two lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Encode samples that a seed draws, and write vectors x and labels y."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", help="folder of the data set")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=14_000)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args(arguments)
    raw, encoder = read(a.dataset, Reading(data_root=a.data_root)), load_encoder(a.encoder)
    samples = fit(raw, infer(raw))
    order = stream(a.seed, "benchmark", "encoded").permutation(len(samples))
    samples, began, parts = samples.take(order[: a.samples]), time.perf_counter(), []
    for at in np.array_split(np.arange(len(samples)), max(1, len(samples) // TOLD)):
        parts.append(encoder.of(samples.take(at)).numpy())
        done, seconds = sum(map(len, parts)), time.perf_counter() - began
        sys.stderr.write(f"{done} of {len(samples)}, {1000 * seconds / done:.1f} ms a picture\n")
    np.savez(a.out, x=np.concatenate(parts), y=samples.y.numpy())


if __name__ == "__main__":
    main()
