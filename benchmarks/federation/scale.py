"""What does a client-round cost with 10, 100 and 1,000 sites? CPU, memory and disk.

    python -m benchmarks.scale [--sites 10,100,1000] [--rounds 3] [--json]

Each site is a directory with 60 made-up images (1, 8, 8) of four classes, its own ledger and state.
All have the same small architecture and settings: what is measured is training, one federation in
a fresh process with two workers. Between participations 1 and .1 only the sites that are asked
differ. Seconds are of CPU: in the workers for a round and its answer of one site, and in the
server's process. Memory is the largest resident set of a process; a process of this library alone,
which has asked nobody, is given beside it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dprbft import paths
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig, participants
from dprbft.engines import inprocess
from dprbft.engines.inprocess import InProcess, Job
from dprbft.messages import Reply, Verb
from dprbft.methods.serve import serve
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, train_stage, tune_stage

SAMPLES = 60
NOTES = "PANAS_SCALE_NOTES"
"""Environment variable: the folder where workers note what each verb has cost."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one federation cost."""

    sites: int
    participation: float
    client_rounds: int
    site_seconds: float  # of CPU, of a site in a round and its answer
    server_seconds: float  # of CPU, of the server for a site in a round
    start_seconds: float  # of CPU, once a site: its first network, and its plan
    server_mb: float  # peak
    worker_mb: float  # peak
    idle_mb: float  # of a process that has asked nobody
    disk_kb: float  # a site, less its samples


def config_for(data: Path, sites: int, participation: float, rounds: int) -> RunConfig:
    """The settings of a federation."""
    return build_config(
        {
            "data": {"dataset": str(data)},
            "network": {"width": 16},
            "search": {
                "population": 2,
                "generations": 0,
                "min_blocks": 1,
                "max_blocks": 1,
                "widths": [16],
            },
            "tuning": {"trials": 0},
            "training": {"epochs": 1, "batch_size": 1000},
            "federation": {
                "method": "dprbft",
                "clients": sites,
                "partition": "iid",
                "rounds": rounds,
                "participation": participation,
                "warm_start": "none",
                "baselines": False,
            },
            "privacy": {"search": "data-free", "delta": 1e-3},
        }
    )


def make_data(path: Path, sites: int) -> None:
    """Made-up images that a small network can learn, `SAMPLES` a site."""
    rng = np.random.default_rng(0)
    y = np.arange(sites * SAMPLES) % 4
    means = rng.integers(60, 190, (4, 8, 8))
    x = np.clip(means[y] + rng.normal(0, 25, (len(y), 8, 8)), 0, 255).astype(np.uint8)
    np.savez(path, images=x, labels=y)


def prepared(run: Path, config: RunConfig) -> None:
    """Make the sites; search and tune at the first, and give all others what it found."""
    prepare(run, config, resume=False)
    sites = paths.read_sites(run)
    with InProcess(sites, 1) as engine:
        open_run = OpenRun(run, config, engine)
        search_stage(open_run, [0])
        tune_stage(open_run, [0])
    for site_paths in sites[1:]:
        for folder in ("search", "tune"):
            shutil.copytree(sites[0].home / folder, site_paths.home / folder)


def _peak() -> int:
    """The largest resident set of this process so far, in kB, without that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _noted(context: None, job: Job) -> Reply:
    began = time.process_time()
    reply = serve(*job)
    line = {"verb": job[2], "seconds": time.process_time() - began, "peak": _peak()}
    with (Path(os.environ[NOTES]) / f"{os.getpid()}.jsonl").open("a") as notes:
        notes.write(json.dumps(line) + "\n")
    return reply


def train(run: Path, config: RunConfig) -> None:
    """Train in this process, which notes its own cost too."""
    inprocess._serve = _noted  # the workers note theirs
    idle = _peak()
    began = time.process_time()
    with InProcess(paths.read_sites(run), 2) as engine:
        train_stage(OpenRun(run, config, engine))
    line = {"idle": idle, "seconds": time.process_time() - began, "peak": _peak()}
    (Path(os.environ[NOTES]) / "server.json").write_text(json.dumps(line))


def _size(folder: Path) -> int:
    """Bytes of a site's files, less its samples."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.name != "samples.safetensors")


def measure(sites: int, participation: float, rounds: int) -> Cost:
    """Make a federation, train it in a fresh process, and add up what it noted."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        make_data(work / "data.npz", sites)
        config = config_for(work / "data.npz", sites, participation, rounds)
        prepared(work / "run", config)
        (work / "notes").mkdir()
        command = [sys.executable, "-m", "benchmarks.scale", "--train", str(work / "run")]
        environment = os.environ | {NOTES: str(work / "notes"), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment)
        files = sorted((work / "notes").glob("*.jsonl"))
        lines = [json.loads(line) for f in files for line in f.read_text().splitlines()]
        server = json.loads((work / "notes" / "server.json").read_text())
        asked = sum(map(len, participants(config)))
        sizes = [_size(site_paths.folder) for site_paths in paths.read_sites(work / "run")]

    def seconds(*verbs: Verb) -> float:
        return sum(line["seconds"] for line in lines if line["verb"] in verbs)

    return Cost(
        sites=sites,
        participation=participation,
        client_rounds=asked,
        site_seconds=seconds(Verb.ROUND, Verb.FINISH) / asked,
        server_seconds=server["seconds"] / asked,
        start_seconds=seconds(Verb.HELLO, Verb.READY) / sites,
        server_mb=server["peak"] / 1024,
        worker_mb=max(line["peak"] for line in lines) / 1024,
        idle_mb=server["idle"] / 1024,
        disk_kb=sum(sizes) / len(sizes) / 1024,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", default="10,100,1000")
    parser.add_argument("--participation", default="1,.1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args(arguments)
    if a.train:
        from dprbft.config.files import load_config

        train(a.train, load_config(a.train))
        return
    costs: list[dict[str, Any]] = []
    for sites in map(int, a.sites.split(",")):
        for share in map(float, a.participation.split(",")):
            costs.append(asdict(measure(sites, share, a.rounds)))
            if not a.json:
                line = "  ".join(f"{k} {v:.4g}" for k, v in costs[-1].items())
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
    if a.json:
        sys.stdout.write(json.dumps({"costs": costs}) + "\n")


if __name__ == "__main__":
    main()
