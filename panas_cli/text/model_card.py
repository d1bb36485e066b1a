"""The model card beside an exported network: Hugging Face's metadata, then Markdown.

It has public facts, and the privacy card of what was charged: no sample, no count of samples, no
time, no path of a machine. An accuracy is measured on private samples: it is there if the owner
asks for it.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dprbft.run.leaving import Covered, Promise
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.features.encoders.bits import BITS
from panas.privacy.accounting.events import ADD_OR_REMOVE
from panas.privacy.release.exclusions import EXCLUSIONS
from panas.training.checkpoint import SavedNetwork
from panas.training.export.formats import ENDINGS, OUTPUT, TOLERANCE, Format
from panas.training.export.program import input_name
from panas_cli.text.privacy_card import card_of, trust_lines

STAYS: dict[Covered, str] = {
    "stays": "it was trained without noise (privacy.network=stays)",
    "unprotected": "its run had no privacy budget",
    "selected": "validation samples selected its round and head, which no epsilon covers",
    "uncovered": "a charge of its run has no finite epsilon (`panas ledger`)",
    "unknown": "neither a ledger nor its file says what its training cost",
}
"""Why a network must stay at its site."""

LIBRARIES: dict[Format, str] = {"onnx": "onnx", "torch": "pytorch", "safetensors": "panas"}

USE: dict[Format, str] = {
    "onnx": """import onnxruntime

session = onnxruntime.InferenceSession("{file}")
probabilities = session.run(None, {{"{name}": {name}}})[0]""",
    "torch": """import torch

program = torch.export.load("{file}").module()  # can run code of the file
probabilities = program({name})""",
    "safetensors": """import panas

network = panas.load("{file}")
probabilities = network.predict_proba(samples)""",
}

READS = {
    "onnx": "`{name}` is a numpy array",
    "torch": "`{name}` is a tensor",
    "safetensors": "`samples` are images or rows as they are: `panas` prepares them",
}


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What a card is about."""

    file: str  # its name, without a folder
    form: Format
    network: SavedNetwork
    promise: Promise
    accuracy: float | None = None  # of the network on the site's test samples; None: not told


