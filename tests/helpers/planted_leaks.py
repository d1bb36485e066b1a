"""Runs whose sites sent something else than they were charged for, at a server that kept it.

A leak is a function of what all sites sent, `Sent`, to what they send instead: the noise in
standard deviations, the arrays themselves, or the message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from audited_run import audited_config, fabricate, put_release
from torch import Tensor

from attacks.audit.evidence import load_release
from attacks.audit.records import RunAudit, SiteAudit
from attacks.audit.run import audit_run
from attacks.conformance.finding import ERROR, alarms
from attacks.conformance.residual import residual_of
from attacks.epsilon.release import ReleaseClaim
from attacks.threats.observation import rows_of
from dprbft.config.files import build_config, without_unread
from dprbft.config.schema import RunConfig
from dprbft.messages import Release
from dprbft.run.view import RunView
from dprbft.simulation.federation import load_federation
from panas.features.map import fit_map
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Rows

SITES, WIDTH = 4, 48
MULTIPLIER = {"joined": 0.75, "dprbft": 2.5}
"""Of a release: `joined` has one for all of its epsilon, `dprbft` one a round."""
Noise = dict[str, Tensor]


@dataclass(frozen=True)
class Sent:
    """What a site sent, and the truth behind it."""

    release: Release
    claim: ReleaseClaim
    noise: Noise  # in standard deviations, float64

    @property
    def exact(self) -> Noise:
        """The arrays without noise."""
        return self.claim.again(self.claim.truth, 0.0, SystemNoise())

    def of(self, arrays: dict[str, Tensor]) -> "Sent":
        """The same with other arrays."""
        whole = {**self.release.arrays, **{k: v.float() for k, v in arrays.items()}}
        return replace(self, release=replace(self.release, arrays=whole))

    def with_noise(self, noise: Noise) -> "Sent":
        """The same with this noise, in standard deviations, where it is named."""
        return self.around(self.exact, noise)

    def around(self, exact: Noise, noise: Noise | None = None) -> "Sent":
        """The noise, or another, on these numbers."""
        spread, s = self.claim.spread, self.claim.scale
        noise = self.noise if noise is None else noise
        return self.of({k: exact[k].double() + z * s * spread[k] for k, z in noise.items()})

    def counted(self, weight: int, at: int = 5) -> "Sent":
        """As if one sample came so many times."""
        times = torch.ones(len(self.claim.truth.y), dtype=torch.int64)
        times[at] = weight
        rows = Rows(*(v.repeat_interleave(times, 0) for v in self.claim.truth[:2]))
        return self.around(self.claim.again(rows, 0.0, SystemNoise()))


Leak = Callable[[list[Sent]], Sequence[Sent]]


def planted_config(method: str) -> RunConfig:
    """Of four sites, with too few public samples to learn an attack from: tests alone decide."""
    config = audited_config("moments", method, sites=SITES)
    few = {"data": {"limit": 500, "public_limit": 4}}
    return build_config(without_unread({**config.model_dump(), **few}))


def honest_run(run: Path, method: str) -> RunConfig:
    """A run that keeps what it was charged for."""
    config = planted_config(method)
    common = None
    if method == "joined":
        federation = load_federation(config)
        common = fit_map(federation.facts, federation.public, WIDTH)
    sites = tuple(range(SITES))
    fabricate(run, config, sites, noise_multiplier=MULTIPLIER[method], common=common)
    return config


def what_was_sent(run: Path, config: RunConfig) -> list[Sent]:
    """By all sites, as it arrived."""
    view, result = RunView(run, config), []
    for paths in view.sites:
        site = view.encoded_site(paths.index)
        received = load_release(view, site)
        assert received is not None
        release, m = received.release, received.release.noise_multiplier
        assert m is not None
        claim = ReleaseClaim(
            kind=release.kind,
            arrays=release.arrays,
            truth=Rows(rows_of(received.made_by, site.train), site.train.y),
            classes=view.facts.classes,
            noise_multiplier=m,
        )
        result.append(Sent(release, claim, dict(residual_of(claim).arrays)))
    return result


def fired(audit: RunAudit, site: SiteAudit) -> set[str]:
    """The tests that raised an alarm of a site."""
    alone = alarms(site.findings, ERROR / 2 / len(audit.clients))
    between = [f for f in alarms(audit.findings, ERROR / 2) if site.name in f.of]
    return {f.test for f in (*alone, *between)}


def audit_of(run: Path, sent: list[Sent], leak: Leak, beside: Sequence[Path] = ()) -> RunAudit:
    """The audit of a run whose sites sent this instead, as the server has it."""
    for site, changed in enumerate(leak(sent)):
        put_release(run, site, changed.release.to_bytes())
    return audit_run(run, beside=beside)
