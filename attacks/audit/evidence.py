"""What a run left, checked, and the truth behind it: for the auditor alone.

What a release says of its own noise is not believed: its receipt names a charge in the ledger, and
what was charged there is what the release must keep.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from attacks.threats.observation import Representation
from dprbft.messages import Release
from dprbft.paths import (
    home,
    last_model_file,
    ledger_file,
    map_file,
    read_sites,
    server_folder,
)
from dprbft.run.view import RunView
from dprbft.server.checkpoint import received
from dprbft.server.records import RoundRecord
from dprbft.site.data import SiteData
from dprbft.site.site import spec_of
from panas.architecture.genome import Genome
from panas.features.map import FeatureMap, read_map
from panas.privacy.accounting.events import Gaussian, Unprotected
from panas.privacy.ledger.charge import Entry
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.histogram import LABEL_HISTOGRAM, SENSITIVITY
from panas.privacy.release.kind import kind_named
from panas.runtime.errors import BadInput
from panas.training.checkpoint import load_network

FREE_RECEIPT = "its receipt does not follow from the ledger's line, so that it could carry data"


@dataclass(frozen=True)
class ClaimedNoise:
    """What the ledger says of a release."""

    noise_multiplier: float | None  # None where nothing is promised
    fault: str | None  # what contradicts the ledger, as half a sentence


def promise(run: Path, release: Release) -> ClaimedNoise:
    """What a release has to keep: what was charged for it; without a ledger, what it says."""
    path = ledger_file(read_sites(run)[release.site].folder)
    if not path.is_file():
        return ClaimedNoise(release.noise_multiplier, None)
    entries = {e.id: e for e in Ledger(path).account().entries}
    noise = _charged(entries.get(release.receipt), release)
    return replace(noise, fault=noise.fault or _histogram_fault(entries, release))


def _charged(entry: Entry | None, release: Release) -> ClaimedNoise:
    if entry is None:
        fault = "its receipt is not in the ledger, so that nothing covers it"
        return ClaimedNoise(release.noise_multiplier, fault)
    m = getattr(entry.event, "noise_multiplier", None)
    if not entry.derived:
        return ClaimedNoise(m, FREE_RECEIPT)
    if entry.charge.round != release.round:
        return ClaimedNoise(m, f"its receipt is that of round {entry.charge.round}")
    # Equal noise on something else is another promise: its sensitivity may be larger.
    fits = isinstance(entry.event, (kind_named(release.kind).CHARGED_AS, Unprotected))
    if entry.charge.mechanism != release.kind or not fits:
        fault = f"its receipt is for {entry.charge.mechanism}, which does not cover {release.kind}"
        return ClaimedNoise(None, fault)
    if m is not None and m != release.noise_multiplier:
        fault = f"it states {_terms(release.noise_multiplier)}"
        return ClaimedNoise(m, f"{fault}, and the ledger {_terms(m)}")
    return ClaimedNoise(m, None)


def _histogram_fault(entries: Mapping[str, Entry], release: Release) -> str | None:
    if release.histogram is None:
        return None
    entry = entries.get(release.histogram.receipt)
    if entry is None:
        return "the receipt of its histogram is not in the ledger, so that nothing covers it"
    if not entry.derived:
        return FREE_RECEIPT
    fits = isinstance(entry.event, (Gaussian, Unprotected))
    if entry.charge.mechanism != LABEL_HISTOGRAM or not fits:
        return (
            f"the receipt of its histogram is for {entry.charge.mechanism}, which does not cover it"
        )
    said = release.histogram.noise
    charged = (entry.charge.sensitivity or 0.0) * getattr(entry.event, "noise_multiplier", 0.0)
    if said is not None and not math.isclose(said, charged):
        return f"it states histogram noise of {said:g}, and the ledger {charged:g}"
    return None


def histogram_scale(run: Path, release: Release) -> float | None:
    """Standard deviation of the noise that was charged for a release's label histogram; None where
    there is no histogram, ledger, charge or noise."""
    path = ledger_file(read_sites(run)[release.site].folder)
    if release.histogram is None or not path.is_file():
        return None
    account = Ledger(path).account()
    of = (e.event for e in account.entries if e.id == release.histogram.receipt)
    event = next(of, None)
    if not isinstance(event, Gaussian):
        return None
    return SENSITIVITY[account.relation] * event.noise_multiplier


def _terms(noise_multiplier: float | None) -> str:
    return "no noise" if noise_multiplier is None else f"noise multiplier {noise_multiplier:g}"


@dataclass(frozen=True)
class Received:
    """A release, and what made it."""

    release: Release
    made_by: Representation
    genome: Genome | None  # of a bottom; None: it is the common map


def common_map(view: RunView) -> FeatureMap | None:
    """The map that all sites of a run release moments of; None where each has a bottom."""
    return read_map(map_file(view.run)) if view.config.federation.family.has_map else None


def load_release(view: RunView, site: SiteData) -> Received | None:
    """A site's last release, as it arrived at the server, and what made it, checked against the
    run and each other; None if none arrived."""
    run, federation, name = view.run, view.facts, view.sites[site.id].name
    arrived = received(server_folder(run), site.id)
    if arrived is None:
        return None
    shared = common_map(view)
    width = spec_of(view.config, federation).width if shared is None else shared.width
    release = _read(*arrived, site.id, width=width, classes=federation.classes)
    if release.site != site.id:
        raise BadInput(
            f"expected the release of {name}, got one of another site; train the run again"
        )
    result = _by_network(view, release) if shared is None else Received(release, shared, None)
    _check_labels(view, site, release, width)
    return result


def _read(path: Path, record: RoundRecord, id: int, *, width: int, classes: int) -> Release:
    """What arrived from a site in a round, as it was sent."""
    if not path.is_file():
        raise BadInput(
            f"expected {path}, which was sent, found no such file; restore it, or train the run "
            "again"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != record.releases[id]:
        raise BadInput(
            f"expected {path} as it was sent in round {record.round}, got a damaged or edited "
            "file; restore it, or train the run again"
        )
    try:
        return Release.from_bytes(content, width=width, classes=classes)
    except BadInput as e:
        raise BadInput(f"{path}: {e}; restore it, or train the run again") from e


def _by_network(view: RunView, release: Release) -> Received:
    shape, width = view.facts.shape, spec_of(view.config, view.facts).width
    saved = load_network(last_model_file(home(view.run, release.site)))
    if (saved.spec.shape, saved.spec.width) != (shape, width):
        raise BadInput(
            f"expected a network for samples of shape {shape} and width {width} of "
            f"{view.sites[release.site].name}, got {saved.spec.shape} and {saved.spec.width}; "
            "train the run again"
        )
    return Received(release, saved.bottom, saved.genome)


def _check_labels(view: RunView, site: SiteData, release: Release, width: int) -> None:
    """Refuse rows whose labels are not those of the samples that they should be of."""
    kind = kind_named(release.kind)
    samples, of = site.train, f"training samples of {view.sites[site.id].name}"
    if kind.READS == "public":
        samples, of = view.public, "public samples"
    for name, spec in kind.arrays(view.facts.classes, width).items():
        if spec.labels and not torch.equal(y := release.arrays[name], samples.y):
            raise BadInput(
                f"expected {release.kind.replace('_', ' ')} of the {len(samples)} {of}, got "
                f"{len(y)} rows of other labels; audit with the data it trained on"
            )
