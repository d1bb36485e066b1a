"""Changes of a request's parts: what a hostile hub would try, by part.

A change takes a draft and a source of randomness, and changes the draft. What a part no longer has
is left as it is, so that a change of the messages does not stop the attack.
"""

import json
import math
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch

from benchmarks.hostile_hub.drafts import Draft, announcing, repacked, tensors_of
from benchmarks.hostile_hub.settings import DELTAS, EPSILONS, JUNK, NUMBERS, SEEDS, SETTINGS
from benchmarks.hostile_hub.sites import TARGET

Change = Callable[[Draft, random.Random], None]


def one_setting(draft: Draft, rng: random.Random) -> None:
    """A setting of a section to a value that some hub might send."""
    (section, name), values = rng.choice(list(SETTINGS.items()))
    if isinstance(draft.config.get(section), dict):
        draft.config[section][name] = rng.choice(values)
        if name == "clients" and rng.random() < 0.5:
            draft.config[section]["remote"] = []


def method(draft: Draft, rng: random.Random) -> None:
    """Another method, with whatever else it needs left as it was."""
    if isinstance(draft.config.get("federation"), dict):
        draft.config["federation"]["method"] = rng.choice(("joined", "local", "dprbft", "fedavg"))
        draft.config.get("privacy", {})["network"] = rng.choice(("stays", "protected"))


def seed(draft: Draft, rng: random.Random) -> None:
    """The run's seed."""
    draft.config["seed"] = rng.choice(SEEDS)


def any_setting(draft: Draft, rng: random.Random) -> None:
    """Any leaf of the settings to anything."""
    _anywhere(draft.config, rng)
    draft.canonical = rng.random() < 0.7


def epsilon(draft: Draft, rng: random.Random) -> None:
    """The run's budget."""
    privacy = draft.config.get("privacy", {})
    privacy["epsilon"], privacy["delta"] = rng.choice(EPSILONS), rng.choice(DELTAS)


def column(draft: Draft, rng: random.Random) -> None:
    """How a column of a table becomes numbers: the scale that tells whether a value is there."""
    columns = draft.facts.get("columns")
    if not columns:
        return
    if rng.random() < 0.2:  # 0/0 at one value alone
        columns[0].update(centre=TARGET, reach=rng.choice((0, 0.0, 1e-300)))
        return
    chosen = rng.choice(columns)
    values: Mapping[str, tuple[Any, ...]] = {
        "centre": (TARGET, 0.0, 1e300, -1e300, *NUMBERS, *JUNK),
        "reach": (0, 0.0, -0.0, -1.0, 1e-300, 1e-9, 1e300, None, *NUMBERS, *JUNK),
        "kind": ("number", "text", "date", "none", *JUNK),
        "categories": (["51.5"], ["w"], ["x"] * 10**4, [""], [1], *JUNK),
        "missing": (True, False, 1, *JUNK),
        "name": ("age", "dose", "other", "label", *JUNK),
    }
    name = rng.choice(list(values))
    chosen[name] = rng.choice(values[name])
    if name == "centre" and rng.random() < 0.5:
        chosen["reach"] = rng.choice((0, 0.0, 1e-12))


def form(draft: Draft, rng: random.Random) -> None:
    """Shape, type, depth and classes of samples."""
    facts = draft.facts
    names = facts.get("class_names") or ["x"]
    values: Mapping[str, tuple[Any, ...]] = {
        "bits": (*range(8, 17), *NUMBERS, *JUNK),
        "shape": ([1, 8, 8], [1, 2, 2], [3, 8, 8], [10**6, 10**6, 10**6], [0, 0, 0], [-1], *JUNK),
        "dtype": ("uint8", "float32", "float64", "object", *JUNK),
        "unit": (True, False, *NUMBERS, *JUNK),
        "class_names": (
            *(names[1:], names[:-1], names[::-1], [*names, "q"], [*names, names[0]], []),
            *([str(i) for i in range(10**4)], [["x"]], [1, 2, 3], *JUNK),
        ),
        "columns": ([], [{}], [[]], (facts.get("columns") or [])[::-1], *JUNK),
    }
    name = rng.choice(list(values))
    facts[name] = rng.choice(values[name])


def any_fact(draft: Draft, rng: random.Random) -> None:
    """Any leaf of the facts to anything."""
    _anywhere(draft.facts, rng)


def nested(draft: Draft, rng: random.Random) -> None:
    """Facts or a field of the hello as lists in lists."""
    if rng.random() < 0.3 and draft.hello is not None:
        draft.texts[rng.choice(("config", "facts"))] = rng.choice("[{") * rng.choice((900, 10**5))
        return
    deep: Any = rng.choice(NUMBERS)
    for _ in range(rng.choice((3, 50, 200))):
        deep = [deep]
    target = rng.choice((draft.facts, draft.config, draft.hello or {}))
    if target:
        target[rng.choice(list(target))] = deep


def hello_field(draft: Draft, rng: random.Random) -> None:
    """A field of the hello: number, run, files, version."""
    if draft.hello is None:
        return
    name = rng.choice([k for k in draft.hello if k not in ("config", "facts")])
    draft.hello[name] = rng.choice((*NUMBERS, *JUNK, "public", "map", "trial", "0.0"))


