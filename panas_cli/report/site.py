"""The card of a site: its accuracies, budget, network and what it predicts with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dprbft.run.outcome import wilson
from dprbft.site.results.records import TRUNK
from panas.architecture.blocks import ConvBlock, DenseBlock, PoolBlock
from panas.training.baselines import Baselines
from panas.training.metrics import Metrics
from panas_cli.report.charts.network import Layer, drawing
from panas_cli.report.charts.rows import Row, dots
from panas_cli.report.facts import SiteFacts
from panas_cli.report.privacy import Card, card
from panas_cli.report.table import Figure, Table, epsilon_text, share
from panas_cli.text.joining import EMBEDDED, shares_text
from panas_cli.text.printing import counted

SPLITS = {"search": "search", "train": "training", "validation": "validation", "test": "test"}
"""Parts of a site's samples, in words."""


@dataclass(frozen=True, kw_only=True)
class SiteCard:
    """What a report shows of one site."""

    name: str
    lines: tuple[str, ...]
    ladder: Figure | None
    network: Figure | None
    metrics: Table | None
    privacy: Card | None


def site_card(site: SiteFacts, classes: Sequence[str]) -> SiteCard:
    """The card of a site; `classes` are the names of its classes."""
    return SiteCard(
        name=site.name,
        lines=tuple(_lines(site)),
        ladder=_ladder(site),
        network=_network(site),
        metrics=_metrics(site, classes),
        privacy=card(site, site.account) if site.account else None,
    )


def _lines(site: SiteFacts) -> Iterator[str]:
    o = site.outcome
    spent = f"epsilon {epsilon_text(o.epsilon)} of {epsilon_text(o.budget)}"
    if o.joined is not None and o.tests:
        low, high = wilson(o.joined, o.tests)
        yield (
            f"Accuracy {o.joined:.3f} on {counted(o.tests, 'test sample')} (95 % interval "
            f"{low:.2f} to {high:.2f}), {spent}."
        )
    else:
        yield f"No accuracy was measured; {spent}."
    samples = site.summary["samples"]
    if samples:
        parts = [f"{n:,} {SPLITS[split]}" for split, n in samples.items() if n]
        yield f"Samples: {', '.join(parts)}."
    if site.summary.get("shares"):
        words = shares_text(site.summary["shares"])
        yield f"It {words}, weighed by its {samples.get('validation', 0)} validation samples."


def _ladder(site: SiteFacts) -> Figure | None:
    """Each step's accuracy; None where nothing was measured."""
    rows = [row for row in _steps(site) if row.value is not None]
    if not rows:
        return None
    known = _baselines(site)
    seen = f". {EMBEDDED}" if known and known.see_embeddings else ""
    return Figure(
        picture=dots(f"Ladder of {site.name}, test accuracy", rows, (0.0, 1.0)),
        caption="Test accuracy of each step; the line is the interval. Open marks are not private; "
        f"'of all': fitted on the samples of all sites{seen}",
    )


def _baselines(site: SiteFacts) -> Baselines | None:
    record = site.summary.get("baselines")
    return Baselines.from_json(record) if record else None


def _steps(site: SiteFacts) -> Iterator[Row]:
    steps, accuracy = site.summary["ladder"], site.summary["accuracy"]
    known = _baselines(site)
    rivals = known.rivals if known else ()
    yield _row("most frequent class", steps["majority"], "mute")
    for rival in rivals:
        if rival.private:
            yield _row(f"{_kind(rival.model)}, public", rival.accuracy, "mute", "cross")
    yield _row("from public samples", steps["public"], "three", "diamond")
    yield _row("alone", steps["alone"], "two", "diamond")
    joined, tests = steps["joined"], site.outcome.tests
    span = wilson(joined, tests) if joined is not None and tests else None
    yield Row(name="joined", value=joined, told=share(joined), look="one", span=span, strong=True)
    yield _row("its network by itself", accuracy.get("network"), "one", "cross")
    yield _row("linear head of all", accuracy.get("pooled"), "ink", "ring")
    yield _row("boosted forest of all", accuracy.get("pooled_forest"), "ink", "ring")
    for rival in rivals:
        if not rival.private:
            yield _row(f"{_kind(rival.model)}, own", rival.accuracy, "ink", "ring")


def _kind(model: str) -> str:
    return {"random forest": "forest", "logistic regression": "regression"}[model]


def _row(name: str, value: float | None, look: str, mark: str = "dot") -> Row:
    return Row(name=name, value=value, told=share(value), look=look, mark=mark)


def _network(site: SiteFacts) -> Figure | None:
    """Its network as boxes; None where none was searched."""
    if site.search is None:
        return None
    table, genome, cost = site.search.cost_table, site.search.genome, site.search.cost
    layers, first = [], int(table[0].name == TRUNK)
    for k, layer in enumerate(table):
        block = genome.blocks[k - first] if first <= k < first + len(genome.blocks) else None
        if layer.name == TRUNK:
            name, what, look = "encoder", "layers", "two"
        elif isinstance(block, ConvBlock):
            name, what, look = "conv", f"{block.kernel_size}×{block.kernel_size}", "one"
        elif isinstance(block, PoolBlock):
            name, what, look = f"{block.kind} pool", "2×2", "two"
        elif isinstance(block, DenseBlock):
            name, what, look = block.kind, "layer", "one"
        elif block is not None:
            name, what, look = layer.name, "own block", "three"
        else:
            name, what, look = {"adapt": "mean"}.get(layer.name, layer.name), "linear", "three"
        out = "×".join(map(str, layer.out_shape))
        layers.append(Layer(name=name, what=what, out=out, parameters=layer.parameters, look=look))
    return Figure(
        picture=drawing(layers),
        caption=f"{genome}: {cost.parameters:,} parameters, {cost.macs:,} multiply-accumulates, "
        f"{cost.bytes / 1e3:,.1f} kB; below each layer its output and parameters",
    )


def _metrics(site: SiteFacts, classes: Sequence[str]) -> Table | None:
    """What accuracy hides; None where it was not measured."""
    if not site.summary.get("metrics"):
        return None
    m = Metrics.from_json(site.summary["metrics"])
    rows = [
        ("accuracy", share(m.accuracy)),
        ("balanced accuracy", share(m.balanced_accuracy)),
        ("AUROC", share(m.auroc)),
        ("macro F1", share(m.macro_f1)),
    ]
    for k, recall in enumerate(m.recall):
        if recall is not None:
            name = classes[k] if k < len(classes) else str(k)
            rows.append((f"recall of class {name}", share(recall)))
    return Table(
        caption="Figures on test samples",
        about=site.name,
        columns=("figure", "value"),
        rows=tuple(rows),
    )
