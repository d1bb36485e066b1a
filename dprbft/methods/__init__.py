"""One file per federated method: each module here is one, by its name.

`joined`, `dprbft` and `local` keep `Method`: releases up, a head down. Those of the literature keep
`UpdateMethod` (`dprbft.methods.updates.contract`), with messages of their own.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import numpy as np

from dprbft.config.schema import RunConfig
from dprbft.messages import Broadcast, Release, Verb
from dprbft.methods.updates.contract import UpdateMethod
from dprbft.site.site import Client
from dprbft.site.state import State
from panas.data.samples import Samples
from panas.features.map import FeatureMap
from panas.privacy.release.estimate import Moments


@dataclass(frozen=True)
class PublicSide:
    """What a server knows besides releases; all of it is public."""

    config: RunConfig
    public: Samples
    feature_map: FeatureMap | None


@runtime_checkable
class Method(Protocol):
    """What a method decides; a module with these names is one."""

    VERBS: Mapping[Verb, Callable[[Client, bytes], bytes]]
    """What a site does in the place of rounds of networks (`RoundMethod`), by verb."""

    def server_round(
        self,
        side: PublicSide,
        releases: Iterable[Release],
        previous: Broadcast,
        round: int,
        rng: np.random.Generator,
    ) -> Broadcast:
        """The server's answer to one round's releases."""
        ...


@runtime_checkable
class SummedMethod(Method, Protocol):
    """A method whose server needs no more than the sum of its sites' moments."""

    def sum_round(self, side: PublicSide, total: Moments, round: int) -> Broadcast:
        """The server's answer to the sum of one round's moments, with that of label counts."""
        ...


@runtime_checkable
class RoundMethod(Method, Protocol):
    """A method of rounds, in each of which a site's network trains."""

    def client_round(
        self, client: Client, state: State, broadcast: Broadcast, round: int
    ) -> tuple[State, Release | None]:
        """A participant's round: train, then release or not. Charges come before touches."""
        ...

    def client_finish(
        self, client: Client, state: State, broadcast: Broadcast, round: int
    ) -> State:
        """What a participant makes of the answer."""
        ...


def method_named(name: str) -> Method:
    """The method of a name that the configuration allows."""
    return cast(Method, importlib.import_module(f"{__name__}.{name}"))


def summed_method(name: str) -> SummedMethod:
    """The same of a method that can do with a sum."""
    return cast(SummedMethod, method_named(name))


def round_method(name: str) -> RoundMethod:
    """The same of a method of rounds."""
    return cast(RoundMethod, method_named(name))


def update_method(name: str) -> UpdateMethod:
    """The same of a method that exchanges updates."""
    return cast(UpdateMethod, importlib.import_module(f"{__name__}.{name}"))
