"""Methods, a room a family: `joined`, `rounds` (`dprbft` and `local`), and `updates`.

`joined`, `dprbft` and `local` keep `Method`: releases up, a head down. The literature's methods,
modules of the package `baselines`, keep `UpdateMethod` (`dprbft.methods.updates.contract`), with
messages of their own.
"""

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Protocol, cast, runtime_checkable

import numpy as np

from dprbft.config.families import MESSAGES
from dprbft.messages import Broadcast, Release
from dprbft.methods.price import PlannedSpending
from dprbft.methods.rounds.state import State
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import UpdateMethod
from dprbft.site.site import Site


@runtime_checkable
class Method(Protocol):
    """What a method's server decides; a module with these names is one."""

    def server_round(
        self,
        side: Side,
        releases: Iterable[Release],
        previous: Broadcast,
        round: int,
        rng: np.random.Generator,
    ) -> Broadcast:
        """The server's answer to one round's releases.

        Args:
            side: configuration, facts and public samples: what the server knows besides messages.
            releases: of this round, in the order of the sites; read one at a time, and may be none.
            previous: what the sites were sent before this round.
            round: from 1.
            rng: of this round, from the run's seed, so that a resumed run draws the same.
        """


@runtime_checkable
class RoundMethod(Method, Protocol):
    """A method of rounds, in each of which a site's network trains."""

    def site_round(
        self, site: Site, state: State, broadcast: Broadcast, round: int
    ) -> tuple[State, Release | None]:
        """A participant's round: train, then release or not. Charges come before touches.

        Args:
            site: its samples, its ledger and the shared settings.
            state: what the site kept of the round before; return a new one.
            broadcast: what the server sent for this round.
            round: from 1.
        """

    def site_finish(self, site: Site, state: State, broadcast: Broadcast, round: int) -> State:
        """What a participant makes of the answer.

        Args:
            site: its samples, its ledger and the shared settings.
            state: what `site_round` returned in this round.
            broadcast: the server's answer to this round's releases.
            round: from 1, that of the answer.
        """


HOMES = {
    "joined": "dprbft.methods.joined.exchange",
    "dprbft": "dprbft.methods.rounds.dprbft",
    "local": "dprbft.methods.rounds.local",
}
"""Modules of the methods of this package; all others are modules of `baselines`."""
PRICES = {
    "joined": "dprbft.methods.joined.price",
    "dprbft": "dprbft.methods.rounds.price",
    "local": "dprbft.methods.rounds.price",
}
"""Modules that know what these cost; those of `baselines` say it themselves."""


def module_of(name: str) -> ModuleType:
    """The module of a method that the configuration allows."""
    return importlib.import_module(HOMES.get(name, f"{MESSAGES}.{name}"))


def spending_planner(name: str) -> Callable[[Site], PlannedSpending] | None:
    """What knows the epsilons that a site's ledger will show; None where a method does not."""
    home = importlib.import_module(PRICES[name]) if name in PRICES else module_of(name)
    planner: Callable[[Site], PlannedSpending] | None = getattr(home, "planned_spending", None)
    return planner


def round_method(name: str) -> RoundMethod:
    """The module of a method of rounds."""
    return cast(RoundMethod, module_of(name))


def update_method(name: str) -> UpdateMethod:
    """The module of a method with messages of its own."""
    return cast(UpdateMethod, module_of(name))
