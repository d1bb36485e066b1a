"""Families of methods: facts that the configuration, a run and its pages may know of a method.

Methods import the configuration, so that it cannot ask them. These are literals, and this module
imports nothing of the project.
"""

import importlib.util
import pkgutil
from dataclasses import dataclass
from typing import Literal

Stage = Literal["join", "search", "tune", "train", "audit"]

STAGES: tuple[Stage, ...] = ("join", "search", "tune", "train", "audit")
"""All stages, in their order."""

MESSAGES = "baselines"
"""The package whose modules are the methods with messages of their own."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What holds for all methods of a family."""

    name: str
    stages: tuple[Stage, ...]  # of a run, in their order
    exchange: Stage  # the stage in which sites and server exchange messages
    rounds: int | None = None  # of that exchange; None: `federation.rounds`
    sends: Literal["releases", "updates", "nothing"] = "releases"  # what leaves a site in a round
    has_map: bool = False  # whether all sites compute one feature map
    must_search: bool = True  # whether a run without samples to search on is refused
    verbs: tuple[str, ...] = ("export",)  # what a site is through with at the end of its training
    releases: tuple[str, ...] = ()  # kinds of release that its server can use; (): all


JOINED = Family(
    name="joined",
    stages=STAGES,
    exchange="join",
    rounds=1,
    has_map=True,
    must_search=False,
    verbs=("train", "export"),
    releases=("moments",),
)
"""One release of a common representation, and one shared head, before a site searches."""

ROUNDS = Family(name="rounds", stages=("search", "tune", "train", "audit"), exchange="train")
"""Rounds of training, each with a release and a new head."""

ALONE = Family(
    name="rounds", stages=("search", "tune", "train", "audit"), exchange="train", sends="nothing"
)
"""The same rounds without a server."""

UPDATES = Family(
    name="updates",
    stages=("train",),
    exchange="train",
    sends="updates",
    must_search=False,
)
"""Methods of the literature: messages of their own (`dprbft.updates`), and no search before."""

CORE = {"dprbft": ROUNDS, "joined": JOINED, "local": ALONE}
"""The methods of this package; all others are modules of `baselines`, where it is installed."""


def family_of(method: str) -> Family:
    """The family of a method."""
    return CORE.get(method, UPDATES)


def method_names() -> list[str]:
    """All methods that a run can name."""
    spec = importlib.util.find_spec(MESSAGES)
    folders = spec.submodule_search_locations if spec else None
    modules = pkgutil.iter_modules(folders or ())
    named = (m.name for m in modules if not (m.ispkg or m.name.startswith("_")))
    return sorted((*CORE, *named))
