"""Audit a network that was trained elsewhere: a file of weights, what it was trained on, and more.

| file | read as |
|---|---|
| `.safetensors` | a network that panas saved |
| `.pt2` | a program of `torch.export`, images (b, c, h, w) to logits (b, classes), b dynamic |

A program has no data to unpickle but tensors; other formats of torch run whatever they hold and
are refused. Images come in [-1, 1], which the network sees as ((x + 1) / 2 - mean) / std.

Membership is asked of its answers (`attacks.network_audit`). If its answers to private images are
seen by others, as in inference by a server, reconstruction from them says what they give away: half
of the samples that it was not trained on serve the attack, which knows the answers to them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attacks import controls
from attacks.decoder import decoder_inverter
from attacks.membership import GenomeTrainer, Query, logits
from attacks.metrics import candidates, score
from attacks.network_audit import audit_network
from attacks.observation import MIN_PUBLIC, Observation
from attacks.pictures import draw_curves, draw_images
from attacks.ridge import ridge_inverter
from attacks.threats import SHADOW, LeakedPairs
from attacks.verdict import judge
from panas.checkpoint import load_network
from panas.data.dataset import Samples
from panas.data.files import one_line
from panas.data.sources import load_members
from panas.errors import BadInput
from panas.genome import Genome
from panas.network import Blueprint
from panas.seeds import stream
from panas.store import write_bytes, write_json

SHADOW_GENOME = Genome.parse("c32k3-max-c64k3")
"""Of the shadows of a network whose architecture is unknown."""

SCORED = 500
"""Members that reconstructions are scored on, at most."""

DECODER_EPOCHS = 30

Tell = Callable[[str], None]

MEMBERSHIP = "membership"
"""The first step that an audit tells of."""


def audit_model(
    model: Path,
    data: str,
    *,
    others: str | None = None,
    label: str | None = None,
    mean: Sequence[float] = (0.5,),
    std: Sequence[float] = (0.5,),
    epsilon: float | None = None,
    delta: float = 1e-5,
    shadows: int = 0,
    outputs: bool = False,
    workers: int = 1,
    seed: int = 0,
    out: Path | None = None,
    on_progress: Tell | None = None,
) -> dict[str, Any]:
    """Attack a network, and say what that shows.

    Args:
        model: its file.
        data: what it was trained on: an .npz archive, a .csv table or a folder of pictures.
        others: like samples that it was not trained on; None: the other parts of the archive.
        label: name of a table's label column.
        mean: that the network's own preprocessing takes off values in [0, 1], one or one a channel.
        std: that it divides by.
        epsilon: that it claims; None: it claims nothing.
        delta: of the claim.
        shadows: networks that LiRA trains, at least 2; 0 leaves it out.
        outputs: whether its answers to private images are seen by others.
        workers: processes that train shadows.
        seed: of all that is drawn.
        out: folder for `audit.json` and pictures; None writes nothing.
        on_progress: told of each step, a short text at a time.

    Returns:
        The record: "model", "network" (membership), "outputs" (None without), "verdict".

    Raises:
        BadInput: if a file cannot be read, or network and samples do not match.

    """
    tell = on_progress or (lambda _: None)
    members, rest = load_members(data, others, label=label)
    query, genome = load_query(model, members, mean, std)
    rng = stream(seed, "audit", "model")
    half = rng.permutation(len(rest))
    public, apart = rest.take(half[::2]), rest.take(half[1::2])
    if min(len(public), len(apart), len(members)) < MIN_PUBLIC:
        raise BadInput(
            f"expected at least {2 * MIN_PUBLIC} samples that were not trained on, and "
            f"{MIN_PUBLIC} that were, got {len(rest)} and {len(members)}; give more"
        )
    tell(MEMBERSHIP)
    blueprint = Blueprint(shape=members.shape, classes=members.classes, width=64)
    network = audit_network(
        query,
        members,
        apart if shadows else rest,
        rng=rng,
        claim=epsilon,
        delta=delta,
        public=public,
        train=GenomeTrainer(genome=genome or SHADOW_GENOME, blueprint=blueprint, how=SHADOW),
        shadows=shadows,
        workers=workers,
    )
    pictures = {"members": draw_curves(network.curves, f"{model.name}: {network.verdict}")}
    record: dict[str, Any] = {"model": model.name, "scale": "[-1, 1]"}
    record |= {"network": network.to_json(), "outputs": None, "verdict": network.verdict}
    if outputs:
        tell("reconstruction from its answers")
        seen, picture = _outputs(query, members, public, rng)
        record["outputs"], pictures["images"] = seen, picture
        if seen["verdict"] == "leaks" or network.verdict == "no better than blind":
            record["verdict"] = seen["verdict"]
    if out is not None:
        for name, content in pictures.items():
            write_bytes(out / f"{name}.png", content)
        write_json(out / "audit.json", record)
    return record


def load_query(
    model: Path, samples: Samples, mean: Sequence[float], std: Sequence[float]
) -> tuple[Query, Genome | None]:
    """A way to ask the network of a file, and its genome if it is one of panas.

    Raises:
        BadInput: if the file is none of the two kinds, or refuses the samples.

    """
    c = samples.shape[0]
    if any(len(v) not in (1, c) for v in (mean, std)) or not all(s > 0 for s in std):
        raise BadInput(
            f"expected one mean and one std above 0, or {c} each, got {list(mean)} and "
            f"{list(std)}; give what the network was trained with"
        )
    genome: Genome | None = None
    if model.suffix == ".safetensors":
        bottom, head, about = load_network(model)
        genome = Genome.parse(about["genome"])
        network: Callable[[Tensor], Tensor] = nn.Sequential(bottom, head).eval()
        if tuple(about["shape"]) != samples.shape:
            raise BadInput(
                f"expected images {tuple(about['shape'])} for {model.name}, got {samples.shape}; "
                "give the data that it was trained on"
            )
    elif model.suffix == ".pt2" and model.is_file():
        try:
            network = torch.export.load(model).module()
        except Exception as error:  # whatever torch makes of a damaged file
            raise BadInput(
                f"expected a program of torch.export at {model}, got: {one_line(error)}; "
                "save it again"
            ) from error
    else:
        raise BadInput(
            f"expected a .safetensors file of panas or a .pt2 file of torch.export at {model}, "
            "got another or none; export it with torch.export.save"
        )
    shift, scale = (torch.tensor(v, dtype=torch.float32).view(1, -1, 1, 1) for v in (mean, std))

    def ask(x: Tensor) -> Tensor:
        with torch.no_grad():
            return network(((x + 1) / 2 - shift) / scale)

    try:
        ask(samples.inputs(torch.arange(min(3, len(samples)))))
    except Exception as error:  # shapes, types, fixed batch sizes: each in torch's own words
        raise BadInput(
            f"expected {model.name} to take images {samples.shape} in batches of any size, got: "
            f"{one_line(error)}; export it with a dynamic batch"
        ) from error
    return ask, genome


def _outputs(
    query: Query, members: Samples, public: Samples, rng: np.random.Generator
) -> tuple[dict[str, Any], bytes]:
    """Reconstruction of members from the network's answers to them."""
    chosen = members.take(np.sort(rng.permutation(len(members))[:SCORED]))
    arrays = {"z": logits(query, chosen).float(), "y": chosen.y}
    knowledge = LeakedPairs(logits(query, public).float(), public)
    seen = Observation(0, "raw_rows", arrays, None, knowledge, public)
    truth, mean = chosen.inputs(), controls.mean_image(public)
    among, rows = candidates(chosen.y, rng=rng), seen.released()
    images = {
        "ridge": ridge_inverter(seen, rng=rng)(rows),
        "decoder": decoder_inverter(seen, epochs=DECODER_EPOCHS, rng=rng)(rows),
    }
    blind = {
        "mean image": mean.expand_as(truth),
        "same-class mean": controls.same_class_mean(public, chosen.y),
    }
    attacks, beside = (
        [score(k, truth, x, mean, rng=rng, among=among) for k, x in named.items()]
        for named in (images, blind)
    )
    verdict, evidence = judge(attacks, beside, rng=rng)
    record = {
        "samples": len(chosen),
        "attacks": [s.to_json() for s in attacks],
        "controls": [s.to_json() for s in beside],
        "verdict": verdict,
        "evidence": evidence,
    }
    return record, draw_images(truth, chosen.y, images | blind, f"from its answers: {verdict}")
