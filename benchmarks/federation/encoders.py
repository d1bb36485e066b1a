"""What does encoding a folder of large pictures cost a site? Seconds, memory, a kill, a second run.

    python -m benchmarks.encoders [--pictures 20000] [--side 224] [--encoder FILE] [--json]

JPEGs of random blocks lie in a folder of a class each, at a site of its own. A first process
encodes them and is killed half-way; a second goes on; a third finds all embeddings on disk. Memory
is resident: at a tenth and at the end of the second process, and the most that any process had.
Without an encoder a small convolutional network of 256 outputs reads pictures of 112 x 112: it
takes a few milliseconds a picture, so that figures are of reading files and keeping embeddings.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from dprbft.paths import declared_file, embeddings_folder
from dprbft.site.data import declared, load_samples
from dprbft.site.directory import SiteSettings, read_site, write_site
from dprbft.site.embeddings import PROGRESS, check_encoder, embedded
from panas.data.facts import Facts
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.runtime.store import read_json

SIDE, OUTPUTS = 112, 256  # of the small network
BLOCKS = 14  # a side, of a picture of blocks
LOOK = 0.2  # seconds between two looks at how far a process is


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one process cost."""

    seconds: float
    encoded: int  # pictures, by this process
    pictures: int
    early_mb: float  # resident at a tenth of what it encodes; 0 where it encodes none
    end_mb: float
    peak_mb: float


def small_network(path: Path) -> str:
    """A program of a network with random weights."""
    with torch.random.fork_rng(devices=[]):  # torch has no seed for weights alone
        torch.manual_seed(0)
        network = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 64, 3, stride=2), nn.ReLU()),
            *(nn.Conv2d(64, OUTPUTS, 3, stride=4), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        ).eval()
    torch.export.save(torch.export.export(network, (torch.zeros(1, 3, SIDE, SIDE),)), path)
    return str(path)


def make_pictures(folder: Path, count: int, side: int) -> None:
    """JPEGs of random blocks, of two classes.

    Args:
        folder: that they are written to.
        count: how many.
        side: pixels.
    """
    rng = stream(0, "benchmark", "encoders")
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    for i in range(count):
        blocks = rng.integers(0, 256, (BLOCKS, BLOCKS, 3), dtype=np.uint8)
        image = Image.fromarray(blocks).resize((side, side), Image.Resampling.BICUBIC)
        image.save(folder / "ab"[i % 2] / f"{i:06d}.jpg", quality=85)


def encode(site: Path) -> Cost:
    """Encode a site's pictures in this process, as a run does."""
    settings, began, early, done = read_site(site), time.perf_counter(), 0.0, 0
    facts = declared_facts(site)
    check_encoder(site, settings, facts)
    samples = load_samples(site, settings, facts)
    place = embeddings_folder(site)

    def note(count: int, of: int) -> None:
        nonlocal early, done
        done = count
        if count == max(1, of // 10):
            early = resident()
        if count % 50 == 0:
            (place / PROGRESS).write_text(str(count))

    vectors = embedded(site, settings, samples, facts, note).embeddings
    assert vectors is not None
    return Cost(
        seconds=time.perf_counter() - began,
        encoded=done,
        pictures=len(vectors),
        early_mb=early,
        end_mb=resident(),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def declared_facts(site: Path) -> Facts:
    """What the site's owner has declared."""
    return Facts.from_json(read_json(declared_file(site)))


def resident() -> float:
    """MB that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def in_process(site: Path, kill_at: int | None = None) -> Cost | None:
    """Encode in a process of its own; None where it was killed after so many pictures."""
    command = [sys.executable, "-m", "benchmarks.encoders", "--site", str(site)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    progress = embeddings_folder(site) / PROGRESS
    while kill_at is not None and process.poll() is None:
        time.sleep(LOOK)
        if progress.is_file() and int(progress.read_text() or 0) >= kill_at:
            process.send_signal(signal.SIGKILL)
            process.wait()
            progress.unlink()
            return None
    out, _ = process.communicate()
    if process.returncode:
        raise BadInput(f"expected a process that encodes pictures, got exit {process.returncode}")
    return Cost(**json.loads(out))


def measure(pictures: int, side: int, encoder: str | None) -> dict[str, Cost]:
    """Costs of the process that goes on after a kill, and of the next one.

    Args:
        pictures: how many.
        side: of each, in pixels.
        encoder: file; None: a small network.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pictures(folder / "pictures", pictures, side)
        settings = SiteSettings(
            name="site",
            data=str(folder / "pictures"),
            epsilon=8.0,
            delta=1e-6,
            encoder=encoder or small_network(folder / "small.pt2"),
        )
        site = folder / "site"
        facts, _ = declared(site, settings)
        write_site(site, settings, facts=facts)
        in_process(site, kill_at=pictures // 2)
        rest, again = in_process(site), in_process(site)
    assert rest is not None
    assert again is not None
    return {"after the kill": rest, "again": again}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--encoder")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--site", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args(arguments)
    if a.site:
        sys.stdout.write(json.dumps(asdict(encode(a.site))))
        return
    costs = {name: asdict(cost) for name, cost in measure(a.pictures, a.side, a.encoder).items()}
    if a.json:
        sys.stdout.write(json.dumps(costs) + "\n")
        return
    for name, cost in costs.items():
        figures = "  ".join(f"{key} {value:.4g}" for key, value in cost.items())
        sys.stdout.write(f"{name:15} {figures}\n")


if __name__ == "__main__":
    main()
