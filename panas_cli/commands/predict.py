"""`panas predict`: classes and probabilities of new samples, by a site's predictor or network.

| column | what it is |
|---|---|
| `row` or `file` | number of the row, from 1 on; or a picture's path |
| `class` | the most probable one |
| `p_NAME` | probability of class NAME |

In JSON an object has `classes` and `predictions`, each with `row` or `file`, `class` and
`probabilities`. Both are written whole or not at all.
"""

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from dprbft.run.models import Model, SavedModels, models_of
from panas.api import load
from panas.data.batches import are_files, batches_of
from panas.data.files.dialect import Dialect
from panas.runtime.store import copy_parts, write_parts
from panas.training.checkpoint import Classifier

New = tuple[str, Dialect]
"""Path of new samples, and how they are written where they are a table."""

DIGITS = ".6g"
"""Of a probability."""


def predict(
    source: Path,
    new: New,
    site: str | None,
    model: Model | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Classify new samples, and write class and probabilities of each.

    Args:
        source: a run's directory, or a file of a predictor or network.
        new: path of the samples, and how they are written where they are a table.
        site: by name; None where there is one only.
        model: predictor or network; None: the predictor, if there is one.
        out: a .csv or .json; None: stdout.
        as_json: JSON on stdout in the place of CSV.
    """
    saved: SavedModels = models_of(source, site)
    classifier = load(saved.file(model))
    is_json = as_json or (out is not None and out.suffix.lower() == ".json")
    parts = (_json if is_json else _csv)(classifier, new)
    if out is None:
        copy_parts(parts, sys.stdout.buffer)
        sys.stdout.flush()
    else:
        write_parts(out, parts)


def _rows(classifier: Classifier, new: New) -> Iterator[list[tuple[str, str, list[float]]]]:
    """Name, class and probabilities of each sample, a batch at a time."""
    data, dialect = new
    for batch in batches_of(data, classifier.facts, dialect=dialect):
        p = classifier.probabilities_of(batch.inputs)
        yield list(zip(batch.names, classifier.names_of(p), p.tolist(), strict=True))


def _csv(classifier: Classifier, new: New) -> Iterator[bytes]:
    key = "file" if are_files(new[0]) else "row"
    header = [key, "class", *(f"p_{name}" for name in classifier.class_names)]
    for number, rows in enumerate(_rows(classifier, new)):
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        if not number:
            lines.writerow(header)
        lines.writerows([name, winner, *(format(x, DIGITS) for x in p)] for name, winner, p in rows)
        yield text.getvalue().encode()


def _json(classifier: Classifier, new: New) -> Iterator[bytes]:
    key = "file" if are_files(new[0]) else "row"
    names = classifier.class_names
    before = f'{{"classes": {json.dumps(names)}, "predictions": ['
    for rows in _rows(classifier, new):
        for name, winner, p in rows:
            shares = {n: float(format(x, DIGITS)) for n, x in zip(names, p, strict=True)}
            label = name if key == "file" else int(name)
            record = {key: label, "class": winner, "probabilities": shares}
            yield f"{before}\n{json.dumps(record, allow_nan=False)}".encode()
            before = ","
    yield b"\n]}\n"
