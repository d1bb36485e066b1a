"""What privacy costs a training step: ours beside plain SGD, Opacus and chunked `torch.func`.

    python -m benchmarks.dpsgd [--threads 2] [--nets typical,digits] [--repeats 15] [--json]

Every step is whole: forward, backward, per-sample clip, noise, update. All steppers take turns in
one process, so that a busy machine is busy for all; reported are medians. Peak memory is measured
in a process of its own for each: what a step adds to the process that holds network and batch. A
stepper that does not fit into the machine's memory, or whose first step in a process of its own
takes longer than --patience, is null. All in all it takes about a quarter of an hour.

| name | step |
|---|---|
| nonprivate | plain autograd and SGD, the whole batch at once |
| nonprivate_chunked | the same in our chunks, gradients accumulated: what chunks alone bring |
| ours | `panas.privacy.gradients.private`, noise from the operating system's entropy |
| opacus_hooks, _expanded, _ghost | Opacus's three ways, with its optimiser |
| vmap | `torch.func.vmap(grad)` in chunks of 32, clipped and noised by hand |
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch

from benchmarks.steppers import NETS, RIVALS, STEPPERS, Step, network


def make(net: str, batch: int, stepper: str) -> Step:
    """A step on the network and batch of a name."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(batch, *NETS[net][1], generator=g)
    return STEPPERS[stepper](network(net), x, torch.randint(10, (batch,), generator=g))


def resident(field: str) -> float:
    """Megabytes of this process now ("VmRSS") or at its peak ("VmHWM"), as Linux tells them.

    `ru_maxrss` will not do: it starts from the peak of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 2**10


def added_memory(net: str, batch: int, stepper: str) -> float:
    """Megabytes that a step adds at its peak to this process, which runs nothing else."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (available, available))
    make("digits", 16, stepper)()  # what is loaded once is not the step's
    step = make(net, batch, stepper)
    before = resident("VmRSS")
    step()
    return resident("VmHWM") - before


def added_memory_apart(
    net: str, batch: int, stepper: str, threads: int, patience: float
) -> float | None:
    """The same, measured in a process of its own; None if it does not fit, or takes too long."""
    try:
        child = subprocess.run(
            [
                *(sys.executable, "-m", __spec__.name, "--threads", str(threads)),
                *("--measure", f"{net},{batch},{stepper}"),
            ],
            capture_output=True,
            text=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return None
    return float(child.stdout) if child.returncode == 0 else None


def timed(steps: dict[str, Step], repeats: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each stepper, taking turns, until each has its repeats or its seconds."""
    for step in steps.values():  # the first of each is not counted
        step()
    times: dict[str, list[float]] = {s: [] for s in steps}

    def goes_on(taken: list[float]) -> bool:
        enough = sum(taken) > 1e3 * seconds
        return len(taken) < (3 if enough else repeats) and sum(taken) < 3e3 * seconds

    while any(goes_on(t) for t in times.values()):
        for name, step in steps.items():
            if goes_on(times[name]):
                start = time.perf_counter()
                step()
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


def cell(net: str, batch: int, a: argparse.Namespace) -> dict:
    """All figures of one network at one batch size."""
    memory = {s: added_memory_apart(net, batch, s, a.threads, a.patience) for s in STEPPERS}
    steps = {s: make(net, batch, s) for s in STEPPERS if memory[s] is not None}
    times = timed(steps, a.repeats, a.seconds)
    median = {s: statistics.median(times[s]) if s in times else None for s in STEPPERS}
    result: dict = {f"{s}_ms": median[s] for s in STEPPERS}

    def over(a: float | None, b: float | None) -> float | None:
        return a / b if a and b else None

    result["ratio"] = over(median["ours"], median["nonprivate"])
    for rival in RIVALS:
        result[f"{rival}_over_ours"] = over(median[rival], median["ours"])
    result |= {f"{s}_added_mb": memory[s] for s in STEPPERS}
    result["memory_ratio"] = over(memory["ours"], memory["nonprivate"])
    result["parameters"] = sum(p.numel() for p in network(net).parameters())
    result["genome"] = str(NETS[net][0])
    result["repeats"] = {s: len(t) for s, t in times.items()}
    return result


def show(net: str, batch: int, found: dict) -> None:
    """One network and batch as text."""
    print(f"{net}, batch {batch}: {found['genome']}, {found['parameters']} parameters")
    for s in STEPPERS:
        ms, mb = found[f"{s}_ms"], found[f"{s}_added_mb"]
        if ms is None or mb is None:
            print(f"  {s:20s} does not fit in memory, or takes too long")
            continue
        print(f"  {s:20s} {ms:9.1f} ms {ms / found['nonprivate_ms']:6.2f}x {mb:9.0f} MB")


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--batches", default="64,256")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=8.0, help="a stepper repeats no longer")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for one first step")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    a = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(a.threads)
    if a.measure:
        net, batch, stepper = a.measure.split(",")
        print(added_memory(net, int(batch), stepper))
        return
    result: dict[str, dict[str, dict]] = {}
    for net in a.nets.split(","):
        for batch in a.batches.split(","):
            got = cell(net, int(batch), a)
            result.setdefault(net, {})[batch] = got
            if not a.json:
                show(net, int(batch), got)
    if a.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
