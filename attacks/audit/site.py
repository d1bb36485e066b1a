"""Audit one site: attack its last release and its network, and score that against the truth.

Privacy: with `attacks.audit.evidence` the only module that holds a run's private samples, of which
at most `audit.samples` are scored. Public rows hold no private row: attacks have class means at
best, and the evidence says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from attacks.audit.conformance import Conformance, conformance
from attacks.audit.evidence import ClaimedNoise, Received, histogram_scale, load_release, promise
from attacks.audit.masked import masked_evidence
from attacks.audit.membership import STAYS, NetworkAudit, PrivacyClaim, audit_network
from attacks.audit.named import gaussian_mu
from attacks.audit.pictures import draw_curves, draw_samples
from attacks.audit.records import DrawnAudit, SiteAudit
from attacks.audit.verdict import judge, with_claim
from attacks.conformance.company import Noise
from attacks.conformance.finding import ERROR, alarms
from attacks.epsilon.release import ReleaseAudit, ReleaseClaim, audit_release, noise_of
from attacks.inference.labels import audit_labels
from attacks.inference.membership import GenomeTrainer, ShadowConfig, query_of
from attacks.reconstruction.suite import OnProgress, SuiteConfig, attack_release
from attacks.threats.observation import (
    MIN_PUBLIC,
    SHADOW,
    LabelCounts,
    LeakedPairs,
    Observation,
    Shadow,
    WhiteBox,
    gradient_path,
    rows_of,
    shadow,
)
from dprbft.config.files import load_config
from dprbft.config.schema import RunConfig
from dprbft.messages import Release
from dprbft.paths import model_file
from dprbft.run.view import RunView
from dprbft.site.data import SiteData
from dprbft.site.site import check_book, spec_of
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples, concat
from panas.privacy.release.estimate import Rows
from panas.privacy.release.histogram import unit_counts
from panas.privacy.release.kind import is_noised, kind_named
from panas.runtime.seeds import stream, torch_generator
from panas.training.checkpoint import load_network
from panas.training.sgd import OptimizerConfig

LEAKED = 32
"""Private samples that leak to one of the threat models; they are not scored."""

OTHERS = 2000
"""Unscored training samples that tell what all others of a site look like, at most."""

FALSE_ALARMS = 0.01
"""How often the bounds on epsilon of a sound run's releases may refute a claim, all together."""


def audit_site(run: Path, id: int, *, shadows: int, on_progress: OnProgress) -> DrawnAudit:
    """The audit of one site, and its pictures; see `attacks.audit.run.audit_run`.

    Args:
        run: the run's directory.
        id: number of the site, from 0.
        shadows: networks of LiRA; 0 leaves it out.
        on_progress: called with each step.
    """
    view = RunView(run, load_config(run))
    ledger = check_book(view.sites[id])
    spent = ledger.account().of_run(view.sites[id].run).spent() if ledger.is_open else None
    job = _Job(view, view.encoded_site(id), spent, on_progress)
    audit, pictures, noise = _audit_release(job)
    network, curves = _audit_network(job, shadows=shadows)
    return DrawnAudit(replace(audit, network=network), pictures | curves, noise)


def noise_of_site(run: Path, id: int) -> Noise:
    """The noise of a site's last release; none where none was sent, or none is claimed.

    Args:
        run: the run's directory.
        id: number of the site, from 0.
    """
    view = RunView(run, load_config(run))
    job = _Job(view, view.encoded_site(id), None, lambda _: None)
    received = load_release(view, job.site)
    if received is None:
        return {}
    return conformance(_claim(job, received, promise(run, received.release))).noise


@dataclass(frozen=True)
class _Job:
    view: RunView
    site: SiteData
    spent: float | None  # epsilon that the ledger claims for the run; None without an account
    on_progress: OnProgress

    @property
    def name(self) -> str:
        return self.view.sites[self.site.id].name

    @property
    def config(self) -> RunConfig:
        return self.view.config

    @property
    def spec(self) -> NetworkSpec:
        return spec_of(self.view.config, self.view.facts)

    @property
    def first_head(self) -> Head:
        """The head before round 1, which everybody can compute; later ones stay near it."""
        return self.spec.head(torch_generator(stream(self.config.seed, "head")))


