"""The project's own mechanisms, as functions that can be run again.

Releases and histograms go through the gate and a ledger on disk, as at a site. A release may read
the rows only once the charge is on disk; what is charged there is the claim that is tested.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from attacks.replay.mechanism import Mechanism
from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Gaussian, Relation
from panas.privacy.budget import Budget
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import NoiseSource
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import ReleaseRequest, SumNoise, add_to_sum, release
from panas.privacy.release.histogram import label_histogram
from panas.privacy.release.kind import ReleaseKind, kind_named, noise_scale, summed_kind

M = 1.7  # noise multiplier of all releases
PLENTY = Budget(1e5, 1e-5)  # of ledgers that hold hundreds of charges
CLASSES = 3
SITES, MISSING = 6, 1  # of a sum
FEW = 20  # charges of a ledger


def own_mechanisms(folder: Path) -> list[Mechanism]:
    """All of them.

    Args:
        folder: for their ledgers; an empty one.
    """
    kinds = [
        _kind(name, grouped) for name in ("moments", "class_sums") for grouped in (False, True)
    ]
    gates = [_gate(folder, name) for name in ("moments", "class_sums")]
    relations: tuple[Relation, ...] = (ADD_OR_REMOVE, REPLACE)
    histograms = [_histogram(folder, r) for r in relations]
    histograms.append(_histogram(folder, ADD_OR_REMOVE, grouped=True))
    steps = [_step("a step of DP-SGD", False), _step("a step of DP-SGD", True), _drawn_step()]
    return [*kinds, *gates, _summand(folder), *histograms, *steps]


def kind_mechanism(name: str, kind: ReleaseKind, grouped: bool = False) -> Mechanism:
    """A kind of release by itself, at noise multiplier `M`.

    Args:
        name: for people.
        kind: a module that is a kind of release.
        grouped: whether units have several rows.
    """

    def run(rows: Rows, noise: NoiseSource) -> dict[str, Tensor]:
        return kind.run(rows, CLASSES, noise_scale(kind, M), noise)

    return Mechanism(name=name, run=run, noise_multiplier=M, grouped=grouped)


def _kind(name: str, grouped: bool) -> Mechanism:
    of = " of groups" if grouped else ""
    return kind_mechanism(f"{name}{of}", kind_named(name), grouped)


class _Ledgers:
    """Ledgers whose charges are looked at from within the mechanism."""

    def __init__(self, folder: Path, name: str, relation: Relation = ADD_OR_REMOVE) -> None:
        self.folder, self.name, self.relation = folder, name, relation
        self.releases = 0
        self.path = folder

    def ledger(self) -> Ledger:
        """A ledger with few charges: the next one takes time by their number."""
        if self.releases % FEW == 0:
            self.path = self.folder / f"{self.name}-{self.releases // FEW}.jsonl"
            Ledger(self.path).open_account(PLENTY, relation=self.relation)
        self.releases += 1
        return Ledger(self.path)

    def read(self, rows: Rows, event: Gaussian, before: int) -> Rows:
        """The rows, once one more event is on disk; Uncharged if it is not."""
        events = Ledger(self.path).account().events()
        if len(events) != before + 1 or events[-1] != event:
            raise Uncharged("the rows are read before the ledger holds the charge")
        return rows


class Uncharged(Exception):
    """A mechanism reads rows that nobody has charged for."""


def _gate(folder: Path, name: str) -> Mechanism:
    books, event = _Ledgers(folder, name), Gaussian(M)

    def run(rows: Rows, noise: NoiseSource) -> dict[str, Tensor]:
        ledger = books.ledger()
        before = len(ledger.account().events())
        request = ReleaseRequest(kind=name, event=event, site=0, round=1, classes=CLASSES)
        sent = release(request, lambda: books.read(rows, event, before), ledger=ledger, noise=noise)
        return dict(sent.arrays)

    return Mechanism(
        name=f"{name} through the gate", run=run, noise_multiplier=M, width=2, hostile=True
    )


def _summand(folder: Path) -> Mechanism:
    """A site's part of a secure sum: n - t such parts have the noise of the charge."""
    kind, width, books = summed_kind("moments"), 2, _Ledgers(folder, "sum")
    size = kind.numbers_of(width, CLASSES)
    of_sum = SumNoise.of(kind, M, SITES, MISSING, size)
    assert isinstance(of_sum.event, Gaussian)
    event = of_sum.event

    def run(rows: Rows, noise: NoiseSource) -> Tensor:
        ledger = books.ledger()
        before = len(ledger.account().events())
        request = ReleaseRequest(kind="moments", event=event, site=0, round=1, classes=CLASSES)

        def sampler(sigma: int, size: int) -> Int64[np.ndarray, "k"]:
            return (sigma * noise.normal(size)).round().long().numpy()

        part = add_to_sum(
            request,
            lambda: books.read(rows, event, before),
            noise=of_sum,
            ledger=ledger,
            sampler=sampler,
        )
        return torch.from_numpy(part.steps).double() * of_sum.step

    share = event.noise_multiplier / math.sqrt(SITES - MISSING)
    return Mechanism(
        name="a part of a secure sum", run=run, noise_multiplier=share, width=width, hostile=True
    )


