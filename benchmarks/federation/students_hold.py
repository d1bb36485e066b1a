"""Do students hold? Each site's own network, beside what the site predicts with, in whole runs.

    python -m benchmarks.students_hold --data-root DIR [--seeds 2] [--public 2000] [--json]

Ten sites of 150 images (Dirichlet .3, epsilon 8, preset `demo`), 40 labelled public images and,
with `--public` above 40, others without labels. `--set section.key=JSON` changes a setting.

| column | what it is |
|---|---|
| predictor, network | accuracies on images that are in no part of the run, in the site's true mix |
| majority | the share of the site's most frequent class |
| below | points that the network is below the predictor |
| kB, ms | of the network; milliseconds of one image on one thread, beside the map with its heads |

`--against FILE` compares networks with those of the same sites by another version of panas, whose
`--json` is in the file: points, paired, with the standard error over seeds.

A site holds if its network is at most 3 points below the predictor, has at most 1 MB, and is not
below the majority class. Seconds are of the run's stages, and of all processes' work.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.runs import finished_in
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.paths import predictor_file
from dprbft.run.view import RunView
from panas.data.facts import fit, infer
from panas.data.samples import Samples, value_hashes
from panas.data.sources import Reading
from panas.data.sources import read as read_data
from panas.features.encoders.files import load_encoder
from panas.runtime.seeds import stream
from panas.training.linear.predictor import BATCH, Predictor, read_predictor
from panas.training.linear.speed import latency_of

SITES, EACH, LABELLED = 10, 150, 40
OTHERS = 5000  # images that accuracies are of
POINTS, MOST_BYTES = 0.03, 1_000_000  # of a student that holds


def config_of(a: argparse.Namespace, seed: int) -> RunConfig:
    """The settings of a run."""
    settings: dict[str, Any] = {
        "preset": "demo",
        "seed": seed,
        "data": {
            "dataset": a.dataset,
            "data_root": a.data_root,
            "limit": SITES * EACH,
            "public_limit": a.public,
            "public_labels": LABELLED,
            "public_fraction": 0.25,
        },
        "federation": {"clients": SITES, "partition": "dirichlet", "alpha": 0.3},
        "privacy": {"epsilon": 8.0},
    }
    for item in a.set:
        key, _, value = item.partition("=")
        section, _, name = key.partition(".")
        settings.setdefault(section, {})[name] = json.loads(value)
    return build_config(settings)


def one(a: argparse.Namespace, seed: int, run: Path) -> dict[str, Any]:
    """A whole run, and what its sites' networks are worth."""
    config = config_of(a, seed)
    summary = finished_in(run, config, a.workers)
    view, sites = RunView(run, config), list[dict[str, Any]]()
    data = [view.site(i) for i in range(SITES)]
    parts = [[d.train, d.validation, d.test] for d in data]
    others = _others(a, [view.public, view.unlabelled, *itertools.chain(*parts)], seed)
    if file := config.network.encoder:
        others = replace(others, embeddings=load_encoder(file).of(others))
    read: torch.Tensor | None = None  # the same for all sites
    for i, own in enumerate(parts):
        mix = torch.stack([part.histogram() for part in own]).sum(0).double()
        mix = mix / mix.sum()
        predictor = read_predictor(predictor_file(view.sites[i].home))
        if file:
            predictor = predictor.with_encoder(load_encoder(file))
        network = predictor.candidates.network
        if network and read is None:
            x = others.inputs()
            with torch.no_grad():
                read = network.trunk(x) if network.trunk else x
        latency, record = latency_of(predictor), summary["clients"][i]
        sites.append(
            {
                **_accuracies(predictor, others, read, mix),
                "majority": float(mix.max()),
                "genome": record["genome"],
                "bytes": record["bytes"],
                "ms": latency and asdict(latency),
            }
        )
    return {"seed": seed, "sites": sites, "seconds": summary["seconds"]}


