"""What does a release cost the shared head? Head accuracy by release kind and epsilon.

    python -m benchmarks.heads [--dataset digits|fashion-mnist --data-root DIR] [--seeds 5] [--json]

For each seed, four sites (Dirichlet 0.5) get one bottom each, of a fixed genome: warm-started on
the public part against the simplex head, then trained on the site's own samples against the
same head, as a run does but without DP noise. Every row of the table then uses the same bottoms, so
that rows differ by the release alone. One release spends the whole epsilon (delta 1e-5); the server
makes a head of all clients' releases, and the score is its accuracy on all test splits, pooled.

| row | head |
|---|---|
| moments, class_sums | the server's, from that release |
| public_rows | the server's, from everyone's rows of the public samples: no epsilon to vary |
| ... alone | the same releases, where the server knows no simplex head to start from |
| local | each site's own, from its own exact moments, which never leave it |
| etf | the simplex head that everybody starts from |

"noiseless" is the same row with exact numbers. Fashion-MNIST is shrunk to 14 x 14 by averaging, and
a part of it is used, to keep the benchmark quick.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn import functional as F

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.messages import Broadcast, Release
from dprbft.methods.rounds.heads import aggregate, to_broadcast, to_head
from dprbft.simulation.federation import load_federation
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.samples import Samples
from panas.privacy.accounting.events import Unprotected
from panas.privacy.budget import Budget
from panas.privacy.calibration import release_multiplier
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.privacy.release.gate import ReleaseRequest, release
from panas.privacy.release.kind import ReleaseEvent, event_of, is_noised, kind_named
from panas.runtime.seeds import stream
from panas.training.evaluate import represent
from panas.training.sgd import OptimizerConfig, fit
from panas.training.warm_start import WarmStart, warm_started

T = TypeVar("T")

DELTA = 1e-5
EPSILONS = (1.0, 3.0, 8.0)
GENOMES = ("c32k3-max-c64k3-c64k3", "c32k5-max-c64k3-c64k3")
"""Architectures of the sort that a search finds, in turn: all clients' bottoms are respectable."""

ROUNDS = 3
"""Local training takes as many epochs as a default run of so many rounds."""

LIMITS: dict[str, dict[str, Any]] = {
    "digits": {},
    "fashion-mnist": {"limit": 6000, "public_limit": 1000},
}


@dataclass(frozen=True)
class Trained:
    """A site with its bottom: representations of its splits and of the public samples."""

    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]
    public: tuple[torch.Tensor, torch.Tensor]


def shrink(samples: Samples) -> Samples:
    """28 x 28 images to 14 x 14; smaller ones stay."""
    if samples.shape[1] < 28:
        return samples
    x = F.avg_pool2d(samples.x.float(), 2)
    return replace(samples, x=x.round().to(samples.x.dtype))


def bottoms(config: RunConfig) -> tuple[list[Trained], Broadcast]:
    """The trained sites of a seed, and the head that they were trained against."""
    federation, seed = load_federation(config), config.seed
    public = shrink(federation.public)
    warm = config.training.warm
    spec = NetworkSpec(shape=public.shape, classes=public.classes, width=config.network.width)
    # DP-SGD's default learning rate is for clipped gradients; without clipping it wrecks them.
    longer = replace(
        warm, epochs=ROUNDS * config.training.optimizer.epochs, train_head=spec.head_moves
    )
    results = []
    for site in federation.clients:
        rng = stream(seed, "client", site.id, "benchmark")
        start = WarmStart(
            genome=Genome.parse(GENOMES[site.id % len(GENOMES)]),
            spec=spec,
            optimizer=warm,
            device=torch.device("cpu"),
        )
        bottom, head = warm_started(start, public, seed=seed, site=site.id)
        train = shrink(site.train)
        fit(bottom, head, train, config=longer, rng=rng)
        parts = (train, shrink(site.test), public)
        results.append(Trained(*((rows_of(bottom, s), s.y) for s in parts)))
    return results, to_broadcast(head, 0)


def rows_of(bottom: Bottom, samples: Samples) -> torch.Tensor:
    """Representations of samples."""
    return represent(bottom, samples)


def always(rows: T) -> Callable[[], T]:
    """A reader of rows that are in memory."""
    return lambda: rows


