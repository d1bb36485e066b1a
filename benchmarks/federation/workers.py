"""Does a search come out the same with more workers, and how much sooner?

    python -m benchmarks.workers [--workers 2] [--repeats 3] [--json]

The same search of `digits` with one worker and with several, taking turns; then once with 8. The
logs are compared byte for byte. Times are medians of whole searches, the start of the workers
included; `speedup` is the ratio of the two medians.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from panas import search
from panas.architecture.space import SearchSpace
from panas.data.load import DataSettings, load
from panas.evolution.records import EvolutionConfig
from panas.runtime.seeds import stream
from panas.training.sgd import OptimizerConfig

CONFIG = EvolutionConfig(population=12, generations=9, initial=None, offspring=12)
HOW = OptimizerConfig(
    optimiser="adam", learning_rate=0.005, decay="cosine", batch_size=32, epochs=8
)


def main() -> None:
    """Search, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    data = load(
        DataSettings(dataset="digits", public_fraction=0.5, public_limit=1), stream(0, "data")
    ).private
    space = SearchSpace(shape=data.shape, max_blocks=6, widths=(16, 32, 64))

    def searched(workers: int) -> tuple[float, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            search(data, out=folder, space=space, config=CONFIG, optimizer=HOW, workers=workers)
            return time.perf_counter() - began, (Path(folder) / "log.jsonl").read_bytes()

    seconds: dict[int, list[float]] = {1: [], a.workers: []}
    logs = set()
    for _ in range(a.repeats):
        for workers, times in seconds.items():
            took, log = searched(workers)
            times.append(took)
            logs.add(log)
    logs.add(searched(8)[1])
    one, many = (statistics.median(seconds[workers]) for workers in (1, a.workers))
    results = {
        "identical_logs": len(logs) == 1,
        "speedup": one / many,
        "seconds": {str(workers): times for workers, times in seconds.items()},
    }
    if a.json:
        sys.stdout.write(json.dumps(results) + "\n")
        return
    sys.stdout.write(
        f"logs with 1, {a.workers} and 8 workers: "
        f"{'identical' if len(logs) == 1 else 'DIFFERENT'}\n"
        f"1 worker {one:.1f} s, {a.workers} workers {many:.1f} s: {one / many:.2f} times as fast\n"
    )


if __name__ == "__main__":
    main()
