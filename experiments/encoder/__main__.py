"""Make an encoder of pictures that nobody's data have shaped.

    python -m experiments.encoder --folder DIR --out FILE.pt2 [--epochs 22] [--genome TEXT]
        [--device auto|cpu|cuda]

Random processes alone (`processes`) make pairs of views (`views`); the project's own search finds
the blocks of a network that tells pairs apart (`training`), its fitness the accuracy of a linear
head on held-out random tasks (`tasks`). Kill it and call it again: it goes on from what `--folder`
has. About an hour on one core; `--encoder FILE.pt2` of `panas run` takes the result. On five data
sets it was no better than the built-in map (`docs/results/joining.md`), so panas carries none.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from experiments.encoder import tasks
from experiments.encoder.network import BLOCKS, export
from experiments.encoder.training import Plan, searched, trained, vectors
from panas.architecture.genome import Genome
from panas.runtime.device import device_named
from panas.runtime.seeds import one_thread

SEARCHED, REPORTED = 0, 1  # seeds of the tasks that choose, and of those that the report is of


def tell(line: str) -> None:
    """Say how far it is."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def main() -> None:
    """Search, train, write the file, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="journal and checkpoints")
    parser.add_argument("--out", type=Path, required=True, help="the .pt2 file")
    parser.add_argument("--epochs", type=int, default=22)
    parser.add_argument("--genome", help="train this one; none is searched")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    device = device_named(a.device)
    with one_thread():
        if a.genome:
            genome = Genome.parse(a.genome, BLOCKS)
        else:
            genome = searched(tasks.drawn(SEARCHED), a.folder, tell, device).best
        network = trained(genome, Plan(epochs=a.epochs), a.folder, tell, device)
        size = export(network, a.out)
        report = {"genome": str(genome), "bytes": size}
        for task in tasks.drawn(REPORTED):
            own = tasks.by_vectors(vectors(network, task.x), task.y)
            report[task.name] = {"encoder": own, "gabor": tasks.by_gabor(task)}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
