"""Audit a network that was trained elsewhere: who is in its training, what its answers give away.

Where others see its answers to private images, as in inference by a server, images are
reconstructed from them: the attack learns on half of the samples that it was not trained on.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attacks.audit.membership import NetworkAudit, PrivacyClaim, audit_network
from attacks.audit.pictures import draw_curves, draw_samples
from attacks.audit.records import as_json
from attacks.audit.target import ExternalModel, Target, load_target
from attacks.audit.verdict import Verdict, judge
from attacks.inference.membership import GenomeTrainer, ShadowConfig, logits
from attacks.reconstruction.inverters import decoder_inverter, ridge_inverter
from attacks.reconstruction.metrics import ReconstructionScore, candidates, score
from attacks.reconstruction.suite import ALL_OTHERS, SHOWN, OnProgress, informed
from attacks.statistics import clopper_pearson
from attacks.threats import controls
from attacks.threats.observation import SHADOW, LeakedPairs, Observation
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.runtime.store import read_json, write_bytes, write_json

SHADOW_GENOME = Genome.parse("c32k3-max-c64k3")
"""Of the shadows of a network whose architecture is unknown."""

SCORED = 500  # members that reconstructions are scored on, at most
OTHERS = 2000  # and those besides that tell what all others look like, at most
DECODER_EPOCHS = 30
MEMBERSHIP = "membership"  # the first step that an audit tells of


@dataclass(frozen=True, kw_only=True)
class ModelAuditConfig:
    """What is asked of a network."""

    shadows: int = 0  # networks that LiRA and RMIA train, at least 2; 0: without
    outputs: bool = False  # whether its answers to private images are seen by others
    workers: int = 1  # processes that train shadows
    seed: int = 0  # of all that is drawn


DEFAULT = ModelAuditConfig()


@dataclass(frozen=True, kw_only=True)
class OutputsAudit:
    """What reconstruction from a network's answers came to."""

    samples: int
    attacks: tuple[ReconstructionScore, ...]
    controls: tuple[ReconstructionScore, ...]
    verdict: Verdict
    evidence: str


@dataclass(frozen=True, kw_only=True)
class ModelAudit:
    """What the audit of a network trained elsewhere came to."""

    model: str  # name of its file
    duplicates: int  # others that were among the members, and left out
    network: NetworkAudit
    outputs: OutputsAudit | None  # None where nobody sees its answers

    @property
    def verdict(self) -> Verdict:
        """Of both."""
        seen = self.outputs and self.outputs.verdict
        if seen and (seen == "leaks" or self.network.verdict == "no better than blind"):
            return seen
        return self.network.verdict

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        return {"model": self.model, "scale": "[-1, 1]"} | as_json(self) | {"verdict": self.verdict}


def audit_model(
    model: ExternalModel,
    config: ModelAuditConfig = DEFAULT,
    *,
    out: Path | None = None,
    on_progress: OnProgress = lambda _: None,
) -> ModelAudit:
    """Attack a network, and say what that shows.

    Args:
        model: the network, and what it was trained on.
        config: what is asked of it.
        out: folder for `audit.json` and pictures, not that of a run; None writes nothing.
        on_progress: told of each step, a short text at a time.

    Raises:
        BadInput: if a file cannot be read, network and samples do not match, the accuracy is
            another than the known one, or `out` is taken.

    Privacy: reads private samples, and writes scores and pictures of them: the auditor's, and no
    release. With `outputs` the pictures show private images.

    """
    if out is not None:
        _check_free(out)
    rng = stream(config.seed, "audit", "model")
    target = load_target(model, rng)
    on_progress(MEMBERSHIP)
    network = _membership(target, model.claim, config, rng)
    pictures = {"members": draw_curves(network.curves, f"{model.file.name}: {network.verdict}")}
    outputs = None
    if config.outputs:
        on_progress("reconstruction from its answers")
        outputs, pictures["images"] = _outputs(target, rng)
    audit = ModelAudit(
        model=model.file.name, duplicates=target.duplicates, network=network, outputs=outputs
    )
    if out is not None:
        for name, content in pictures.items():
            write_bytes(out / f"{name}.png", content)
        write_json(out / "audit.json", audit.to_json())
    return audit


def _membership(
    target: Target, claim: PrivacyClaim, config: ModelAuditConfig, rng: np.random.Generator
) -> NetworkAudit:
    members, shadows = target.members, None
    if config.shadows:
        spec = NetworkSpec(shape=members.shape, classes=members.classes, width=64)
        shadows = ShadowConfig(
            public=target.public,
            train=GenomeTrainer(genome=target.genome or SHADOW_GENOME, spec=spec, optimizer=SHADOW),
            count=config.shadows,
            share=0.8,
            workers=config.workers,
        )
    others = target.apart if shadows else target.others
    audit = audit_network(target.query, members, others, rng=rng, claim=claim, shadows=shadows)
    return _doubted(audit, members)


def _check_free(out: Path) -> None:
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


def _outputs(target: Target, rng: np.random.Generator) -> tuple[OutputsAudit, bytes]:
    """Reconstruction of members from the answers to them, and a picture."""
    query, members, public = target.query, target.members, target.public
    order = rng.permutation(len(members))
    chosen = members.take(np.sort(order[:SCORED]))
    others = members.take(order[SCORED : SCORED + OTHERS])
    arrays = {"z": logits(query, chosen).float(), "y": chosen.y}
    knowledge = LeakedPairs(logits(query, public).float(), public)
    seen = Observation("the network", "raw_rows", arrays, None, knowledge, public)
    truth, mean = chosen.inputs(), controls.mean_image(public)
    among, rows = candidates(chosen.y, rng=rng), seen.released()
    images = {
        "ridge": ridge_inverter(seen, rng=rng)(rows),
        "decoder": decoder_inverter(seen, epochs=DECODER_EPOCHS, rng=rng)(rows),
    }
    blind = {
        "mean image": mean.expand_as(truth),
        "same-class mean": controls.same_class_mean(public, chosen.y),
        **controls.by_others(public, chosen, others if len(others) else None),
    }
    guesses = blind["others' regression"]
    for name, result in list(images.items()):
        images[f"{name} ({ALL_OTHERS})"] = informed(result, chosen, guesses)
    attacks, beside = (
        tuple(score(k, truth, x, mean, rng=rng, among=among) for k, x in named.items())
        for named in (images, blind)
    )
    verdict, evidence = judge(attacks, beside, rng=rng, groups=chosen.groups)
    audit = OutputsAudit(
        samples=len(chosen), attacks=attacks, controls=beside, verdict=verdict, evidence=evidence
    )
    shown = images | {name: x for name, x in blind.items() if name in SHOWN}
    return audit, draw_samples(chosen, shown, target.columns, f"from its answers: {verdict}")
