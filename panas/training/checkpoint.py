"""One trained network as a file: weights in safetensors, and all it takes to build it again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panas.architecture.blocks import BlockType
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, Head, NetworkSpec, build_bottom
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, write_tensors


def save_network(
    path: Path,
    bottom: Bottom,
    head: Head,
    *,
    genome: Genome,
    spec: NetworkSpec,
    notes: dict[str, Any],
) -> None:
    """Write bottom and head to `path`; `notes` is any JSON-able extra, say client and round."""
    tensors = {f"bottom.{k}": v for k, v in bottom.state_dict().items()}
    tensors |= {f"head.{k}": v for k, v in head.state_dict().items()}
    classes, width = head.linear.weight.shape
    about = {
        "genome": str(genome),
        "shape": spec.shape,
        "norm": spec.norm,
        "width": width,
        "classes": classes,
        "unit": bottom.unit,
        "notes": notes,
    }
    write_tensors(path, tensors, {"network": json.dumps(about)})


def load_network(
    path: Path, blocks: Sequence[BlockType] = ()
) -> tuple[Bottom, Head, dict[str, Any]]:
    """Read what `save_network` wrote: bottom and head in evaluation mode, and its description.

    Args:
        path: the file.
        blocks: custom blocks that its genome may name.

    Raises:
        BadInput: if the file is missing, damaged, or no network of this project.

    """
    tensors, metadata = read_tensors(path)
    if "network" not in metadata:
        raise BadInput(f"expected a network saved by panas at {path}, got another safetensors file")
    about = json.loads(metadata["network"])
    bottom = build_bottom(
        Genome.parse(about["genome"], blocks),
        shape=tuple(about["shape"]),
        width=about["width"],
        norm=about["norm"],
        unit=about["unit"],
    )
    head = Head(about["width"], about["classes"])
    for prefix, module in (("bottom.", bottom), ("head.", head)):
        module.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
    return bottom.eval(), head.eval(), about