def _audit_release(job: _Job) -> tuple[SiteAudit, dict[str, bytes], Noise]:
    public = job.view.public
    about = SiteAudit(
        id=job.site.id,
        name=job.name,
        epsilon=job.spent,
        verdict="nothing left",
        evidence="it released nothing: there is nothing to attack",
    )
    received = load_release(job.view, job.site)
    if received is None:
        return _of_masked(job, about), {}, {}
    release, promised = received.release, promise(job.view.run, received.release)
    claim = _claim(job, received, promised)
    tested = conformance(claim)
    about = replace(
        about,
        release=release.kind,
        round=release.round,
        noise_multiplier=release.noise_multiplier,
        claim=_audit_claim(job, claim),
        findings=tested.findings,
        verdict="inconclusive",
        evidence="it was not attacked, which says nothing: an attack learns from at "
        f"least {MIN_PUBLIC} public samples, and there are {len(public)}",
    )
    attacked, draw = (about, None) if len(public) < MIN_PUBLIC else _attack(job, received, about)
    verdict, evidence = with_claim(
        attacked.verdict,
        attacked.evidence,
        about.claim,
        job.spent,
        _fault(job, release, promised, tested),
    )
    if draw is None:
        return replace(attacked, verdict=verdict, evidence=evidence), {}, tested.noise
    if kind_named(release.kind).READS == "public":
        evidence = f"no private row was released, public rows only; {evidence}"
    title = f"{job.name}, {release.kind}, {_epsilon(job.spent)}: {verdict}"
    attacked = replace(attacked, verdict=verdict, evidence=evidence)
    return attacked, {"images": draw(title)}, tested.noise


def _of_masked(job: _Job, about: SiteAudit) -> SiteAudit:
    """The audit of a site of which no release arrived: it sent nothing, or a masked vector."""
    if not job.config.secure_sum:
        return about
    masked = masked_evidence(job.view, job.site.id)
    if masked is None:
        return about
    sites = len(job.view.sites)
    found = [str(alarm) for alarm in alarms(masked.findings, ERROR / 2 / sites)]
    fault = masked.fault or next(iter(found), None)
    verdict, evidence = with_claim("masked", masked.promised, None, job.spent, fault)
    return replace(about, verdict=verdict, evidence=evidence, findings=masked.findings)


def _epsilon(spent: float | None) -> str:
    if spent is None:
        return "epsilon unknown"
    return f"epsilon {spent:.3g}" if math.isfinite(spent) else "infinite epsilon"


def _fault(job: _Job, release: Release, promised: ClaimedNoise, tested: Conformance) -> str | None:
    """What contradicts the ledger: of the release, or of the label histogram beside it."""
    scale, histogram = histogram_scale(job.view.run, release), release.histogram
    found = [str(alarm) for alarm in tested.alarms(len(job.view.sites))]
    fault = promised.fault or next(iter(found), None)
    if fault or histogram is None or scale is None:
        return fault
    train = job.site.train
    exact = unit_counts(train.y, train.groups, train.classes)
    part = noise_of("label histogram", histogram.counts, exact, scale)
    if not part.wrong:
        return None
    low, high = part.interval
    return f"the noise of its {part.name} is {part.ratio:.3f} [{low:.3f}, {high:.3f}] of its claim"


