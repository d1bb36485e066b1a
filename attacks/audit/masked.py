"""A masked vector at the server, and the sum that was opened: what they promise, and keep.

Without those of all other sites a masked vector is uniform noise: nothing in it can be attacked.
What an audit can check is that the ledger covers it, and that the opened sum holds the noise which
the sites were charged for. The sum is one release of all of them.
"""

import hashlib
from functools import lru_cache
from pathlib import Path

import torch

from attacks.epsilon.release import NOISE_CONFIDENCE, PartNoise, noise_of
from attacks.threats.observation import rows_of
from dprbft.config.files import load_config
from dprbft.paths import arrived_file, ledger_file, server_folder
from dprbft.run.view import RunView
from dprbft.secure_sum.messages import MaskedRelease
from dprbft.secure_sum.release import KIND, ROUND, masked_size
from dprbft.secure_sum.release import noise_of as planned_noise
from dprbft.server.records import read_rounds
from dprbft.server.sum_checkpoint import SumFiles
from panas.privacy.ledger.charge import Entry
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.estimate import Moments, Rows
from panas.privacy.release.gate import SumNoise
from panas.privacy.release.kind import summed_kind
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors


def masked_evidence(view: RunView, id: int) -> tuple[str, str | None] | None:
    """What the server has of a site's masked vector and what that promises; what contradicts the
    ledger. None where the site sent none, BadInput if it was changed."""
    server = server_folder(view.run)
    records = [r for r in read_rounds(server) if id in r.masked]
    opened = SumFiles(server).opened()
    if not records or opened is None or view.feature_map is None:
        return None
    width, classes = view.feature_map.width, view.facts.classes
    path = arrived_file(server, ROUND, id)
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != records[-1].masked[id]:
        raise BadInput(
            f"expected {path} as it was sent, got a damaged or edited file; restore it, or train "
            "the run again"
        )
    message = MaskedRelease.from_bytes(content, masked_size(width, classes))
    noise = planned_noise(opened.plan, width, classes)
    ledger, fault = ledger_file(view.sites[id].folder), None
    if ledger.is_file() and (entries := Ledger(ledger).account().entries):
        fault = _fault({e.id: e for e in entries}, message, noise)
    promised = (
        f"what it sent says nothing without the vectors of the other sites; the server "
        f"opened the sum over {len(records[-1].masked)} sites alone"
    )
    if noise.trust is None:
        return f"{promised}, without noise", fault
    part = _noise_of_sum(view.run)
    low, high = part.interval
    promised += (
        f", whose noise is {part.ratio:.3f} [{low:.3f}, {high:.3f}] of its claim, as long as "
        f"{noise.trust.assumption}"
    )
    if part.wrong and fault is None:
        fault = "that is not the noise which was charged for"
    return promised, fault


def _fault(entries: dict[str, Entry], message: MaskedRelease, noise: SumNoise) -> str | None:
    entry = entries.get(message.receipt)
    if entry is None:
        return "its receipt is not in the ledger, so that nothing covers it"
    if entry.charge.mechanism != KIND or entry.charge.round != message.round:
        return f"its receipt is for {entry.charge.mechanism}, which does not cover {KIND}"
    if (entry.event, entry.charge.trust) != (noise.event, noise.trust):
        return "the ledger was charged for another noise, or another trust, than the sum's plan has"
    return None


@lru_cache(maxsize=2)
def _noise_of_sum(run: Path) -> PartNoise:
    """The noise of the opened sum over its claim, from the exact sums of all its sites: of the
    whole, or of the part that is most surely wrong."""
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
    tensors, _ = read_tensors(files.folder / "sum.safetensors")
    moments = Moments(tensors["A"], tensors["B"], 0.0, tensors["counts"])
    numbers, total = kind.to_numbers(moments), torch.stack(exact).sum(0)
    sizes = [len(total) - classes * (map_.width + 1), classes * map_.width, classes]
    parts_of = zip(("A", "B", "counts"), numbers.split(sizes), total.split(sizes), strict=True)
    pairs = {"sum": (numbers, total)} | {name: (of, bare) for name, of, bare in parts_of}
    confidence, scale = 1 - (1 - NOISE_CONFIDENCE) / len(pairs), noise.scale(len(survivors))
    parts = [noise_of(name, of, bare, scale, confidence) for name, (of, bare) in pairs.items()]
    return min((p for p in parts if p.wrong), key=lambda p: p.odds, default=parts[0])
