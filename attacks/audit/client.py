"""Audit one client: attack what it released, and score it against the truth.

With `attacks.audit.evidence` the only module that holds a run's private samples. It makes an
`Observation` of the client's last release, runs the attacks of `attacks.reconstruction.suite` on
at most `audit.samples` training samples, compares the release with what the ledger was charged for
it (`attacks.epsilon.release`), asks the network that the client keeps who was in its training
(`attacks.audit.membership`), and says in a word and a sentence what that shows
(`attacks.audit.verdict`).

`public_rows` hold no private row: attacks have class means at best, and the evidence says so.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from attacks.audit.evidence import (
    ClaimedNoise,
    epsilons,
    load_release,
    promise,
    sent_head,
)
from attacks.audit.membership import PrivacyClaim, audit_network
from attacks.audit.pictures import draw_curves, draw_images
from attacks.audit.resume import Audited
from attacks.audit.verdict import judge, with_claim
from attacks.epsilon.release import ReleaseAudit, ReleaseClaim, audit_release
from attacks.inference.labels import infer_labels, score_histogram, score_labels
from attacks.inference.membership import GenomeTrainer, ShadowConfig, query_of
from attacks.reconstruction.suite import OnProgress, SuiteConfig, attack_release
from attacks.threats.knowledge import SHADOW, LeakedPairs, Shadow, WhiteBox, shadow
from attacks.threats.observation import MIN_PUBLIC, Observation
from dprbft.config.files import load_config
from dprbft.config.schema import RunConfig
from dprbft.messages import Release
from dprbft.paths import model_file, release_file
from dprbft.simulation.federation import ClientData, Federation, load_federation
from dprbft.site.site import spec_of
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import is_noised, kind_named
from panas.runtime.seeds import stream
from panas.training.checkpoint import load_network
from panas.training.evaluate import represent
from panas.training.sgd import OptimizerConfig

LEAKED = 32
"""Private samples that leak to one of the threat models; they are not scored."""


def audit_client(run: Path, id: int, *, shadows: int, on_progress: OnProgress) -> Audited:
    """The record of one client, and its pictures.

    Args:
        run: a run directory.
        id: whose.
        shadows: networks that LiRA trains; 0 leaves it out.
        on_progress: told what is being attacked.

    Raises:
        BadInput: if a file is damaged, not finite or of other shapes than the run's.

    Privacy: see `attacks.audit.run.audit_run`.

    """
    config = load_config(run)
    federation = load_federation(config)
    spent = epsilons(run).get(id)
    job = _Job(run, config, federation, federation.clients[id], spent, on_progress)
    record, pictures = _audit_release(job)
    network, curves = _audit_network(job, shadows=shadows)
    return record | {"network": network}, pictures | curves


@dataclass(frozen=True)
class _Job:
    """One client's audit."""

    run: Path
    config: RunConfig
    federation: Federation
    client: ClientData
    spent: float | None
    """Epsilon that the ledger claims; None without an account."""
    on_progress: OnProgress