def price_of(kind: str, epsilon: float | None) -> ReleaseEvent:
    """One release for the whole epsilon; None: without noise."""
    what = kind_named(kind)
    if not is_noised(what):
        return event_of(what, None)
    if epsilon is None:
        return Unprotected()
    return event_of(what, release_multiplier(Budget(epsilon, DELTA), 1, 1.0))


def send(kind: str, clients: Sequence[Trained], event: ReleaseEvent, start: Broadcast) -> list:
    """Everyone's release, charged to a ledger of its own and passed over the wire."""
    classes, width = start.weight.shape
    sent = []
    with tempfile.TemporaryDirectory() as folder:
        for id, site in enumerate(clients):
            budget = Budget(1.001 * max(EPSILONS), DELTA)
            ledger = Ledger(Path(folder) / f"{id}.jsonl")
            ledger.open_account(budget, allow_unprotected=True, replicated=False)
            rows = site.public if kind_named(kind).READS == "public" else site.train
            request = ReleaseRequest(kind=kind, event=event, site=id, round=1, classes=classes)
            released = release(request, always(rows), ledger=ledger, noise=SystemNoise())
            content = Release.of(released).to_bytes()
            sent.append(Release.from_bytes(content, width=width, classes=classes))
    return sent


def answer(releases: list[Release], start: Broadcast) -> Broadcast:
    """The server's head."""
    optimizer, rng = OptimizerConfig(epochs=0), stream(0, "benchmark")
    return aggregate(releases, start, round=1, optimizer=optimizer, rng=rng)


def score(clients: Sequence[Trained], heads: Sequence[Broadcast]) -> float:
    """Accuracy on all clients' test samples, each site with its head."""
    right = total = 0
    for site, head in zip(clients, heads, strict=True):
        z, y = site.test
        right += int((to_head(head)(z).argmax(1) == y).sum())
        total += len(y)
    return right / total


def one(config: RunConfig) -> dict[str, dict[str, float]]:
    """All rows of one seed."""
    clients, start = bottoms(config)
    everyone = [start] * len(clients)
    nothing = replace(start, weight=0 * start.weight)
    result: dict[str, dict[str, float]] = {}
    kinds: tuple[str, ...] = ("moments", "class_sums", "public_rows")
    for kind in kinds:
        result[kind], result[f"{kind} alone"] = {}, {}
        for epsilon in (*EPSILONS, None) if is_noised(kind_named(kind)) else (None,):
            releases = send(kind, clients, price_of(kind, epsilon), start)
            name = f"{epsilon:g}" if epsilon else "noiseless"
            for row, before in ((kind, start), (f"{kind} alone", nothing)):
                head = answer(releases, before)
                result[row][name] = score(clients, [head] * len(clients))
    own = [answer([r], start) for r in send("moments", clients, Unprotected(), start)]
    result["local"] = {"noiseless": score(clients, own)}
    result["etf"] = {"noiseless": score(clients, everyone)}
    return result


def table(runs: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds; rows without an epsilon are flat."""
    record: dict[str, Any] = {}
    for row, columns in runs[0].items():
        cells = {}
        for name in columns:
            values = [r[row][name] for r in runs]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells[name] = {"mean": statistics.fmean(values), "std": spread}
        record[row] = cells["noiseless"] if row in ("local", "etf") else cells
    return record


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=list(LIMITS), default="digits")
    parser.add_argument("--data-root")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    began = time.perf_counter()
    data = {"dataset": a.dataset, **LIMITS[a.dataset]}
    data |= {"data_root": a.data_root} if a.data_root else {}
    runs = []
    for seed in range(a.seeds):
        federation = {"method": "dprbft", "clients": a.clients}
        layer = {"seed": seed, "data": data, "federation": federation}
        runs.append(one(build_config(layer)))
    record = table(runs)
    if a.json:
        seconds = round(time.perf_counter() - began, 1)
        print(json.dumps({a.dataset: record, "seeds": a.seeds, "seconds": seconds, "runs": runs}))
        return
    columns = [f"{e:g}" for e in EPSILONS] + ["noiseless"]
    print(f"{a.dataset:18s}" + "".join(f"{c:>16s}" for c in columns))
    for row, cells in record.items():
        known = {"noiseless": cells} if "mean" in cells else cells
        shown = (
            f"{known[c]['mean']:.3f} +- {known[c]['std']:.3f}" if c in known else ""
            for c in columns
        )
        print(f"{row:18s}" + "".join(f"{s:>16s}" for s in shown))


if __name__ == "__main__":
    main()
