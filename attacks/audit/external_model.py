"""Audit a network that was trained elsewhere: a file of weights, what it was trained on, and more.

Membership is asked of its answers (`attacks.audit.membership`). If its answers to private images
are seen by others, as in inference by a server, reconstruction from them says what they give away:
half of the samples that it was not trained on serve the attack, which knows the answers to them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attacks.audit.membership import NetworkAudit, audit_network
from attacks.audit.network_file import load_query
from attacks.audit.pictures import draw_curves, draw_images
from attacks.audit.verdict import judge
from attacks.inference.membership import GenomeTrainer, Query, logits
from attacks.reconstruction.decoder import decoder_inverter
from attacks.reconstruction.metrics import candidates, score
from attacks.reconstruction.ridge import ridge_inverter
from attacks.statistics import clopper_pearson
from attacks.threats import controls
from attacks.threats.knowledge import SHADOW, LeakedPairs
from attacks.threats.observation import MIN_PUBLIC, Observation
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.load import load_members
from panas.data.samples import Samples, concat
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.runtime.store import read_json, write_bytes, write_json
from panas.training.evaluate import EVALUATION_BATCH

SHADOW_GENOME = Genome.parse("c32k3-max-c64k3")
"""Of the shadows of a network whose architecture is unknown."""

SCORED = 500
"""Members that reconstructions are scored on, at most."""

DECODER_EPOCHS = 30

ACCURACY_TOLERANCE = 0.02
"""By how much a network's accuracy on its training samples may differ from what is known of it."""

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
    accuracy: float | None = None,
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
        model: its file. Loading a .pt2 can run code that is in it.
        data: what it was trained on: an .npz archive, a .csv table or a folder of pictures.
        others: like samples that it was not trained on; None: the other parts of the archive.
        label: name of a table's label column.
        mean: that the network's own preprocessing takes off values in [0, 1], one or one a channel.
        std: that it divides by.
        accuracy: that it is known to have on what it was trained on, in [0, 1]; another one found
            here means wrong arguments. None: it is not known.
        epsilon: that it claims; None: it claims nothing.
        delta: of the claim.
        shadows: networks that LiRA trains, at least 2; 0 leaves it out.
        outputs: whether its answers to private images are seen by others.
        workers: processes that train shadows.
        seed: of all that is drawn.
        out: folder for `audit.json` and pictures, not that of a run; None writes nothing.
        on_progress: told of each step, a short text at a time.

    Returns:
        The record: "model", "duplicates" (others that were among the members, and left out),
        "network" (membership), "outputs" (None without), "verdict".

    Raises:
        BadInput: if a file cannot be read, network and samples do not match, the accuracy is
            another than the known one, or `out` is taken.

    Privacy: reads private samples, and writes scores and pictures of them: the auditor's, and no
    release. With `outputs` the pictures show private images.

    """
    tell = on_progress or (lambda _: None)
    if out is not None:
        _check_free(out)
    found = load_members(data, others, label=label)
    members, rest = found.members, found.others
    rng = stream(seed, "audit", "model")
    half = rng.permutation(len(rest))
    if min(len(rest) // 2, len(members)) < MIN_PUBLIC:
        twice = f" besides {found.duplicates} that are among these" * (found.duplicates > 0)
        raise BadInput(
            f"expected at least {2 * MIN_PUBLIC} samples that were not trained on, and "
            f"{MIN_PUBLIC} that were, got {len(rest)} and {len(members)}{twice}; give more"
        )
    probe = concat([s.take(range(min(len(s), EVALUATION_BATCH))) for s in (members, rest)])
    query, genome, classes = load_query(model, probe, mean, std)
    members, rest = (_labelled(s, classes, found.names, model.name) for s in (members, rest))
    public, apart = rest.take(half[::2]), rest.take(half[1::2])
    if accuracy is not None:
        _check_accuracy(query, members, accuracy)
    tell(MEMBERSHIP)
    spec = NetworkSpec(shape=members.shape, classes=classes, width=64)
    network = audit_network(
        query,
        members,
        apart if shadows else rest,
        rng=rng,
        claim=epsilon,
        delta=delta,
        public=public,
        train=GenomeTrainer(genome=genome or SHADOW_GENOME, spec=spec, optimizer=SHADOW),
        shadows=shadows,
        workers=workers,
    )
    network = _doubted(network, members)
    pictures = {"members": draw_curves(network.curves, f"{model.name}: {network.verdict}")}
    record: dict[str, Any] = {"model": model.name, "scale": "[-1, 1]"}
    record |= {"duplicates": found.duplicates}
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


def _check_free(out: Path) -> None:
    """Refuse a folder for the record that is none, or that holds something else."""
    for folder in (out, *out.parents):
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"expected a folder for --out, got {out}, where {folder} is a file")
    taken = (out / "config.toml").exists()
    if not taken and (out / "audit.json").exists():
        try:
            taken = "model" not in read_json(out / "audit.json")
        except BadInput:
            taken = True
    if taken:
        raise BadInput(
            f"expected a folder of its own for --out, got {out}, which holds a run or the audit "
            "of one; give another"
        )


def _labelled(samples: Samples, outputs: int, names: tuple[str, ...], model: str) -> Samples:
    """The samples, their labels being indices of a network's outputs."""
    if names and len(names) != outputs:
        raise BadInput(
            f"expected as many classes by name as {model} has outputs, {outputs}, got {len(names)} "
            f"({', '.join(names)[:100]}); give labels as numbers, the indices of its outputs"
        )
    wrong = samples.y[(samples.y < 0) | (samples.y >= outputs)]
    if len(wrong):
        raise BadInput(
            f"expected labels from 0 to {outputs - 1}, the indices of the {outputs} outputs of "
            f"{model}, got {int(wrong[0])}; number them as in its training"
        )
    return replace(samples, classes=outputs)


def _check_accuracy(query: Query, members: Samples, known: float) -> None:
    """Refuse a network that is not what is known of it."""
    right = logits(query, members).argmax(1) == members.y
    measured = float(right.double().mean())
    if not abs(measured - known) <= ACCURACY_TOLERANCE + 1e-9:
        raise BadInput(
            f"expected accuracy {known:g} on what it was trained on, got {measured:.3g}; check "
            "--mean, --std and the labels"
        )


def _doubted(network: NetworkAudit, members: Samples) -> NetworkAudit:
    """No silence from a network that knows nothing: it may have been asked wrongly."""
    n = len(members)
    surely, _ = clopper_pearson(round(network.accuracy[0] * n), n, 0.98)  # the lower end: 99 %
    if surely > int(members.histogram().max()) / n:
        return network
    return replace(
        network,
        verdict="leaks" if network.verdict == "leaks" else "inconclusive",
        evidence="it knows its training samples no better than by the commonest class: check "
        f"--mean, --std and the labels; {network.evidence}",
    )


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