def _histogram(folder: Path, relation: Relation, grouped: bool = False) -> Mechanism:
    name = f"label histogram, {relation}{', groups' if grouped else ''}"
    books, event = _Ledgers(folder, name, relation), Gaussian(M)

    def run(rows: Rows, noise: NoiseSource) -> Tensor:
        ledger = books.ledger()
        before = len(ledger.account().events())

        def labels() -> tuple[Tensor, Tensor | None]:
            read = books.read(rows, event, before)
            return read.y, read.groups

        return label_histogram(labels, classes=CLASSES, event=event, ledger=ledger, noise=noise)

    return Mechanism(
        name=name, run=run, noise_multiplier=M, width=1, relation=relation, grouped=grouped
    )


def _network(width: int) -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    model = nn.Linear(width, CLASSES)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return model


def _step(name: str, grouped: bool) -> Mechanism:
    """One step on a batch that holds everybody: expected size and divisor are public."""
    plan = Plan(samples=16, batch_size=16, clip=0.2, noise_multiplier=M, epochs=1, rounds=1)
    gradient = _gradient(plan)

    def run(rows: Rows, noise: NoiseSource) -> Tensor:
        return gradient(rows.z, rows.y, rows.groups, noise)

    of = " of groups" if grouped else ""
    claim = plan.training_event.noise_multiplier
    return Mechanism(name=name + of, run=run, noise_multiplier=claim, width=2, grouped=grouped)


def _drawn_step() -> Mechanism:
    """One step on a Poisson batch of a plan."""
    plan = Plan(
        samples=16,
        batch_size=8,
        clip=0.2,
        noise_multiplier=M,
        epochs=1,
        rounds=1,
        steps_a_round=1,
    )
    gradient = _gradient(plan)

    def run(rows: Rows, noise: NoiseSource) -> Tensor:
        (batch,) = plan.batches(noise, len(rows.y))
        return gradient(rows.z[batch], rows.y[batch], None, noise)

    event = plan.training_event
    return Mechanism(
        name="a step on a Poisson batch",
        run=run,
        noise_multiplier=event.noise_multiplier,
        width=2,
        rate=event.rate,
    )


def _gradient(plan: Plan) -> Callable[[Tensor, Tensor, Tensor | None, NoiseSource], Tensor]:
    model = _network(2)
    private = PrivateGradient(model)

    def run(x: Tensor, y: Tensor, groups: Tensor | None, noise: NoiseSource) -> Tensor:
        private.step(x, y, plan.clip_and_noise, noise, groups)
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    return run