def header_field(draft: Draft, rng: random.Random) -> None:
    """A field of the frame's header."""
    name = rng.choice(list(draft.header))
    draft.header[name] = rng.choice((*NUMBERS, *JUNK, "hello", "train", "trial", "north", "south"))


def public_file(draft: Draft, rng: random.Random) -> None:
    """A file that came with the hello: its numbers, shapes, labels, header or bytes."""
    if not draft.files:
        return
    name = rng.choice(list(draft.files))
    content = draft.files[name]
    how = rng.choice(("numbers", "labels", "shape", "announce", "cut", "flip", "none", "other"))
    if how == "none":
        del draft.files[name]
    elif how == "other":
        draft.files[rng.choice(("public", "unlabelled", "map", "x"))] = content
    elif how in ("cut", "flip"):
        draft.files[name] = damaged(content, rng)
    elif how == "announce" and len(content) > 8:
        shape = rng.choice(([10**13, 2], [2**31, 2**31], [0, 0], [-1, 4], [1] * 900))
        draft.files[name] = announcing(content, shape, rng.choice(("F32", "I64", "U8")))
    else:
        draft.files[name] = _other_numbers(content, how, rng)


def _other_numbers(content: bytes, how: str, rng: random.Random) -> bytes:
    tensors, notes = tensors_of(content)
    if not tensors:
        return content
    name = "y" if how == "labels" and "y" in tensors else rng.choice(list(tensors))
    result = tensors[name].clone()
    if how == "shape":
        shapes = (
            result[:0],
            result[:1],
            result.flatten(),
            result[None],
            result.repeat(2, *_ones(result)),
        )
        tensors[name] = rng.choice(shapes)
    else:
        worst = NUMBERS if result.is_floating_point() else (-1, 3, 4, 10**6, 2**31 - 1)
        result = result.to(torch.int64) if how == "labels" else result
        value = rng.choice(worst)
        at = slice(None) if rng.random() < 0.5 else slice(0, 1)
        try:
            result[at] = value
        except (RuntimeError, OverflowError, ValueError):
            result[at] = 0
        tensors[name] = result
    return repacked(tensors, notes)


def _ones(found: torch.Tensor) -> list[int]:
    return [1] * (found.dim() - 1)


def broadcast(draft: Draft, rng: random.Random) -> None:
    """A head of another size, round or of other numbers, or an order of another."""
    if not draft.content:
        draft.content = rng.choice((b"x", b"{}", bytes(100)))
        return
    tensors, _ = tensors_of(draft.content)
    if "weight" in tensors and "bias" in tensors and rng.random() < 0.8:
        weight, bias = tensors["weight"].clone(), tensors["bias"].clone()
        value = rng.choice((0.0, 1.0, -1e3, 1e20, 1e30, 3e38, math.inf, math.nan))
        weight = weight * 0 + value if rng.random() < 0.6 else weight
        bias = bias * 0 + value if rng.random() < 0.3 else bias
        if rng.random() < 0.2:
            weight = rng.choice((weight[:, :-1], weight[:-1], weight.repeat(1, 2), weight[:0]))
        round = rng.choice((0, 0, 1, 1, 2, -1, 10**9, 2**70))
        notes = {"message": json.dumps({"type": "broadcast", "round": round})}
        draft.content = repacked({"weight": weight, "bias": bias}, notes)
    elif tensors and rng.random() < 0.7:
        draft.content = _other_numbers(draft.content, rng.choice(("numbers", "shape")), rng)
    else:
        draft.content = damaged(draft.content, rng)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes that are cut, turned or filled."""
    if not content:
        return b"x"
    at = rng.randrange(len(content))
    if rng.random() < 0.4:
        return content[:at]
    if rng.random() < 0.5:
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    return content[:at] + rng.randbytes(rng.randrange(1, 40)) + content[at:]


def _anywhere(tree: Any, rng: random.Random) -> None:
    """Set one leaf of a tree of JSON."""
    while isinstance(tree, dict | list) and tree:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = rng.choice(keys)
        if isinstance(tree[key], dict | list) and tree[key] and rng.random() < 0.9:
            tree = tree[key]
            continue
        tree[key] = json.loads(json.dumps(rng.choice((*NUMBERS, *JUNK))))
        return


OF_HELLO: Mapping[str, tuple[int, Change]] = {
    "column": (4, column),
    "form": (4, form),
    "fact": (2, any_fact),
    "setting": (6, one_setting),
    "leaf": (2, any_setting),
    "epsilon": (3, epsilon),
    "method": (2, method),
    "seed": (1, seed),
    "nested": (1, nested),
    "hello": (2, hello_field),
    "header": (1, header_field),
    "file": (4, public_file),
}
"""Changes of a hello, each with its weight."""
OF_OTHERS: Mapping[str, tuple[int, Change]] = {
    "broadcast": (6, broadcast),
    "header": (1, header_field),
}
"""Changes of all other requests."""


def change(draft: Draft, rng: random.Random) -> str:
    """Make one change that suits the request; returns what it is called.

    Nothing more is changed where an earlier change has left no such part.
    """
    table = OF_OTHERS if draft.hello is None else OF_HELLO
    name = rng.choices(list(table), [weight for weight, _ in table.values()])[0]
    with suppress(TypeError, AttributeError, LookupError, ValueError):
        table[name][1](draft, rng)
    return name
