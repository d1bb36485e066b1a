"""The tests of `attacks.conformance` on what arrived from the sites of a run.

Half of their error is that of sites, evenly; half that of sites beside each other and of a sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attacks.audit.records import SiteAudit
from attacks.conformance.company import Noise, findings_between
from attacks.conformance.finding import ERROR, Finding, alarms
from attacks.conformance.masked import findings_between_masked
from attacks.conformance.noise import findings_of
from attacks.conformance.residual import residual_of
from attacks.epsilon.release import ReleaseClaim


@dataclass(frozen=True)
class Conformance:
    """What the tests of one site's release say."""

    findings: tuple[Finding, ...]
    noise: Noise  # to be compared with that of others

    def alarms(self, sites: int) -> list[Finding]:
        """Those that are too unlikely, the least likely first.

        Args:
            sites: of the run, which share the error.
        """
        return alarms(self.findings, ERROR / 2 / sites) if self.findings else []


def conformance(claim: ReleaseClaim | None) -> Conformance:
    """The tests of a release; none where it promises no noise."""
    if claim is None:
        return Conformance((), {})
    residual = residual_of(claim)
    noise = {name: z.flatten() for name, z in residual.arrays.items()}
    return Conformance(tuple(findings_of(residual)), noise)


def compared(
    sites: Sequence[SiteAudit],
    noise: Mapping[str, Noise],
    masked: Mapping[str, np.ndarray],
    of_sum: Sequence[Finding],
) -> tuple[list[SiteAudit], tuple[Finding, ...]]:
    """The audits of all sites after their releases were compared, and what was found.

    Args:
        sites: their audits so far.
        noise: of releases, by name of a site, or of a site in another run.
        masked: vectors of a secure sum, by name of a site.
        of_sum: tests of an opened sum, which is of all sites.
    """
    findings = [*findings_between(noise), *findings_between_masked(dict(masked)), *of_sum]
    found = alarms(findings, ERROR / 2) if findings else []
    return [_with(site, findings, found) for site in sites], tuple(findings)


def _with(site: SiteAudit, findings: Sequence[Finding], found: Sequence[Finding]) -> SiteAudit:
    """The audit with what concerns the site: the first alarm, or how many tests found nothing."""
    alarm = next((a for a in found if site.name in a.of), None)
    if alarm is not None:
        return replace(site, verdict="leaks", evidence=f"{site.evidence}; {alarm}")
    tests = len(site.findings) + sum(site.name in f.of for f in findings)
    if not tests or site.verdict == "leaks":
        return site
    said = f"{tests} tests of the noise and masks of what it sent found nothing"
    return replace(site, evidence=f"{site.evidence}; {said}")
