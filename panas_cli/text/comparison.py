"""The table of a comparison: as text on stdout, as Markdown, as CSV."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panas_cli.text.printing import (
    counted,
    figure,
    print_table,
    print_text,
    print_words,
    size_text,
)

Figures = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]
"""Headers, and the cells of each line."""

NAMES = {"balanced_accuracy": "balanced", "auroc": "AUROC", "macro_f1": "macro F1"}


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    row: str | None
    method: str
    column: str
    figures: Figures


def print_table_of(record: Mapping[str, Any], folder: Path) -> None:
    """The table, and what its figures mean, on stdout."""
    if record["experiment"]:
        print_words(record["experiment"]["title"])
        print_text("")
    for row in record["rows"] or [None]:
        lines = [line for line in lines_of(record) if line.row == row]
        if row is not None:
            print_text(row)
        for headers, cells in (_quality(record, lines), _costs(record, lines)):
            print_table(headers, cells, left=2, keys=2)
            print_text("")
    for text in (*meaning(record), *warnings(record), f"directory: {folder}"):
        print_words(text)


def lines_of(record: Mapping[str, Any]) -> Iterator[Line]:
    """All lines of the table: by row, then by method, then by column."""
    for row in record["rows"] or [None]:
        for method, entry in record["methods"].items():
            part = entry["rows"].get(row, {"columns": {}}) if row else entry
            for column, figures in part["columns"].items():
                yield Line(row, method, column, figures)


def as_markdown(record: Mapping[str, Any]) -> str:
    """A document: a table of figures and one of rounds and bytes to each target, by row."""
    about = record["experiment"]
    parts = [f"# {about['title']}" if about else "# Comparison", ""]
    if about:
        parts += [
            f"Source: {about['source']}",
            "",
            *([about["about"], ""] if about["about"] else []),
        ]
    for row in record["rows"] or [None]:
        lines = [line for line in lines_of(record) if line.row == row]
        parts += [f"## {row}", ""] if row is not None else []
        for table in (_quality(record, lines), _costs(record, lines)):
            parts += [*_markdown(*table, left=2), ""]
        if record["targets"]:
            heads = ["method", "column", *(f"to {t:g}" for t in record["targets"])]
            cells = [[x.method, x.column, *map(_target, _goals(record, x))] for x in lines]
            parts += [*_markdown(heads, cells, left=2), ""]
        parts += _published(record, row)
    parts += [f"- {text}" for text in (*meaning(record), *warnings(record))]
    return "\n".join(parts) + "\n"


def as_csv(record: Mapping[str, Any]) -> str:
    """One line a row, method and column; names of figures as in compare.json."""
    rows = [
        {"row": x.row or "", "method": x.method, "column": x.column, **_flat(x.figures)}
        for x in lines_of(record)
    ]
    every = dict.fromkeys(name for row in rows for name in row)
    # A figure that one line has in parts, and another not at all, is a column for each part.
    whole = {name.rpartition(".")[0] for name in every}
    names = [name for name in every if name not in whole]
    content = io.StringIO()
    writer = csv.DictWriter(content, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return content.getvalue()


def meaning(record: Mapping[str, Any]) -> list[str]:
    """What the figures are."""
    first, seeds = record["first"], len(record["seeds"])
    lines = [
        f"accuracy: mean and standard deviation over sites and {counted(seeds, 'seed')}, on the "
        "sites' own test splits: the simulator's view",
        "rounds to an accuracy: until the mean over sites is there; in brackets, in how many runs",
        "epsilon: of everything that left, as the ledgers have it; the worst site",
        *_kept_at_home(record),
        *_trusted(record),
    ]
    if len(record["methods"]) > 1:
        lines.insert(
            1,
            f"over {first}: mean difference in points with its standard error, and p of a paired "
            "t-test, over pairs of the same site and seed",
        )
    return lines


def _kept_at_home(record: Mapping[str, Any]) -> list[str]:
    names = [x.method for x in lines_of(record) if not x.figures["up_bytes"]]
    if not names:
        return []
    who = ", ".join(dict.fromkeys(names))
    return [f"epsilon of {who}, which sent nothing: what its models would cost, were they shown"]


def _trusted(record: Mapping[str, Any]) -> list[str]:
    return [
        f"epsilon of {x.method} ({x.column}){_row(x)}: as long as {' and '.join(rests)}"
        for x in lines_of(record)
        if (rests := x.figures["trust"])
    ]


def _row(line: Line) -> str:
    return f" in {line.row}" if line.row else ""


def warnings(record: Mapping[str, Any]) -> list[str]:
    """What a reader must know besides."""
    lines = []
    for x in lines_of(record):
        f = x.figures
        if f["sites_above_majority"] < f["sites"]:
            lines.append(
                f"warning: {x.method} ({x.column}){_row(x)} is above the most frequent class at "
                f"{f['sites_above_majority']} of {f['sites']} sites"
            )
    lines += [f"warning: {name} is left out: {why}" for name, why in record["left_out"].items()]
    lines += [f"warning: {f['run']} ended early: {f['reason']}" for f in record["stopped"]]
    lines += [f"warning: {f['run']} has no figures: {f['reason']}" for f in record["failed"]]
    return lines


def _quality(record: Mapping[str, Any], lines: Sequence[Line]) -> Table:
    metric, first = record["metric"], record["first"]
    name, colon, k = metric.partition(":")
    told = f"{name} of class {k}" if colon else NAMES.get(name, name)
    own = [] if metric == "accuracy" else [told]
    others = {name: told for name, told in NAMES.items() if name != metric}
    rows = []
    for line in lines:
        f, chosen = line.figures, [figure(_metric(line.figures, metric))] if own else []
        difference, p = difference_texts(f["difference"])
        rows.append(
            [
                *(line.method, line.column, *chosen, _spread(f["accuracy"])),
                *(figure(f["majority"]), difference, p),
                *(figure(f["metrics"][name]) for name in others),
                _epsilon(f["epsilon"]),
            ]
        )
    heads = ["method", "column", *own, "accuracy", "majority", f"over {first}", "p"]
    return [*heads, *others.values(), "epsilon"], rows


def _costs(record: Mapping[str, Any], lines: Sequence[Line]) -> Table:
    rows = []
    for line in lines:
        f = line.figures
        rows.append(
            [
                *(line.method, line.column, size_text(f["up_bytes"])),
                *(size_text(f["down_bytes"]), f"{f['rounds']:g}"),
                *map(_rounds, _goals(record, line)),
                *(figure(f["parameters"], ",.0f"), figure(f["macs"], ",.0f")),
                *(f"{f['search_seconds']:.1f}", f"{f['seconds']:.1f}"),
            ]
        )
    goals = [f"to {target:g}" for target in record["targets"]]
    heads = ["method", "column", "up", "down", "rounds", *goals, "parameters", "MACs"]
    return [*heads, "search, s", "all, s"], rows


def _metric(figures: Figures, metric: str) -> float | None:
    """A figure by its name; of f1 and recall that of a class, as f1:1."""
    name, colon, k = metric.partition(":")
    value: Any = figures["metrics"][name]
    if not colon:
        return None if value is None else float(value)
    return value[int(k)] if int(k) < len(value) else None


def difference_texts(record: Mapping[str, Any] | None) -> tuple[str, str]:
    """A paired difference in points with its standard error, and p of its test."""
    if record is None:
        return "-", "-"
    error = "" if record["error"] is None else f" ± {100 * record['error']:.1f}"
    return f"{100 * record['mean']:+.1f}{error}", figure(record["p"], ".2g")


def _spread(record: Mapping[str, float]) -> str:
    return f"{record['mean']:.3f} ± {record['std']:.3f}"


def _epsilon(spent: float | str) -> str:
    return "infinite" if math.isinf(float(spent)) else f"{float(spent):.2f}"


def _goals(record: Mapping[str, Any], line: Line) -> list[Mapping[str, Any]]:
    return [line.figures["targets"][f"{target:g}"] for target in record["targets"]]


def _rounds(target: Mapping[str, Any]) -> str:
    """Rounds to a target, and how many of the runs got there where not all did."""
    if target["rounds"] is None:
        return "-"
    some = f" ({target['reached']} of {target['runs']})"
    return f"{target['rounds']:g}{some if target['reached'] < target['runs'] else ''}"


def _target(target: Mapping[str, Any]) -> str:
    if target["rounds"] is None:
        return "-"
    return f"{_rounds(target)}: {size_text(target['up_bytes'] + target['down_bytes'])}"


def _markdown(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """A table whose first columns, `left` of them, are flush left: figures are flush right."""
    sides = ["---" if k < left else "---:" for k in range(len(headers))]
    lines = [headers, sides, *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _published(record: Mapping[str, Any], row: str | None) -> list[str]:
    about = record["experiment"]
    lines = [x for x in about["published"] if x["row"] == row] if about else []
    if not lines:
        return []
    names = list(dict.fromkeys(name for line in lines for name in line["figures"]))
    ours = {
        method: (entry["rows"].get(row, {"columns": {}}) if row else entry)["columns"]
        for method, entry in record["methods"].items()
    }
    columns = record["columns"]
    cells = []
    for line in lines:
        texts = [figure(line["figures"].get(name), "g") for name in names]
        known = ours.get(line["method"], {})
        here = [_spread(known[c]["accuracy"]) if c in known else "-" for c in columns]
        cells.append([line["method"], *texts, *here])
    heads = ["published", *names, *(f"accuracy here, {column}" for column in columns)]
    return [*_markdown(heads, cells, left=1), ""]


def _flat(figures: Figures, prefix: str = "") -> dict[str, Any]:
    """Nested figures as one line; curves are in compare.json alone."""
    flat = dict[str, Any]()
    for name, value in figures.items():
        if name == "curve":
            continue
        if isinstance(value, Mapping) and name != "about":
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            words = isinstance(value, (list, Mapping))
            flat[f"{prefix}{name}"] = json.dumps(value) if words else value
    return flat
