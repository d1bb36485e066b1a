"""Does `panas audit` cry wolf? Whole runs in which every site keeps what it promised.

    python -m benchmarks.sound_runs --data-root FOLDER [--runs 24] [--start 50000] [--only WORD]
        [--json]

Runs go through the data sets in turn, with fresh seeds, by the commands that a user gives; a data
set that is not at `--data-root` is left out, and said so. A *false alarm* is a site of which the
audit says "leaks": of its release, of its masked vector, or of its network. Hospitals (UCI heart
disease) differ from the public samples, which are those of the first one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"),
    *("oldpeak", "slope", "ca", "thal", "num"),
)
PUBLIC = 40  # rows of the first hospital
SMALL = (
    *("search.population=2", "search.generations=0", "search.student_steps=60"),
    *("training.student_steps=100",),
)


@dataclass(frozen=True)
class Outcome:
    """What the audit of one sound run said."""

    data: str
    seed: int
    trust: str
    sites: int
    leaks: tuple[str, ...]  # evidence of false alarms
    verdicts: dict[str, int]
    seconds: float  # of the audit
    of_run: float  # of the run, and its audit


Arguments = Callable[[Path, Path, np.random.Generator], list[str]]


def hospitals(root: Path, folder: Path, rng: np.random.Generator) -> list[str]:
    """The four hospitals as sites, by the presence of a disease."""
    files, header = [], ",".join(COLUMNS)
    for name in HOSPITALS:
        lines = (root / "heart" / f"processed.{name}.data").read_text().split()
        rows = [
            ",".join(["" if v == "?" else v for v in fields[:-1]] + ["no" if sick else "yes"])
            for line in rng.permutation(lines)
            for fields in [line.split(",")]
            for sick in [float(fields[-1]) == 0]
        ]
        if name == HOSPITALS[0]:
            (folder / "public.csv").write_text("\n".join([header, *rows[:PUBLIC]]))
            rows = rows[PUBLIC:]
        path = folder / f"{name}.csv"
        path.write_text("\n".join([header, *rows]))
        files.append(str(path))
    public = str(folder / "public.csv")
    return ["--client-data", *files, "--public-data", public, "--label", "num", "--epsilon", "4"]


def breast(root: Path, folder: Path, rng: np.random.Generator) -> list[str]:
    """Wisconsin's breast cancer, from scikit-learn, shared out by skewed classes."""
    data = load_breast_cancer()
    path, order = folder / "breast.csv", rng.permutation(len(data.target))
    table = np.column_stack([data.data[order], data.target[order]])
    header = ",".join([*(n.replace(" ", "_") for n in data.feature_names), "label"])
    np.savetxt(path, table, "%.6g", ",", header=header, comments="")
    return _shared(path)


def card(root: Path, folder: Path, rng: np.random.Generator) -> list[str]:
    """Credit card fraud."""
    return _shared(root / "creditcard_sample_492pos_1230neg.csv", "--label", "Class")


def _shared(data: Path | str, *more: str) -> list[str]:
    return ["--dataset", str(data), "--clients", "4", "--epsilon", "8", *more]


def _pictures(name: str) -> Arguments:
    def arguments(root: Path, folder: Path, rng: np.random.Generator) -> list[str]:
        file = root / f"{name}.npz"
        if file.is_file():
            return _shared(file, "--set", "data.limit=1000")
        return _shared(name, "--data-root", str(root), "--set", "data.limit=1000")

    return arguments


DATA: dict[str, tuple[str, Arguments]] = {
    "heart": ("heart", hospitals),
    "digits": ("", _pictures("digits")),
    "breast": ("", breast),
    "pneumoniamnist": ("pneumoniamnist.npz", _pictures("pneumoniamnist")),
    "card": ("creditcard_sample_492pos_1230neg.csv", card),
    "fashion-mnist": ("FashionMNIST", _pictures("fashion-mnist")),
}
"""By name: what must be at the data root, and the arguments of `panas run`."""
TRUSTS = ("server", "auto")  # releases of single sites, and a secure sum, in turn


def sound_run(name: str, root: Path, seed: int, trust: str) -> Outcome:
    """A run and its audit, as a user gives them; RuntimeError if either fails.

    Args:
        name: of `DATA`.
        root: the data root.
        seed: of the run, and of what is public.
        trust: setting `privacy.trust`.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        arguments = DATA[name][1](root, folder, np.random.default_rng(seed))
        sets = [part for s in (*SMALL, f"privacy.trust={trust}") for part in ("--set", s)]
        run = [*arguments, "--seed", str(seed), "--out", str(folder / "run"), *sets]
        _panas("run", *run)
        _panas("audit", str(folder / "run"))
        audit = json.loads((folder / "run" / "audit.json").read_text())
    sites = audit["clients"]
    about = [part for s in sites for part in (s, s["network"]) if part]
    verdicts = [part["verdict"] for part in about]
    return Outcome(
        data=name,
        seed=seed,
        trust=trust,
        sites=len(sites),
        leaks=tuple(part["evidence"] for part in about if part["verdict"] == "leaks"),
        verdicts={v: verdicts.count(v) for v in sorted(set(verdicts))},
        seconds=audit["seconds"],
        of_run=round(time.monotonic() - begun, 1),
    )


def _panas(*arguments: str) -> None:
    command = [sys.executable, "-m", "panas_cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"panas {arguments[0]} ended with {done.returncode}: {done.stderr}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--start", type=int, default=50_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [n for n in DATA if options.only in n]
    for name in [n for n in names if not (options.data_root / DATA[n][0]).exists()]:
        print(f"{name} left out: expected {DATA[name][0]} at --data-root", file=sys.stderr)
        names.remove(name)
    outcomes = []
    for k in range(options.runs):
        trust = TRUSTS[k // len(names) % len(TRUSTS)]
        outcome = sound_run(names[k % len(names)], options.data_root, options.start + k, trust)
        print(outcome, file=sys.stderr, flush=True)
        outcomes.append(outcome)
    if options.json:
        print(json.dumps([asdict(o) for o in outcomes]))
        return
    alarms = sum(len(o.leaks) for o in outcomes)
    sites = sum(o.sites for o in outcomes)
    print(f"{len(outcomes)} sound runs of {len(names)} data sets, {sites} sites: {alarms} leaks")


if __name__ == "__main__":
    main()