def _audit_release(job: _Job) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The record of what a client released, and pictures of it."""
    config, client, public = job.config, job.client, job.federation.public
    record: dict[str, Any] = {"id": client.id, "release": None, "round": None}
    record |= {"noise_multiplier": None, "epsilon": _plain(job.spent), "samples": 0}
    record |= {"attacks": [], "controls": [], "labels": None, "claim": None}
    if not release_file(job.run, client.id).is_file():
        evidence = f"client {client.id} released nothing: there is nothing to attack"
        return record | {"verdict": "nothing left", "evidence": evidence}, {}
    release, bottom, genome = load_release(job.run, config, job.federation, client)
    rng = stream(config.seed, "audit", client.id)
    samples = client.train
    record |= {"release": release.kind, "round": release.round}
    record |= {"noise_multiplier": release.noise_multiplier}
    promised = promise(job.run, release)
    claim = _claim(job, release, promised, bottom, samples)
    record |= {"claim": claim and claim.to_json()}
    if len(public) < MIN_PUBLIC:
        verdict, evidence = with_claim(
            "inconclusive",
            f"client {client.id} was not attacked, which says nothing: an attack learns from at "
            f"least {MIN_PUBLIC} public samples, and there are {len(public)}",
            claim,
            job.spent,
            promised.fault,
        )
        return record | {"verdict": verdict, "evidence": evidence}, {}
    order = rng.permutation(len(samples))
    spared = min(LEAKED, len(samples) // 10)
    chosen, leaked = np.sort(order[spared:][: config.audit.samples]), order[:spared]
    private = samples.take(chosen)
    observation = Observation(
        client.id,
        release.kind,
        release.arrays,
        release.noise_multiplier,
        WhiteBox(bottom),
        public,
        head=sent_head(config, job.federation),
    )
    if not observation.by_class:
        # Each row is attacked on its own: those not scored can go.
        rows = {name: values[torch.from_numpy(chosen)] for name, values in release.arrays.items()}
        observation = replace(observation, arrays=rows)
    found = attack_release(
        observation,
        private,
        SuiteConfig(
            epochs=config.audit.decoder_epochs,
            weaker=_weaker(job, observation, genome, samples.take(leaked), rng),
        ),
        rng=rng,
        on_progress=job.on_progress,
    )
    labels = _labels(observation, samples.y if observation.by_class else private.y, rng)
    verdict, evidence = judge(found.attacks, found.controls, rng=rng)
    if rows := labels["rows"]:
        evidence += f"; {rows['accuracy']:.1%} of the labels guessed (blind {rows['blind']:.1%})"
    verdict, evidence = with_claim(verdict, evidence, claim, job.spent, promised.fault)
    if kind_named(release.kind).READS == "public":
        evidence = f"no private row was released, public rows only; {evidence}"
    spent = "unknown" if job.spent is None else f"{job.spent:.3g}"
    title = f"client {client.id}, {release.kind}, epsilon {spent}: {verdict}"
    return record | {
        "samples": len(private),
        "attacks": [s.to_json() for s in found.attacks],
        "controls": [s.to_json() for s in found.controls],
        "labels": labels,
        "verdict": verdict,
        "evidence": evidence,
    }, {"images": draw_images(private.inputs(), private.y, found.images, title)}


def _weaker(
    job: _Job,
    observation: Observation[WhiteBox],
    genome: Genome,
    leaked: Samples,
    rng: np.random.Generator,
) -> list[Shadow | LeakedPairs]:
    """The other threat models: a shadow network, and a few leaked pairs where there are enough."""
    asked, known = job.config.audit.threats, list[Shadow | LeakedPairs]()
    # A shadow is read along the directions that the head tells apart: with one class, none.
    if "shadow" in asked and job.federation.classes > 1:
        job.on_progress(f"client {job.client.id}: a shadow network")
        spec, head = spec_of(job.config, job.federation), observation.head
        assert head is not None
        optimizer = _shadowing(job)
        known.append(shadow(genome, spec, head, observation.public, rng=rng, optimizer=optimizer))
    if "leaked pairs" in asked and len(leaked) >= MIN_PUBLIC:
        known.append(LeakedPairs(represent(observation.knowledge.bottom, leaked), leaked))
    return known


def _labels(
    observation: Observation[WhiteBox], truth: Int[Tensor, "n"], rng: np.random.Generator
) -> dict[str, Any]:
    """What the release says of labels: of rows, and of the histogram."""
    found = infer_labels(observation, rng=rng)
    rows = None
    if found.labels is not None:
        rows = score_labels(found.labels, truth, observation.public).to_json()
    histogram = score_histogram(found, truth, observation.public)
    return {"rows": rows, "histogram": histogram.to_json()}


def _claim(
    job: _Job, release: Release, promised: ClaimedNoise, bottom: Bottom, samples: Samples
) -> ReleaseAudit | None:
    """The audit of what was charged for a release; None where that promises nothing."""
    if not promised.noise_multiplier or not is_noised(kind_named(release.kind)):
        return None
    job.on_progress(f"client {job.client.id}: noise and claim of the release")
    claim = ReleaseClaim(
        kind=release.kind,
        arrays=release.arrays,
        truth=Rows(represent(bottom, samples), samples.y),
        classes=job.federation.classes,
        noise_multiplier=promised.noise_multiplier,
    )
    # Of all clients together: one false alarm in twenty audits.
    return audit_release(claim, confidence=1 - 0.05 / len(job.federation.clients))


def _audit_network(job: _Job, *, shadows: int) -> tuple[dict[str, Any] | None, dict[str, bytes]]:
    """The record of the network that a client keeps, and its curves; None where it has none."""
    path, client, public = model_file(job.run, job.client.id), job.client, job.federation.public
    # With one class every answer is right, for whomever.
    few = min(len(client.train), len(client.test), job.federation.classes) < 2
    if few or not path.is_file():
        return None, {}
    job.on_progress(f"client {client.id}: membership")
    saved = load_network(path)
    trainer = GenomeTrainer(
        genome=saved.genome,
        spec=spec_of(job.config, job.federation),
        optimizer=_shadowing(job),
    )
    config = None
    if shadows and len(public) >= MIN_PUBLIC:
        config = ShadowConfig(public=public, train=trainer, count=shadows, share=0.8)
    found = audit_network(
        query_of(nn.Sequential(saved.bottom, saved.head)),
        client.train,
        client.test,
        rng=stream(job.config.seed, "audit", "network", client.id),
        claim=PrivacyClaim(epsilon=job.spent, delta=job.config.privacy.delta),
        shadows=config,
    )
    title = f"client {client.id}, its network: {found.verdict}"
    return found.to_json(), {"members": draw_curves(found.curves, title)}


def _shadowing(job: _Job) -> OptimizerConfig:
    return replace(SHADOW, epochs=job.config.audit.decoder_epochs)


def _plain(epsilon: float | None) -> float | str | None:
    return "infinity" if epsilon is not None and math.isinf(epsilon) else epsilon
