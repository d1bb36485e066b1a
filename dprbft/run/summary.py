"""The outcome of a run: summary.json, from what the stages left in the sites' folders.

Accuracies are the simulator's view, which holds every test split; no site would tell them. Among
them are those of two models of all sites' samples without noise (`dprbft.simulation.pooling`).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dprbft.config.files import without_unread
from dprbft.config.schema import RunConfig
from dprbft.paths import (
    SitePaths,
    ladder_picture,
    pooled_file,
    search_file,
    server_folder,
    summary_file,
)
from dprbft.run.bookkeeping import is_done, seconds
from dprbft.run.hub import summarise_hub
from dprbft.run.view import RunView, has_results
from dprbft.server.records import read_rounds
from dprbft.server.updates import result_bytes
from dprbft.simulation.pooling import pooled_accuracies
from dprbft.site.data import changed
from dprbft.site.results.records import SearchRecord
from dprbft.site.results.report import SiteReport
from dprbft.site.site import check_book
from panas.architecture.cost import Cost
from panas.plots.ladder import Accuracies, ladder
from panas.privacy.ledger.account import totals
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json, write_bytes, write_json
from panas.training.ladder import Ladder


@dataclass(frozen=True)
class Pooling:
    """Test accuracies, by site, of models of all sites' samples together, without privacy."""

    head: Mapping[str, float] = field(default_factory=dict)  # {} where not measured
    forest: Mapping[str, float] = field(default_factory=dict)  # {} where left out, too


def exact_pooling(view: RunView, sites: Sequence[SitePaths]) -> Pooling:
    """Accuracies of `dprbft.simulation.pooling` at these sites.

    They are measured once. Nothing is measured in runs without a common map, or once the data of a
    site have gone. Files of older versions have no forest.
    """
    names, path = [paths.name for paths in sites], pooled_file(view.run)
    record = read_json(path) if path.exists() else {"accuracy": {}}
    if not record["accuracy"].keys() >= {*names}:
        if view.feature_map is None or not all(changed(paths) for paths in sites):
            return Pooling()
        measured = pooled_accuracies(
            (view.encoded_site(paths.index) for paths in sites), view.public, view.feature_map
        )
        forest = dict(zip(names, measured.forest, strict=True)) if measured.forest else {}
        record = {"accuracy": dict(zip(names, measured.head, strict=True)), "forest": forest}
        write_json(path, record)
    head, forest = record["accuracy"], record.get("forest", {})
    return Pooling({n: head[n] for n in names}, {n: forest[n] for n in names if n in forest})


LIBRARIES = ("panas", "torch", "deap", "botorch", "gpytorch", "opacus", "dp-accounting", "numpy")


COSTS = tuple(f.name for f in fields(Cost))


def summarise(run: Path, config: RunConfig) -> dict[str, Any]:
    """Gather the summary of a trained run, write it, and return it.

    A site that is not there, or was not when it could have trained, is named under "absent" alone;
    BadInput if that is all of them. Of a run whose sites are elsewhere: as `summarise_hub`.
    """
    if config.federation.remote:
        return summarise_hub(run, config)
    view = RunView(run, config)
    sites = [paths for paths in view.sites if has_results(paths)]
    if not sites and not is_done(run, "train") and all(paths.is_present for paths in view.sites):
        for paths in view.sites:
            check_book(paths)
        raise BadInput(
            f"expected a run of which a site has trained, got {run}, which none has; go on with "
            f"`panas run --resume --out {run}`"
        )
    done = is_done(run, "train")
    pooling = exact_pooling(view, sites) if done and config.federation.baselines else Pooling()
    clients = [_client(paths, pooling) for paths in sites or view.sites]
    rounds = read_rounds(server_folder(run))
    source, f = config.data.source, config.federation
    summary = {
        "preset": config.preset,
        "dataset": source.dataset if not f.comes_split else "data that come split",
        "method": config.federation.method,
        "seed": config.seed,
        # Of method joined: "stays" where networks train without noise, and must not leave.
        "network": without_unread(config.model_dump())["privacy"].get("network"),
        "view": "simulator: accuracies are measured on test splits that no site would share",
        "finished": done,
        "rounds": len(rounds),
        "public_samples": len(view.public),
        "unlabelled_samples": len(view.unlabelled),
        "class_names": list(view.facts.class_names),
        "clients": clients,
        "absent": [paths.name for paths in view.sites if paths not in sites],
        "accuracy": _accuracies(clients),
        "communication": {
            "up_bytes": sum(r.up_bytes for r in rounds),
            "down_bytes": sum(r.down_bytes for r in rounds) + result_bytes(server_folder(run)),
            "search_bytes": 0,
        },
        "seconds": seconds(run),
        "versions": {name: version(name) for name in LIBRARIES},
    }
    _draw(run, clients)
    write_json(summary_file(run), summary)
    return summary


