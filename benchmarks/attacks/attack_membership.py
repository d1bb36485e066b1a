"""Membership: what canaries and membership attacks find on trainings that leak, and that do not.

    python -m benchmarks.attack_membership [--json] [--data-root DIR] [--seeds 40] [--workers 2]

Fashion-MNIST averaged to 14 x 14 from `--data-root`; without it the digits, which are embedded.

1. One-run audits with 1,000 canaries: of DP-SGD at epsilon 8 with gradient canaries (a network of
   `GENOME` on 500 samples; 100 steps of a fifth of the samples, and 5 of all), and of training
   without privacy with mislabelled samples and random patterns (a perceptron of one hidden layer on
   200 samples, which memorises them). Bounds that assume nothing, that assume a trade-off,
   and that assume a Gaussian one and independent canaries (`attacks.epsilon.trade_off`).
2. LiRA and RMIA against the loss threshold on overfitted networks of `OVERFITTED`, each trained on
   a random half of the same candidates; shadow networks on halves of as many public samples. Both
   also with 4 shadows alone.
3. The same attacks on a network that never saw a candidate.

What is finished is kept in the folder `--work` and not run again. It is known by the arguments,
the data and the versions, not by the code: remove the folder after a change of code.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attacks.inference.membership import ShadowConfig, shadow_confidences
from benchmarks.kept import kept
from benchmarks.membership_tasks import BUDGET, KINDS, MEMBERS, PRIVATE, Ground, Size, pool, run
from panas.runtime.seeds import stream

FULL = Size()
"""What the documents report; tests run less."""

ATTACKS = ("lira", "rmia", "lira_4_shadows", "rmia_4_shadows", "loss_threshold")


def summary(
    results: dict[tuple[str, int], dict[str, Any]], seeds: int, size: Size
) -> dict[str, Any]:
    """What all results come to."""
    targets = [results["overfitted", s] for s in range(size.targets)]
    unseen = results["unseen", 0]

    def over(name: str) -> dict[str, Any]:
        at = [[t[name]["points"][k]["tpr"] for t in targets] for k in (0, 1)]
        return {
            "tpr_at_1_percent": statistics.fmean(at[0]),
            "tpr_at_0.1_percent": statistics.fmean(at[1]),
            "tpr_at_1_percent_each": at[0],
            "auc": statistics.fmean(t[name]["auc"] for t in targets),
            "members": MEMBERS,
            "others": MEMBERS,
        }

    return {
        "one_run": {
            "claim": BUDGET.epsilon,
            "delta": BUDGET.delta,
            "canaries": size.canaries,
            "ceiling": results[next(iter(KINDS)), 0]["ceiling"],
            "private": [
                bounds([results[name, s][seen][family] for s in range(seeds)])
                | {"training": name, "seen": seen}
                for name in PRIVATE
                for seen, families in results[name, 0].items()
                for family in families
            ],
            "non_private": [
                bounds([results[name, s] for s in range(seeds)]) | {"training": name}
                for name in KINDS
            ],
        },
        **{name: over(name) for name in ATTACKS},
        "accuracy": {
            "members": statistics.fmean(t["accuracy_members"] for t in targets),
            "others": statistics.fmean(t["accuracy_others"] for t in targets),
        },
        "unseen": {
            name: {"auc": unseen[name]["auc"], "interval": unseen[name]["auc_interval"]}
            for name in ATTACKS
        },
    }


def bounds(audits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The bounds of one kind of audit, one a seed."""
    return {
        "assumes": audits[0]["assumes"],
        "lower_bounds": [a["lower_bound"] for a in audits],
        "f_dp": [a["f_dp"] for a in audits],
        "gdp": [a["gdp"] for a in audits],
    }


def report(found: dict[str, Any]) -> str:
    """The figures as text."""
    audits = found["one_run"]
    lines = [
        f"one-run audits, {audits['canaries']} canaries, claim {audits['claim']:g}; "
        "least, mean and largest lower bound",
        f"{'':42s}{'assumes nothing':>20s}{'f-DP':>20s}{'GDP, independent':>20s}  f-DP assumes",
    ]
    for row in (*audits["private"], *audits["non_private"]):
        name = f"{row['training']}, {row.get('seen', 'final network')}"
        figures = "".join(f"{spread(row[k]):>20s}" for k in ("lower_bounds", "f_dp", "gdp"))
        lines.append(f"{name:42s}{figures}  {row['assumes']}")
    accuracy, unseen = found["accuracy"], found["unseen"]
    lines.append(
        f"overfitted: accuracy {accuracy['members']:.3f} on members, {accuracy['others']:.3f} else"
    )
    for name in ATTACKS:
        r = found[name]
        lines.append(
            f"{name:15s} TPR {r['tpr_at_1_percent']:.3f} at 1 % FPR, "
            f"{r['tpr_at_0.1_percent']:.3f} at 0.1 %, AUC {r['auc']:.3f}"
        )
    for name in ATTACKS:
        low, high = unseen[name]["interval"]
        lines.append(f"{name:15s} never saw: AUC {unseen[name]['auc']:.3f} [{low:.3f}, {high:.3f}]")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    """Least, mean and largest."""
    return f"{min(values):.2f} {statistics.fmean(values):.2f} {max(values):.2f}"


def main(arguments: Sequence[str] | None = None, size: Size = FULL) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", help="folder of FashionMNIST; without it the digits")
    parser.add_argument("--seeds", type=int, default=40, help="of each one-run audit")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("build/membership"), help="keeps all")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args(arguments)
    ground = Ground(pool(a.data_root), size)
    shadows = ShadowConfig(
        public=ground.public,
        train=ground.overfit,
        count=size.shadows,
        workers=a.workers,
        keep=a.work / f"shadows-{size.epochs}",
    )
    phi = shadow_confidences(
        ground.asked,
        shadows,
        rng=stream(0, "shadows"),
        on_shadow=lambda done: print(f"shadows: {done} of {size.shadows}", file=sys.stderr),
    )
    audits = (*PRIVATE, *KINDS)
    tasks = [(name, seed) for seed in range(a.seeds) for name in audits]
    tasks += [("overfitted", seed) for seed in range(size.targets)] + [("unseen", 0)]
    decided = {
        "data": "fashion-mnist" if a.data_root else "digits",
        "canaries": size.canaries,
        "shadows": size.shadows,
        "epochs": size.epochs,
    }
    context = Ground(ground.pool, size, phi)
    results = kept(a.work, "membership", decided, run, context, tasks, workers=a.workers)
    record = summary(dict(zip(tasks, results, strict=True)), a.seeds, size)
    print(json.dumps(record) if a.json else report(record))


if __name__ == "__main__":
    main()