def _attack(
    job: _Job, received: Received, about: SiteAudit
) -> tuple[SiteAudit, Callable[[str], bytes]]:
    """What attacks and controls came to, and what draws them under a title."""
    config, samples = job.config, job.site.train
    rng = stream(config.seed, "audit", job.site.id)
    order = rng.permutation(len(samples))
    leaked, rest = np.split(order, [min(LEAKED, len(samples) // 10)])
    chosen, unscored = np.sort(rest[: config.audit.samples]), rest[config.audit.samples :]
    private, release = samples.take(chosen), received.release
    others = samples.take(np.concatenate([leaked, unscored])[:OTHERS])
    observation = Observation(
        job.name,
        release.kind,
        release.arrays,
        release.noise_multiplier,
        WhiteBox(received.made_by),
        job.view.public,
        head=None if received.genome is None else job.first_head,
        histogram=_counts(job, release),
    )
    if not observation.by_class:  # each row is attacked on its own: those not scored can go
        at = torch.from_numpy(chosen)
        arrays = {name: values[at] for name, values in observation.arrays.items()}
        observation = replace(observation, arrays=arrays)
    suite = SuiteConfig(
        epochs=config.audit.decoder_epochs,
        weaker=_weaker(job, observation, received.genome, samples.take(leaked), rng),
        held_out=job.site.test,
        others=concat([replace(others, part=None), replace(job.site.test, part=None)]),
    )
    rebuilt = attack_release(observation, private, suite, rng=rng, on_progress=job.on_progress)
    labels = audit_labels(observation, samples.y if observation.by_class else private.y, rng)
    attacks, controls = rebuilt.attacks, rebuilt.controls
    sites, groups = len(job.view.sites), private.groups
    verdict, evidence = judge(attacks, controls, rng=rng, sites=sites, groups=groups)
    if rows := labels.rows:
        evidence += f"; {rows.accuracy:.1%} of the labels guessed (blind {rows.blind:.1%})"
    if gradient_path(received.made_by) is None:
        evidence += "; no sample was sought by optimisation: the map's trees pass no gradient"
    audit = replace(
        about,
        samples=len(private),
        attacks=tuple(attacks),
        controls=tuple(controls),
        labels=labels,
        verdict=verdict,
        evidence=evidence,
    )
    return audit, partial(draw_samples, private, rebuilt.images, job.view.facts.columns)


def _counts(job: _Job, release: Release) -> LabelCounts | None:
    if release.histogram is None:
        return None
    scale = histogram_scale(job.view.run, release)
    return LabelCounts(release.histogram.counts, scale or 0.0)


def _weaker(
    job: _Job,
    observation: Observation[WhiteBox],
    genome: Genome | None,
    leaked: Samples,
    rng: np.random.Generator,
) -> list[Shadow | LeakedPairs]:
    """The other threat models: a shadow of a network, and few leaked pairs, if there are enough."""
    asked, known = job.config.audit.threats, list[Shadow | LeakedPairs]()
    # A shadow is read along the directions that the head tells apart: with one class, none.
    head, classes = observation.head, job.view.facts.classes
    if "shadow" in asked and genome is not None and head is not None and classes > 1:
        job.on_progress(f"{job.name}: a shadow network")
        spec = job.spec
        optimizer = _shadowing(job)
        known.append(shadow(genome, spec, head, observation.public, rng=rng, optimizer=optimizer))
    if "leaked pairs" in asked and len(leaked) >= MIN_PUBLIC:
        known.append(LeakedPairs(rows_of(observation.knowledge.representation, leaked), leaked))
    return known


def _claim(job: _Job, received: Received, promised: ClaimedNoise) -> ReleaseClaim | None:
    """What was charged for a release, and the truth; None where that promises nothing."""
    release, samples = received.release, job.site.train
    if not promised.noise_multiplier or not is_noised(kind_named(release.kind)):
        return None
    return ReleaseClaim(
        kind=release.kind,
        arrays=release.arrays,
        truth=Rows(rows_of(received.made_by, samples), samples.y, samples.groups),
        classes=job.view.facts.classes,
        noise_multiplier=promised.noise_multiplier,
        compression=job.config.federation.compression,
    )


def _audit_claim(job: _Job, claim: ReleaseClaim | None) -> ReleaseAudit | None:
    if claim is None:
        return None
    job.on_progress(f"{job.name}: noise and claim of the release")
    return audit_release(claim, confidence=1 - FALSE_ALARMS / len(job.view.sites))


def _audit_network(job: _Job, *, shadows: int) -> tuple[NetworkAudit | None, dict[str, bytes]]:
    """The audit of the network that a site keeps, and its curves; None where it has none."""
    site, public = job.site, job.view.public
    path = model_file(job.view.sites[site.id].home)
    # With one class every answer is right, for whomever.
    few = min(len(site.train), len(site.test), job.view.facts.classes) < 2
    if few or not path.is_file():
        return None, {}
    job.on_progress(f"{job.name}: membership")
    saved = load_network(path)
    trainer = GenomeTrainer(
        genome=saved.genome,
        spec=job.spec,
        optimizer=_shadowing(job),
    )
    config = None
    if shadows and len(public) >= MIN_PUBLIC:
        config = ShadowConfig(public=public, train=trainer, count=shadows, share=0.8)
    claim = PrivacyClaim(epsilon=job.spent, delta=job.config.privacy.delta, mu=_mu(job))
    claim = STAYS if job.config.stays else claim
    audit = audit_network(
        query_of(saved.network),
        site.train,
        site.test,
        rng=stream(job.config.seed, "audit", "network", site.id),
        claim=replace(claim, networks=len(job.view.sites)),
        shadows=config,
    )
    title = f"{job.name}, its network: {audit.verdict}"
    return audit, {"members": draw_curves(audit.curves, title)}


def _mu(job: _Job) -> float | None:
    """Of Gaussian differential privacy, where the site was charged so for all of the run."""
    place = job.view.sites[job.site.id]
    ledger = check_book(place)
    return gaussian_mu(ledger.account().of_run(place.run)) if ledger.is_open else None


def _shadowing(job: _Job) -> OptimizerConfig:
    return replace(SHADOW, epochs=job.config.audit.decoder_epochs)