def _draw(run: Path, clients: Sequence[Mapping[str, Any]]) -> None:
    """The picture of what each step brought, unless it shows the summary that is on the disk."""
    rows = [(c["name"], _accuracies_of(c)) for c in clients]
    if ladder_picture(run).exists() and summary_file(run).exists():
        before = read_json(summary_file(run))["clients"]
        if rows == [(c["name"], _accuracies_of(c)) for c in before]:
            return
    if any(Ladder(**c["ladder"]).joined is not None for c in clients):
        write_bytes(ladder_picture(run), ladder(rows))


def _client(paths: SitePaths, pooling: Pooling) -> dict[str, Any]:
    ledger = check_book(paths)
    report, steps = SiteReport.read(paths.home), SiteReport.read(paths.home).steps
    record = SearchRecord.read(paths.home) if search_file(paths.home).exists() else None
    count, seen = ledger.head()
    spent = totals(ledger.account().as_owned(paths.run))
    return {
        "id": paths.index,
        "name": paths.name,
        "genome": str(record.genome) if record else None,
        **(asdict(record.cost) if record else {c: report.setting.get(c) for c in COSTS}),
        "samples": report.samples,
        "setting": report.setting,
        "accuracy": {
            "local_last": steps.local if steps.local is not None else steps.alone,
            "global_last": steps.shared,
            "best": steps.best,
            "selected": steps.joined,
            "network": steps.network,
            "pooled": pooling.head.get(paths.name),
            "pooled_forest": pooling.forest.get(paths.name),
            "differ": steps.differ,
        },
        # What each step brought, on test samples.
        "ladder": {
            "majority": report.baselines.majority if report.baselines else None,
            "public": steps.public,
            "alone": steps.alone,
            "joined": steps.joined,
        },
        "metrics": report.metrics.to_json(),
        "baselines": report.baselines.to_json() if report.baselines else None,
        "selected_round": report.selected_round,
        "blend": report.blend,
        "shares": report.shares,
        "candidates": report.candidates,
        "epsilon": {k: spent[k] for k in ("budget", "spent", "release", "search", "training")},
        **{key: spent[key] for key in ("trust", "spent_local") if key in spent},
        "delta": spent["delta"],
        "relation": spent["relation"],
        "unit": spent["unit"],
        # To be noted elsewhere: it tells this ledger from one that was put in its place.
        "ledger": {"count": count, "hash": seen},
    }


def _accuracies_of(site: Mapping[str, Any]) -> Accuracies:
    """What the picture shows of a site."""
    steps = Ladder(**site["ladder"])
    rivals = site["baselines"]["rivals"] if site["baselines"] else []
    public = {r["model"]: r["accuracy"] for r in rivals if r["reads"] == "public"}
    return Accuracies(
        majority=steps.majority,
        forest=public.get("random forest"),
        regression=public.get("logistic regression"),
        public=steps.public,
        alone=steps.alone,
        joined=steps.joined,
        pooled=site["accuracy"].get("pooled"),
        pooled_forest=site["accuracy"].get("pooled_forest"),
    )


def _accuracies(clients: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    accuracies = [c["accuracy"] for c in clients]
    selected = [a["selected"] for a in accuracies]
    return {
        "mean": statistics.fmean(selected),
        "std": statistics.pstdev(selected),
        "local_last": mean_known([a["local_last"] for a in accuracies]),
        "global_last": mean_known([a["global_last"] for a in accuracies]),
        "pooled": mean_known([a["pooled"] for a in accuracies]),
        "pooled_forest": mean_known([a["pooled_forest"] for a in accuracies]),
        "ladder": {
            step: mean_known([c["ladder"][step] for c in clients]) for step in clients[0]["ladder"]
        },
    }


def mean_known(values: Sequence[float | int | None]) -> float | None:
    """The mean of the values that are known; None if none is."""
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None