def model_card(e: Exported) -> str:
    """The card as Markdown."""
    parts = [
        _metadata(e),
        f"# {e.file.removesuffix(ENDINGS[e.form])}",
        _stays(e.promise),
        _about(e),
        _classes(e.network.facts),
        _input(e),
        _use(e),
        _privacy(e.promise),
        _accuracy(e),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _task(facts: Facts) -> str:
    return "image-classification" if facts.are_pictures else "tabular-classification"


def _metadata(e: Exported) -> str:
    """The block at the head, as the model hub of Hugging Face reads it."""
    task, promise = _task(e.network.facts), e.promise
    tags = ["panas", "federated-learning", "neural-architecture-search", e.form]
    tags += ["differential-privacy"] * promise.may_leave
    lines = [
        "---",
        "license: unknown",
        f"library_name: {LIBRARIES[e.form]}",
        f"pipeline_tag: {task}",
        "tags:",
        *(f"- {tag}" for tag in tags),
        "privacy:",
        f"  may_leave_its_site: {json.dumps(promise.may_leave)}",
        *(f"  {key}: {value}" for key, value in _terms(promise).items()),
    ]
    if e.accuracy is not None:
        lines += [
            "model-index:",
            f"- name: {json.dumps(e.file, ensure_ascii=False)}",
            "  results:",
            f"  - task: {{type: {task}}}",
            "    dataset: {name: private test samples of the site, type: private}",
            f"    metrics: [{{type: accuracy, value: {e.accuracy:.4f}}}]",
        ]
    return "\n".join([*lines, "---"])


def _terms(promise: Promise) -> dict[str, Any]:
    """Epsilon and delta, with the unit that they are for, as YAML values."""
    terms: dict[str, Any] = {}
    if promise.epsilon is not None:
        is_finite = math.isfinite(promise.epsilon)
        terms["epsilon"] = _rounded_up(promise.epsilon) if is_finite else ".inf"
    if promise.delta is not None:
        terms["delta"] = f"{promise.delta:.3e}"
    if promise.account is not None:
        terms["unit"] = json.dumps(promise.account.unit)
        terms["adjacency"] = promise.account.relation
    return terms


def _rounded_up(epsilon: float) -> str:
    return f"{math.ceil(epsilon * 1000) / 1000:.3f}" if math.isfinite(epsilon) else "infinity"


def _stays(promise: Promise) -> str:
    if promise.may_leave:
        return ""
    return (
        f"**This network must stay at its site: {STAYS[promise.covered]}.** It was exported all "
        "the same, because its owner asked for it. Whoever has it may learn single training "
        "samples. Do not publish it."
    )


def _about(e: Exported) -> str:
    saved = e.network
    weights = sum(p.numel() for p in saved.network.parameters())
    what = "rows of a table" if saved.facts.columns else "images"
    what = "vectors" if saved.facts.vectors else what
    first = ""
    if trunk := saved.trunk:
        encoder = trunk.facts
        first = (
            f"- Before it: the first layers of the public encoder `{encoder.name}` (SHA-256 "
            f"`{encoder.digest}...`), {trunk.parameters_held:,} weights, rounded to {BITS} bits. "
            "They are under that encoder's licence.\n"
        )
    return (
        f"A small classifier of {what}, {weights:,} weights. panas has searched its architecture "
        "and trained it for one site of a federation. The file holds its weights, its "
        "architecture, the public facts below and what is promised. It holds no sample.\n\n"
        f"- Architecture: `{saved.genome}` and a linear head. `c16k3` is a separable convolution "
        "to 16 channels with kernel 3, `max` and `avg` are 2 x 2 pooling.\n"
        f"{first}"
        f"- Its answers were compared with the network's before the file was written: on random "
        f"batches of 1 and 7 they differ by {TOLERANCE:g} at most."
    )


def _classes(facts: Facts) -> str:
    names = "\n".join(f"{i}. {_code(name)}" for i, name in enumerate(facts.class_names))
    return f"## Classes\n\nColumn of `{OUTPUT}`, from 0 on, and its class:\n\n{names}"


def _code(text: str) -> str:
    """A name from public facts, on one line and without a meaning in Markdown."""
    return f"`{json.dumps(text, ensure_ascii=False)[1:-1].replace('`', chr(39))}`"


def _input(e: Exported) -> str:
    facts, (c, h, w) = e.network.facts, e.network.facts.shape
    name = input_name(facts)
    if facts.columns:
        cells = ((_code(f.name), _cells(f)) for f in facts.columns)
        lines = "\n".join(
            "| {} | {} |".format(*(c.replace("|", "\\|") for c in row)) for row in cells
        )
        return (
            f"## Input\n\n`{name}`: float64, (n, {len(facts.columns)}), for any n from 1 on. A "
            "column each, in this order; a missing cell is NaN. Scaling is part of the file.\n\n"
            f"| column | cells |\n|---|---|\n{lines}"
        )
    if facts.vectors:
        return (
            f"## Input\n\n`{name}`: float32, vectors of {w} numbers as they are, (n, 1, 1, {w}), "
            "for any n from 1 on."
        )
    if facts.dtype == "uint8":
        values = "uint8, values 0 to 255"
    elif facts.unit:
        values = f"float32, values 0 to 1: those of pictures of {facts.bits} bits are divided by "
        values += f"{2**facts.bits - 1}"
    else:
        values = "float32, scaled as in training"
    grey = " (grey)" if c == 1 else ""
    return (
        f"## Input\n\n`{name}`: {values}, (n, {c}, {h}, {w}), for any n from 1 on: channels{grey}, "
        "height, width. Scaling is part of the file. Pictures of another size must be resized "
        "(bilinear) first."
    )


def _cells(column: Column) -> str:
    if column.kind == "number":
        return "number"
    if column.kind == "date":
        return "days since 1970-01-01 (UTC)"
    if column.categories:
        codes = ", ".join(f"{i} for {_code(c)}" for i, c in enumerate(column.categories))
        return f"{codes}, -1 for any other text"
    return (
        "of a text its `hashlib.blake2b(text.encode(), digest_size=1, "
        'person=b"panas column").digest()[0]`'
    )


def _use(e: Exported) -> str:
    name = input_name(e.network.facts)
    code = USE[e.form].format(file=e.file, name=name)
    reads = READS[e.form].format(name=name)
    note = f"Here {reads}. The result has a row for each sample and sums to 1 over the classes."
    return f"## Use\n\n```python\n{code}\n```\n\n{note}"


def _privacy(promise: Promise) -> str:
    return "\n".join(["## Privacy", "", *_promised(promise), "", *_not_covered()])


def _promised(promise: Promise) -> Iterator[str]:
    if not promise.may_leave:
        yield f"Nothing is promised: {STAYS[promise.covered]}."
        if promise.account is None:
            return
        yield ""
    terms = f"epsilon = {_rounded_up(promise.epsilon)}" if promise.epsilon is not None else ""
    terms += f" at delta = {promise.delta:g}" if promise.delta is not None else ""
    account = promise.account
    if account is None:
        yield f"Trained with differential privacy: {terms}, for one training sample."
        return
    neighbours = "added or removed" if account.relation == ADD_OR_REMOVE else "replaced"
    yield (
        f"{terms[0].upper()}{terms[1:]}, for {account.unit} {neighbours}. This is everything that "
        "the run charged to the site's ledger. Other releases about the same samples add to it."
    )
    yield ""
    yield "| mechanism | phase | seen by | epsilon |"
    yield "|---|---|---|---|"
    for row in card_of(account, 1)["mechanisms"]:
        price = _rounded_up(float(row["epsilon"]))
        yield f"| {row['mechanism']} | {row['phase']} | {row['recipient']} | {price} |"
    for line in trust_lines(account, 0):
        yield ""
        yield f"This holds {' '.join(line.split())}."
    yield ""
    yield "| in the file | covered by |"
    yield "|---|---|"
    covered = "the mechanisms above" if promise.may_leave else "nothing"
    yield f"| weights, architecture | {covered}; they are computed from these and public samples |"
    yield "| class names, shape, columns and scale | nothing: they are public facts |"


def _not_covered() -> Iterator[str]:
    yield "Not covered:"
    yield ""
    yield from (f"- {what}" for what in EXCLUSIONS)


def _accuracy(e: Exported) -> str:
    if e.accuracy is None:
        return ""
    return (
        f"## Accuracy\n\n{e.accuracy:.4f} on the site's private test samples. No epsilon covers "
        "this figure; its owner chose to tell it."
    )
