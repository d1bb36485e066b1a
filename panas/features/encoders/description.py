"""What pictures an encoder reads: their size, channels, mean and deviation.

| key | what it is | unless it is given |
|---|---|---|
| `size` | pixels of a side, or [height, width] | that of the file's input, else 224 |
| `channels` | 1 or 3 | that of the file's input, else 3 |
| `mean`, `std` | of each channel, or one number for all | ImageNet's of 3 channels, .5 of one |
| `scale` | the largest pixel that these are meant for, as 255 | 1 |

They stand in NAME.toml or encoder.toml beside the encoder's file; else in the file itself, as JSON
under the name `encoder` (of ONNX's metadata) or `encoder.json` (of a program's extra files).
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panas.data.encoder import FARTHEST, LOWEST, Shape
from panas.runtime.errors import BadInput

USUAL_SIDE, USUAL_CHANNELS = 224, 3
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
KEYS = ("size", "channels", "mean", "std", "scale")
EMBEDDED = "encoder"

Input = tuple[Shape, tuple[float, ...], tuple[float, ...]]
"""Shape, mean and deviation of the pictures that an encoder reads."""


def description(path: Path, embedded: str) -> dict[str, Any]:
    """What is said of an encoder's input; an empty dictionary where nothing is.

    Args:
        path: of its file.
        embedded: JSON from the file itself, or empty.
    """
    for beside in (path.with_suffix(".toml"), path.parent / "encoder.toml"):
        if beside.is_file():
            try:
                return _checked(tomllib.loads(beside.read_text()), str(beside))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
                raise BadInput(f"expected TOML in {beside}, got a file that does not parse") from e
    try:
        return _checked(json.loads(embedded), f"{path}, of its input") if embedded else {}
    except (ValueError, RecursionError) as e:
        raise BadInput(f"expected JSON of its input in {path}, got other metadata") from e


def _checked(record: object, where: str) -> dict[str, Any]:
    if not isinstance(record, dict) or (set(record) - set(KEYS)):
        raise BadInput(f"expected {', '.join(KEYS)} alone in {where}, got others; leave them out")
    return record


def input_of(said: Mapping[str, Any], own: Shape | None, where: Path) -> Input:
    """Shape, mean and deviation.

    Args:
        said: by `description`.
        own: (channels, height, width) of the file's input; None where it takes any.
        where: the encoder's file, for messages.
    """
    c, h, w = own or (USUAL_CHANNELS, USUAL_SIDE, USUAL_SIDE)
    size, c = said.get("size", [h, w]), said.get("channels", c)
    height, width = size if isinstance(size, list) and len(size) == 2 else (size, size)
    if not all(type(n) is int for n in (c, height, width)):
        raise BadInput(f"expected whole numbers as size and channels beside {where}, got others")
    if own is not None and (c, height, width) != own:
        raise BadInput(
            f"expected pictures of {own}, as {where} was made for, got {(c, height, width)}; "
            "change size and channels, or export it for these"
        )
    mean, std = IMAGENET if c == len(IMAGENET[0]) else ((0.5,) * c, (0.5,) * c)
    scale = _numbers(said.get("scale", 1.0), 1, where)[0]
    if not scale > 0:
        raise BadInput(f"expected a scale above 0 beside {where}, got {scale}; 255 is usual")
    if "mean" in said:
        mean = tuple(v / scale for v in _numbers(said["mean"], c, where))
    if "std" in said:
        std = tuple(v / scale for v in _numbers(said["std"], c, where))
    for key, values in (("mean", mean), ("std", std)):
        if not all(LOWEST[key] <= v <= FARTHEST for v in values):
            raise BadInput(
                f"expected mean and std of pixels from 0 to 1 beside {where} (NAME.toml or "
                f"encoder.toml), got {key} = {list(values)!r:.80}; give scale = 255 with those of "
                "pixels up to 255"
            )
    return (c, height, width), mean, std


def _numbers(given: object, many: int, where: Path) -> tuple[float, ...]:
    values = given if isinstance(given, list) else [given] * many
    if len(values) != many or not all(type(v) in (int, float) for v in values):
        raise BadInput(
            f"expected one number, or one for each of {many} channels, as mean, std and scale "
            f"beside {where}, got others"
        )
    return tuple(map(float, values))
