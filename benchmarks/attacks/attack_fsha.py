"""How well does FSHA reconstruct, against split learning with and without client DP-SGD?

    python -m benchmarks.attack_fsha --data-root DIR [--iterations N] [--width W] [--epsilon 8]
        [--work DIR] [--device cpu] [--json]

Fashion-MNIST, 28 x 28: 60,000 samples are the client's, 10,000 are the hijacker's. The first row is
the undefended client; the second one runs DP-SGD on its network. Scored are 500 of the client's
samples, on [-1, 1], where the mean public image has an error of about 0.35. With --work both
attacks can be killed and taken up again: they keep their state there.
"""

import argparse
import json
import math
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from attacks.hijacking.fsha import FSHAConfig
from attacks.hijacking.simulation import Hijacked, Trial
from panas.data.load import DataSettings, Source, load
from panas.runtime.errors import PanasError
from panas.runtime.seeds import stream

PUBLIC = 10_000
"""Samples of the hijacker."""


def fashion(root: Path, seed: int) -> Source:
    """The client's samples and the hijacker's, disjoint."""
    return load(
        DataSettings(
            dataset="fashion-mnist", data_root=str(root), public_fraction=0.5, public_limit=PUBLIC
        ),
        stream(seed, "fsha data"),
    )


def row(name: str, optimizer: FSHAConfig, found: Hijacked) -> dict[str, Any]:
    """One attack as plain JSON."""
    finite = math.isfinite(found.epsilon)
    return {
        "client": name,
        **found.score.to_json(),
        "mean_image_mse": round(found.mean_image_mse, 6),
        "autoencoder_mse": round(found.autoencoder_mse, 6),
        "epsilon": round(found.epsilon, 4) if finite else None,
        "noise_multiplier": found.noise_multiplier,
        "iterations": optimizer.iterations,
        "seconds": round(found.seconds, 1),
        "cpu_seconds": round(found.cpu_seconds, 1),
        "curve": found.curve,
        "settings": {k: v for k, v in asdict(optimizer).items() if v != math.inf},
    }


def show(found: dict[str, Any]) -> None:
    """One attack as a line of text."""
    low, high = found["r2_interval"]
    epsilon = "infinity" if found["epsilon"] is None else f"{found['epsilon']:g}"
    print(
        f"{found['client']:12s} epsilon of the weights {epsilon:>8s}  MSE {found['mse']:.4f} "
        f"(mean image {found['mean_image_mse']:.4f}, autoencoder {found['autoencoder_mse']:.4f})  "
        f"R^2 {found['r2']:.3f} [{low:.3f}, {high:.3f}]  {found['iterations']} iterations, "
        f"{found['cpu_seconds']:.0f} s of CPU, {found['seconds']:.0f} s in all"
    )


def main() -> None:
    """Parse, run, print."""
    usual = FSHAConfig()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=usual.iterations)
    parser.add_argument("--width", type=float, default=usual.width)
    parser.add_argument("--epsilon", type=float, default=8.0, help="of the defended client")
    parser.add_argument("--clients", default="undefended,dp-sgd")
    parser.add_argument("--work", type=Path, help="folder that keeps unfinished attacks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    source = fashion(a.data_root, a.seed)
    undefended = replace(usual, iterations=a.iterations, width=a.width)
    clients = {"undefended": undefended, "dp-sgd": replace(undefended, epsilon=a.epsilon)}
    rows = []
    for name in a.clients.split(","):

        def report(iteration: int, mse: float, name: str = name) -> None:
            done = f"{name}: iteration {iteration} of {a.iterations}, MSE {mse:.4f}"
            print(done, file=sys.stderr, flush=True)

        rng, state = stream(a.seed, "fsha"), a.work / f"{name}.safetensors" if a.work else None
        trial = Trial(source.private, source.public, clients[name], rng=rng, device=a.device)
        result = trial.run(state, report)
        rows.append(row(name, clients[name], result))
        if not a.json:
            show(rows[-1])
    if a.json:
        print(json.dumps({"rows": rows, "threads": a.threads, "device": a.device}))


if __name__ == "__main__":
    try:
        main()
    except PanasError as e:
        print(e, file=sys.stderr)
        sys.exit(e.exit_code)