def _others(a: argparse.Namespace, seen: Sequence[Samples], seed: int) -> Samples:
    """Images that are in no part of the run."""
    raw = read_data(a.dataset, Reading(data_root=a.data_root))
    every = fit(raw, infer(raw))
    known = {int(h) for part in seen for h in value_hashes(part)}
    order = stream(seed, "others").permutation(len(every))[: 2 * OTHERS]
    drawn = every.take(order)
    fresh = [i for i, h in enumerate(value_hashes(drawn)) if int(h) not in known]
    return drawn.take(fresh[:OTHERS])


@torch.no_grad()
def _accuracies(
    predictor: Predictor, others: Samples, read: torch.Tensor | None, mix: torch.Tensor
) -> dict[str, float]:
    """Of the predictor and of its network, as if classes were as frequent as at the site."""
    c = predictor.candidates
    values, net = replace(c, network=None).logits(others), c.network
    if net and read is not None:
        values["network"] = torch.cat([net.head(net.bottom(part)) for part in read.split(BATCH)])
    says = {"predictor": predictor.average.probabilities(values, c.log_prior)}
    if net:
        says["network"] = values["network"]
    results = {}
    for name, scores in says.items():
        right = torch.zeros(others.classes, dtype=torch.float64)
        right.index_add_(0, others.y, (scores.argmax(1) == others.y).double())
        results[name] = float((right / others.histogram().clamp(min=1)) @ mix)
    return results


def holds(site: Mapping[str, Any]) -> bool:
    """Whether a site's network may stand for all that it predicts with."""
    network = site.get("network", 0.0)
    near = network >= site["predictor"] - POINTS
    return near and site["bytes"] <= MOST_BYTES and network >= site["majority"]


def table(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a site, and what all come to."""
    lines = ["seed  predictor  network  majority  below    kB  ms network  ms map, heads  genome"]
    for run in runs:
        for s in run["sites"]:
            below, ms = 100 * (s["predictor"] - s["network"]), s["ms"]
            lines.append(
                f"{run['seed']:4}  {s['predictor']:9.3f}  {s['network']:7.3f}  {s['majority']:8.3f}"
                f"  {below:5.1f}  {s['bytes'] / 1000:4.0f}  {ms['network']:10.2f}"
                f"  {ms['teacher']:13.2f}  {s['genome']}"
            )
    sites = [s for run in runs for s in run["sites"]]
    below = statistics.fmean(100 * (s["predictor"] - s["network"]) for s in sites)
    losers = sum(s["network"] < s["majority"] for s in sites)
    lines.append(
        f"{sum(map(holds, sites))} of {len(sites)} hold; on average {below:.1f} points below the "
        f"predictor; {losers} below the majority class"
    )
    for run in runs:
        seconds = ", ".join(f"{stage} {s:.0f}" for stage, s in run["seconds"].items() if s)
        lines.append(f"seed {run['seed']}, seconds: {seconds}")
    return lines


def against(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    """How much more accurate networks are than those of other runs with the same sites."""
    known, gains = {run["seed"]: run["sites"] for run in others}, list[float]()
    for run in runs:
        pairs = list(zip(run["sites"], known[run["seed"]], strict=True))
        assert all(s["majority"] == other["majority"] for s, other in pairs), "other sites"
        gains.append(statistics.fmean(100 * (s["network"] - o["network"]) for s, o in pairs))
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return (
        f"networks over the other version's: {statistics.fmean(gains):+.1f} +- {error:.1f} points"
    )


def main() -> None:
    """Run what the folder lacks, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", required=True, help="folder of FashionMNIST")
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--public", type=int, default=2000, help="public images")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=JSON")
    parser.add_argument("--work", type=Path, help="folder of the runs, which stay there")
    parser.add_argument("--against", type=Path, help="the JSON of another version")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = a.work or Path(temporary)
        seeds = range(a.first_seed, a.first_seed + a.seeds)
        runs = [one(a, seed, work / f"seed-{seed}") for seed in seeds]
    print(json.dumps(runs) if a.json else "\n".join(table(runs)))
    if a.against:
        print(against(runs, json.loads(a.against.read_text())), file=sys.stderr)


if __name__ == "__main__":
    main()
