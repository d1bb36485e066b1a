"""What a method decides that exchanges messages of its own; a module with these names is one.

The site half is called at a site, once a round, with what the site kept of the round before. The
server half sees what sites send, and public facts. Neither keeps anything outside of its `Bundle`,
so that a run that is killed goes on from the last whole round.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor

from dprbft.config.flat import Section
from dprbft.methods.side import Side
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.data.samples import Samples

Predictor = Callable[[Samples], Float[Tensor, "n classes"]]
"""Logits of samples, on the CPU."""


NOTHING = Bundle()
"""What a site sends that sends nothing."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A site's round: what it keeps, what it sends, and how its model does.

    `update` is covered by the charges of `receipts`, ids of the site's ledger; an update without
    any is refused. Accuracies are on the site's test samples and stay with it.
    """

    memory: Bundle
    update: Bundle = NOTHING
    receipts: tuple[str, ...] = ()
    local: float | None = None  # of its model after local training
    shared: float | None = None  # of the model that it was sent, before it trained


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a site's final network costs, for one sample."""

    parameters: int
    macs: int | None = None  # multiply-accumulates; None where nobody counted
    about: Mapping[str, Any] = field(default_factory=dict)  # what else the report should tell


@runtime_checkable
class UpdateMethod(Protocol):
    """A method whose sites and server exchange orders and updates, for `federation.rounds`.

    A module may have `planned_spending(site)`, too: what a site's ledger will show
    (`dprbft.methods.price`), as far as that is known before a run.
    """

    Options: ClassVar[type[Section]]
    """Its own settings, `federation.options` of a run; unknown keys are refused."""

    COLUMNS: Mapping[str, Mapping[str, Any]]
    """Settings of a run for "paper" (as published, epsilon as it really is) and "sound"."""

    def check(self, side: Side) -> None:
        """BadInput, in one line, if the method cannot serve these settings or data."""

    def site_start(self, site: Site) -> Bundle:
        """A site's memory before round 1. BudgetExhausted if its budget does not pay for what it
        plans; nothing is charged but a label histogram."""

    def check_order(self, site: Site, memory: Bundle, order: Order) -> None:
        """BadInput if the order, or the result, is none that this site's server can send.

        It is called before `site_round` and `site_finish`, and reads no sample: what is wrong with
        a message is found before anything is charged for it (`baselines.common.orders`).

        Args:
            site: for its settings and facts alone.
            memory: what the site kept of the round before.
            order: untrusted; only its frame, names and finite numbers are checked so far.
        """

    def site_round(self, site: Site, memory: Bundle, order: Order) -> Turn:
        """A participant's round. Charges come before touches.

        Args:
            site: its samples, its ledger and the shared settings.
            memory: from `site_start`, or of the site's last `Turn`.
            order: checked by `check_order`; `order.round` counts from 1.
        """

    def site_finish(self, site: Site, memory: Bundle, order: Order) -> Bundle:
        """What a site makes of the last order; nothing leaves any more.

        Args:
            site: its samples and the shared settings; nothing is charged any more.
            memory: of the site's last `Turn`.
            order: the result, numbered one past the last round, checked by `check_order`.
        """

    def predictor(self, site: Site, memory: Bundle) -> Predictor:
        """What a site predicts with, as its memory stands."""

    def size(self, site: Site, memory: Bundle) -> Size:
        """What that costs."""

    def server_start(self, side: Side) -> Bundle:
        """The server's memory before round 1."""

    def orders(
        self, side: Side, memory: Bundle, sites: Sequence[int], round: int
    ) -> Mapping[int, Bundle]:
        """What each of these sites is sent before a round, or as the result after the last.

        It must be the same at every call: all randomness is from the run's seed.

        Args:
            side: configuration, facts and public samples.
            memory: from `server_start`, or the last `server_round`.
            sites: numbers of those that take part, from 0; the keys of what is returned.
            round: from 1; one past the last round asks for the result.
        """

    def server_round(
        self, side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
    ) -> Bundle:
        """The server's memory after a round; a record that says "done" ends the run early.

        Args:
            side: configuration, facts and public samples.
            memory: the server's before the round.
            updates: of this round, each with its site's number; read one at a time, and may be
                none.
            rng: of this round, from the run's seed, so that a resumed run draws the same.
        """
