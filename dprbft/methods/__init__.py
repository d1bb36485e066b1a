"""One file per federated method: each module here that keeps `Method` is one, by its name."""

import importlib
from collections.abc import Iterable
from typing import Protocol, cast, runtime_checkable

import numpy as np

from dprbft.config.schema import RunConfig
from dprbft.messages import Broadcast, Release
from dprbft.site.site import Client
from dprbft.site.state import State


@runtime_checkable
class Method(Protocol):
    """What a method decides; a module with these functions is one."""

    def client_round(
        self, client: Client, state: State, broadcast: Broadcast, round: int
    ) -> tuple[State, Release | None]:
        """A participant's round: train, then release or not. Charges come before touches."""
        ...

    def server_round(
        self,
        config: RunConfig,
        releases: Iterable[Release],
        previous: Broadcast,
        round: int,
        rng: np.random.Generator,
    ) -> Broadcast:
        """The server's answer to one round's releases."""
        ...

    def client_finish(
        self, client: Client, state: State, broadcast: Broadcast, round: int
    ) -> State:
        """What a participant makes of the answer."""
        ...


def method_named(name: str) -> Method:
    """The method of a name that the configuration allows."""
    return cast(Method, importlib.import_module(f"{__name__}.{name}"))
