"""What a run came to, as text: what `run`, `train` and `report` end with; what audits found.

What a run came to as its hub knows it: no accuracy, ledger or sample of a site is there.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from attacks.audit.external_model import ModelAudit
from attacks.audit.named import PEOPLE
from attacks.audit.records import RunAudit, SiteAudit
from attacks.audit.verdict import Verdict
from attacks.reconstruction.metrics import ReconstructionScore
from dprbft.config.families import family_of
from dprbft.paths import ladder_picture, predictor_file, read_sites, sites_file
from panas.runtime.store import read_json
from panas.training.baselines import Baselines, ModelName
from panas.training.ladder import Ladder
from panas.training.linear.predictor import read_predictor
from panas.training.linear.speed import latency_of
from panas.training.metrics import Metrics
from panas_cli.text.ending import print_ending
from panas_cli.text.joining import EMBEDDED, has_joined, kept_lines, span_text
from panas_cli.text.printing import (
    counted,
    figure,
    print_json,
    print_text,
    print_titled,
    print_words,
    size_text,
    titled,
)

ELSEWHERE = (
    "epsilon: by the noise that releases tell, without the label histogram beside them; accuracies "
    "and ledgers stay with the sites, and never cross the wire: there, "
    "`panas site show DIR`"
)

TRUSTED = (
    "the other sites were trusted with this, and the server with making the head from the sum; "
    "nobody was trusted with a single release"
)
"""Whom a secure sum trusted for what, after what it rests on."""


def show_hub(run: Path, summary: Mapping[str, Any]) -> None:
    """The summary of a hub's run as text."""
    bytes_ = summary["communication"]
    up, down = (size_text(bytes_[f"carried_{way}_bytes"]) for way in ("up", "down"))
    columns = ("site", "through", "rounds", "releases", "noise multiplier", "epsilon of them")
    title = f"hub, method {summary['method']}, preset {summary['preset']}"
    table = titled(title, columns, left=columns[:2])
    for s in summary["sites"]:
        table.add_row(
            s["name"],
            ", ".join(s["through"]) or "-",
            str(len(s["rounds"])),
            releases_text(summary, s),
            span_text([m for m in s["noise_multipliers"] if m is not None], ".3g"),
            figure(s["epsilon_of_releases"], ".3g"),
        )
    print_titled(table)
    print_words(hub_sentence(summary))
    if head := summary["head"]:
        print_words(
            f"shared head: accuracy {head['accuracy']:.3f} on {counted(head['samples'], 'sample')} "
            "that are public, and that it was made with"
        )
    print_words(
        f"communication: {size_text(bytes_['up_bytes'])} up, {size_text(bytes_['down_bytes'])} "
        f"down in {counted(summary['rounds'], 'round')}; with public files and all else "
        f"{up} up, {down} down"
    )
    if trust := summary.get("trust"):
        what = f"secure sum over {counted(trust['sites'], 'site')}"
        print_words(f"{what}: holds while {trust['assumption']}; {TRUSTED}")
    print_words("seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in summary["seconds"].items() if v))
    print_text("")
    print_words(f"run directory: {run}")
    if summary["absent"]:
        names = ", ".join(summary["absent"])
        print_words(
            f"warning: not through with all stages: {names}; --resume takes up what is back"
        )
    print_words(ELSEWHERE)


def releases_text(summary: Mapping[str, Any], site: Mapping[str, Any]) -> str:
    """How many releases a hub has of a site, or that it is part of the sum."""
    summed = summary.get("trust") and site["rounds"]
    return "in the sum" if summed else str(site["releases"])


def hub_sentence(summary: Mapping[str, Any]) -> str:
    """What a hub's run came to, in a sentence or two."""
    sites = summary["sites"]
    if summary["method"] != "joined":
        return (
            f"{len(sites) - len(summary['absent'])} of {counted(len(sites), 'site')} have done all."
        )
    sent = [s for s in sites if s["rounds"] and (s["releases"] or summary.get("trust"))]
    if sent:
        return f"It worked: {len(sent)} of {counted(len(sites), 'site')} share a head."
    public = counted(summary["public_samples"], "public sample")
    return (
        f"Nothing was shared. With {public} that have labels, joining promises no gain, so by rule "
        "no site sends anything. With fewer labels (--set data.public_labels=20) it may pay."
    )


OF_ROUNDS = ("before", "after", "kept", "epsilon", "release", "search")
OF_JOINED = (
    "alone",
    "shared\nhead",
    "network",
    "kept",
    "epsilon",
    "histogram",
    "release",
    "DP-SGD",
)
OF_UPDATES = (
    "MACs",
    "as sent,\nlast round",
    "trained,\nlast round",
    "kept",
    "epsilon",
    "release",
    "DP-SGD",
)
"""Columns of a site after its network, by the kind of method."""

ALL = "all: fitted on the samples of all sites together, which only a simulation has"
NO_FOREST = "The boosted forest is left out of large data, and of runs of older versions"

MODELS: tuple[ModelName, ...] = ("random forest", "logistic regression")
TO_BEAT = [
    "majority",
    "forest,\npublic",
    "regression,\npublic",
    "{start},\npublic",
    "alone",
    "joined",
    "linear head, all:\nnot private",
    "boosted forest, all:\nnot private",
    "forest, own:\nnot private",
    "regression, own:\nnot private",
]


def show(run: Path, summary: dict[str, Any], json: bool, details: bool = False) -> None:
    """The summary, and the audit if there is one, as text or JSON.

    Args:
        run: the run's folder.
        summary: as `summarise` returns it.
        json: one JSON object in the place of text.
        details: all tables in the place of one screen.
    """
    audit = read_json(run / "audit.json") if (run / "audit.json").exists() else None
    if json:
        print_json(summary | {"run": str(run), "audit": audit and audit["summary"]})
    elif "sites" in summary:
        show_hub(run, summary)
    elif details:
        _show_details(run, summary, audit)
    else:
        print_ending(run, summary, audit)


def _show_details(run: Path, summary: Mapping[str, Any], audit: dict[str, Any] | None) -> None:
    updates = family_of(summary["method"]).sends == "updates"  # without a search before
    clients = summary["clients"]
    print_titled((_of_updates if updates else _clients)(summary))
    a, bytes_, s = summary["accuracy"], summary["communication"], summary["seconds"]
    if (table := _to_beat(clients)) is not None:
        print_titled(table)
        if a.get("pooled") is not None:
            print_words(ALL if a.get("pooled_forest") is not None else f"{ALL}. {NO_FOREST}")
        if any(c.get("baselines") and _rivals(c).see_embeddings for c in clients):
            print_words(EMBEDDED)
    if (table := _metrics(clients, updates, summary.get("class_names", ()))) is not None:
        print_titled(table)
    print_words(
        f"accuracy: mean {a['mean']:.3f}, std {a['std']:.3f} over sites (on their own test "
        f"splits: the simulator's view); {_others(a, clients, updates)}"
    )
    for line in kept_lines(clients):
        print_words(line)
    rounds = counted(summary["rounds"], "round")
    print_words(
        f"communication: {size_text(bytes_['up_bytes'])} up, {size_text(bytes_['down_bytes'])} "
        f"down in {rounds}{'' if updates else '; the search sent nothing'}"
    )
    print_words("seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in s.items() if v or not updates))
    if latency := _latency(run):
        print_words(latency)
    if audit:
        print_text("")
        show_audit(RunAudit.from_json(audit), details=True)
    print_text("")
    print_words(f"run directory: {run}")
    if ladder_picture(run).exists():
        print_words(f"picture of the sites' accuracies: {ladder_picture(run)}")


def _latency(run: Path) -> str | None:
    """What a network takes beside its teacher, at the first site here that has one."""
    sites = read_sites(run) if sites_file(run).is_file() else ()
    for site in sites:
        path = predictor_file(site.home)
        latency = latency_of(read_predictor(path)) if path.is_file() else None
        if latency:
            return (
                f"one sample on one thread of this machine: the network of {site.name} takes "
                f"{latency.network:.2g} ms, the common map with its heads {latency.teacher:.2g} ms"
            )
    return None


def _of_updates(summary: Mapping[str, Any]) -> Table:
    title = f"{summary['dataset']}, method {summary['method']}"
    table = titled(title, ("site", "parameters", *OF_UPDATES))
    for c in summary["clients"]:
        a, e = c["accuracy"], c["epsilon"]
        table.add_row(
            c["name"],
            *(figure(c[cost], ",") for cost in ("parameters", "macs")),
            *(figure(a[step]) for step in ("global_last", "local_last", "selected")),
            f"{figure(e['spent'], '.3g')} of {figure(e['budget'], '.3g')}",
            *(figure(e[phase], ".3g") for phase in ("release", "training")),
        )
    return table


def _clients(summary: Mapping[str, Any]) -> Table:
    joined = has_joined(summary["clients"])
    title = f"{summary['dataset']}, preset {summary['preset']}"
    columns = ("site", "genome", "parameters", *(OF_JOINED if joined else OF_ROUNDS))
    table = titled(title, columns, left=columns[:2])
    for c in summary["clients"]:
        spent = f"{figure(c['epsilon']['spent'], '.3g')} of {figure(c['epsilon']['budget'], '.3g')}"
        table.add_row(
            c["name"],
            figure(c["genome"]),
            figure(c["parameters"], ","),
            *((_joined if joined else _rounds)(c, spent)),
        )
    return table


def _rounds(c: Mapping[str, Any], spent: str) -> Iterator[str]:
    """Cells of `OF_ROUNDS`."""
    a, e = c["accuracy"], c["epsilon"]
    yield from (figure(a["local_last"]), figure(a["global_last"]))
    yield f"{a['selected']:.3f} (round {c['selected_round']})"
    yield from (spent, figure(e["release"], ".3g"), figure(e["search"], ".3g"))


def _joined(c: Mapping[str, Any], spent: str) -> Iterator[str]:
    """Cells of `OF_JOINED`."""
    a, e = c["accuracy"], c["epsilon"]
    steps = ("local_last", "global_last", "network", "selected")
    yield from (figure(a[step]) for step in steps)
    yield spent
    # The ledger calls the histogram's phase after what it was first made for.
    yield from (figure(e[phase], ".3g") for phase in ("search", "release", "training"))


def _others(mean: Mapping[str, Any], clients: Sequence[Mapping[str, Any]], updates: bool) -> str:
    if updates:
        return (
            f"last round {figure(mean['global_last'])} as sent and {figure(mean['local_last'])} "
            "after local training"
        )
    if not has_joined(clients):
        return (
            f"last round {figure(mean['local_last'])} before and "
            f"{figure(mean['global_last'])} after the head's replacement"
        )
    own = [x for c in clients if (x := c["accuracy"]["network"]) is not None]
    networks = f"the sites' own networks {figure(fmean(own))}" if own else "there are no networks"
    return f"the shared head by itself {figure(mean['global_last'])}, {networks}"


def _to_beat(clients: Sequence[Mapping[str, Any]]) -> Table | None:
    """What each site must beat, and what each step brought; None in runs that did not measure."""
    if not any(c.get("baselines") for c in clients):
        return None
    start = "head" if has_joined(clients) else "network"
    columns = ["site", *(name.format(start=start) for name in TO_BEAT)]
    table = titled("test accuracy: what each site must beat, and what each step brought", columns)
    for c in clients:
        baselines = _rivals(c)
        steps = Ladder(**c["ladder"])
        by = {(r.model, r.reads): r.accuracy for r in baselines.rivals}
        table.add_row(
            c["name"],
            figure(baselines.majority),
            *(figure(by.get((model, "public"))) for model in MODELS),
            *(figure(x) for x in (steps.public, steps.alone, steps.joined)),
            *(figure(c["accuracy"].get(model)) for model in ("pooled", "pooled_forest")),
            *(figure(by.get((model, "public and own"))) for model in MODELS),
        )
    return table


def _rivals(client: Mapping[str, Any]) -> Baselines:
    return Baselines.from_json(client["baselines"])


def _metrics(
    clients: Sequence[Mapping[str, Any]], updates: bool, names: Sequence[str]
) -> Table | None:
    """What accuracy hides; None in runs that did not measure it."""
    if not any(c.get("metrics") for c in clients):
        return None
    averages = updates or has_joined(clients)
    what = "what each site predicts with" if averages else "the networks that are kept"
    columns = ("site", "accuracy", "balanced", "AUROC", "macro F1", "lowest recall")
    table = titled(f"{what}, on test samples", columns)
    for c in clients:
        m = Metrics.from_json(c["metrics"])
        known = [(r, k) for k, r in enumerate(m.recall) if r is not None]
        worst, k = min(known, default=(None, 0))
        table.add_row(
            c["name"],
            *(figure(x) for x in (m.accuracy, m.balanced_accuracy, m.auroc, m.macro_f1)),
            # Summaries without names tell of classes by their places.
            "-" if worst is None else f"{worst:.3f} (class {names[k] if names else str(k):.24})",
        )
    return table


HEADERS = {
    "same-class mean": "class\nmean",
    "shuffled": "shuffled",
    "random extractor": "untrained",
    "ceiling": "ceiling",
}
"""Controls in the audit's table, and their columns."""


def show_audit(audit: RunAudit, *, details: bool = False) -> None:
    """The best attack beside its controls, one row a site, and the verdicts.

    Args:
        audit: what was found.
        details: show all evidence; else the reason, what the claim means in people, and leaks.
    """
    rows = [(c, best) for c in audit.clients if (best := c.best)]
    if rows:
        print_titled(_attacked(rows))
    for c in audit.clients:
        print_words(f"{c.name}: {c.verdict}: {_reason(c.verdict, c.evidence, details)}")
        if n := c.network:
            print_words(f"  its network: {n.verdict}: {_reason(n.verdict, n.evidence, details)}")
        else:
            print_words("  its network: not audited: none is kept, or too few samples or classes")
    if not details:
        print_words("all evidence: panas report RUN --details, or audit.json")


def _reason(verdict: Verdict, evidence: str, details: bool) -> str:
    first, *rest = evidence.split("; ")
    if details or verdict == "leaks":
        return evidence
    return "; ".join([first, *(clause for clause in rest if clause.startswith(PEOPLE))])


def show_model_audit(audit: ModelAudit) -> None:
    """The verdicts on a network trained elsewhere."""
    n, seen = audit.network, audit.outputs
    members, others = n.accuracy
    print_words(
        f"{audit.model}: accuracy {members:.3f} on what it was trained on, {others:.3f} on others"
    )
    print_words(f"membership: {n.verdict}: {n.evidence}")
    if seen:
        print_words(f"its answers: {seen.verdict}: {seen.evidence}")
    if audit.duplicates:
        print_words(
            f"{audit.duplicates} of the others are among what it was trained on, and were left out"
        )


def _attacked(rows: list[tuple[SiteAudit, ReconstructionScore]]) -> Table:
    left = ("site", "release", "best attack", "verdict")
    of_release = ("found\nof 10", "epsilon\nshown", "claimed", "noise\nof claim")
    table = titled(
        "audit: R^2 of reconstructed training samples (1: perfect, 0: the mean public sample)",
        (*left[:3], "R^2", "bar", *HEADERS.values(), *of_release, "verdict"),
        left,
    )
    table.columns[-1].min_width = 10
    for c, best in rows:
        scores = (best, c.bar, *map(c.control, HEADERS))
        shown: tuple[float | None, ...] = (None, None, None)
        if claim := c.claim:
            shown = claim.epsilon_lower_bound, claim.claimed_epsilon, claim.noise_over_claim
        known = [None if s is None else s.r2 for s in scores]
        figures = map(_two, (*known, best.reidentified, *shown))
        table.add_row(c.name, c.release, best.name, *figures, c.verdict)
    return table


def _two(x: float | None) -> str:
    return figure(None if x is None or math.isnan(x) else x, ".2f")
