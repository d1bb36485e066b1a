"""A masked vector at the server, and the sum that was opened: what they promise, and keep.

Without those of all other sites a masked vector is uniform noise: nothing in it can be attacked.
What an audit can check is that it is uniform, that the ledger covers it, and that the opened sum
holds the noise which the sites were charged for. The sum is one release of all of them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from attacks.audit.evidence import FREE_RECEIPT
from attacks.conformance.finding import ERROR, Finding, alarms
from attacks.conformance.masked import findings_of_masked
from attacks.conformance.noise import findings_of
from attacks.conformance.residual import Residual
from attacks.epsilon.release import NOISE_CONFIDENCE, PartNoise, noise_of
from attacks.threats.observation import rows_of
from dprbft.config.files import load_config
from dprbft.paths import arrived_file, ledger_file, server_folder
from dprbft.run.view import RunView
from dprbft.secure_sum.messages import MaskedRelease
from dprbft.secure_sum.release import KIND, ROUND, masked_size
from dprbft.secure_sum.release import noise_of as planned_noise
from dprbft.server.records import read_rounds
from dprbft.server.sum_checkpoint import SUM, SumFiles
from panas.privacy.ledger.charge import Entry
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.estimate import Moments, Rows
from panas.privacy.release.gate import SumNoise
from panas.privacy.release.kind import summed_kind
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors


@dataclass(frozen=True)
class Masked:
    """What a masked vector promises, in words, and what its tests say."""

    promised: str
    fault: str | None  # what contradicts the ledger
    findings: tuple[Finding, ...]


def masked_vector(view: RunView, id: int) -> MaskedRelease | None:
    """What the server has of a site in a secure sum; None where the site sent nothing, or nothing
    was opened. BadInput if it was changed."""
    server = server_folder(view.run)
    records = [r for r in read_rounds(server) if id in r.masked]
    if not records or SumFiles(server).opened() is None or view.feature_map is None:
        return None
    path = arrived_file(server, ROUND, id)
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != records[-1].masked[id]:
        raise BadInput(
            f"expected {path} as it was sent, got a damaged or edited file; restore it, or train "
            "the run again"
        )
    size = masked_size(view.feature_map.width, view.facts.classes)
    return MaskedRelease.from_bytes(content, size)


def masked_evidence(view: RunView, id: int) -> Masked | None:
    """What a site's masked vector, and the opened sum, promise and keep; None where it sent none,
    BadInput if it was changed."""
    message, opened = masked_vector(view, id), SumFiles(server_folder(view.run)).opened()
    if message is None or opened is None or view.feature_map is None:
        return None
    noise = planned_noise(opened.plan, view.feature_map.width, view.facts.classes)
    ledger, fault = ledger_file(view.sites[id].folder), None
    if ledger.is_file() and (entries := Ledger(ledger).account().entries):
        fault = _fault({e.id: e for e in entries}, message, noise)
    findings = tuple(findings_of_masked(message.numbers))
    uniform = "" if alarms(findings, ERROR / 2 / len(view.sites)) else "what it sent is uniform; "
    survivors = SumFiles(server_folder(view.run)).survivors() or ()
    promised = (
        f"{uniform}the seeds of its mask were not tested; the server opened the sum over "
        f"{len(survivors)} sites alone"
    )
    if noise.trust is None:
        return Masked(f"{promised}, without noise", fault, findings)
    part = _noise_of_sum(view.run)
    low, high = part.interval
    promised += (
        f", whose noise is {part.ratio:.3f} [{low:.3f}, {high:.3f}] of its claim, as long as "
        f"{noise.trust.assumption}"
    )
    if part.wrong and fault is None:
        fault = "that is not the noise which was charged for"
    return Masked(promised, fault, findings)


def _fault(entries: dict[str, Entry], message: MaskedRelease, noise: SumNoise) -> str | None:
    entry = entries.get(message.receipt)
    if entry is None:
        return "its receipt is not in the ledger, so that nothing covers it"
    if not entry.derived:
        return FREE_RECEIPT
    if entry.charge.mechanism != KIND or entry.charge.round != message.round:
        return f"its receipt is for {entry.charge.mechanism}, which does not cover {KIND}"
    if (entry.event, entry.charge.trust) != (noise.event, noise.trust):
        return "the ledger was charged for another noise, or another trust, than the sum's plan has"
    return None


@dataclass(frozen=True)
class _Opened:
    numbers: Mapping[str, tuple[Tensor, Tensor]]  # of the sum, and without noise, by array
    scale: float  # claimed standard deviation of each number's noise


def _opened(run: Path) -> _Opened:
    files = SumFiles(server_folder(run))
    return _opened_of(run, hashlib.sha256((files.folder / SUM).read_bytes()).hexdigest())


@lru_cache(maxsize=2)
def _opened_of(run: Path, digest: str) -> _Opened:
    """Once for all sites of an audit; `digest` is the sum's, which a later run may change."""
    view, files = RunView(run, load_config(run)), SumFiles(server_folder(run))
    opened, survivors, map_ = files.opened(), files.survivors(), view.feature_map
    assert opened is not None
    assert survivors is not None
    assert map_ is not None
    classes, kind = view.facts.classes, summed_kind(KIND)
    noise = planned_noise(opened.plan, map_.width, classes)
    exact = []
    for id in survivors:
        train = view.encoded_site(id).train
        rows = Rows(rows_of(map_, train), train.y, train.groups)
        exact.append(kind.numbers(rows, classes))
    tensors, _ = read_tensors(files.folder / SUM)
    moments = Moments(tensors["A"], tensors["B"], 0.0, tensors["counts"])
    numbers, total = kind.to_numbers(moments), torch.stack(exact).sum(0)
    sizes = [len(total) - classes * (map_.width + 1), classes * map_.width, classes]
    parts = zip(("A", "B", "counts"), numbers.split(sizes), total.split(sizes), strict=True)
    pairs = {"sum": (numbers, total)} | {name: (of, bare) for name, of, bare in parts}
    return _Opened(pairs, noise.scale(len(survivors)))


def _noise_of_sum(run: Path) -> PartNoise:
    """The noise of the opened sum over its claim, from the exact sums of all its sites: of the
    whole, or of the part that is most surely wrong."""
    opened = _opened(run)
    confidence = 1 - (1 - NOISE_CONFIDENCE) / len(opened.numbers)
    parts = [
        noise_of(name, of, bare, opened.scale, confidence)
        for name, (of, bare) in opened.numbers.items()
    ]
    return min((p for p in parts if p.wrong), key=lambda p: p.odds, default=parts[0])


def findings_of_sum(view: RunView) -> list[Finding]:
    """Whether the noise of an opened sum is what all its sites were charged for; none where no
    sum, or one without noise, was opened."""
    files = SumFiles(server_folder(view.run))
    plan, survivors = files.opened(), files.survivors()
    if plan is None or survivors is None or not plan.plan.noise_multiplier:
        return []
    opened, names = _opened(view.run), tuple(view.sites[id].name for id in survivors)
    _, A, B, counts = opened.numbers.values()
    width = B[0].numel() // counts[0].numel()
    noise = [((of - bare) / opened.scale).double() for of, bare in (A, B, counts)]
    arrays = {"A": noise[0], "B": noise[1].reshape(-1, width), "counts": noise[2]}
    return [
        replace(f, part=f"sum, {f.part}", of=names) for f in findings_of(Residual.of_noise(arrays))
    ]
