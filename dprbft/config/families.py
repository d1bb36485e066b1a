"""Families of methods: facts that the configuration, a run and its pages may know of a method.

Methods import the configuration, so that it cannot ask them. These are literals, and this module
imports nothing of the project.
"""

import importlib.util
import pkgutil
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
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
    most_rounds: int = sys.maxsize  # of that exchange
    sends: Literal["releases", "updates", "nothing"] = "releases"  # what leaves a site in a round
    sends_once: tuple[str, ...] = ()  # what leaves besides, before the first round
    common: tuple[Stage, ...] = ()  # stages in which one site's work may serve all on a machine
    has_map: bool = False  # whether all sites compute one feature map
    must_search: bool = True  # whether a run without samples to search on is refused
    verbs: tuple[str, ...] = ("export",)  # what a site is through with at the end of its training
    unread: tuple[str, ...] = ()  # settings that its methods do not read, as patterns

    def reads(self, key: str) -> bool:
        """Whether its methods read a setting, named as on the command line."""
        return not any(fnmatchcase(key, pattern) for pattern in self.unread)


OF_ROUNDS = (
    *("federation.warm_start", "federation.head", "federation.head_init", "federation.train_head"),
    *("federation.server_*", "network.unit", "data.search_fraction"),
)
OF_JOINING = (
    *("network.features", "network.encoder", "search.student_steps", "training.student_steps"),
    *("privacy.network", "privacy.trust", "federation.secure_*"),
    *("data.public_labels", "data.unlabelled_data"),
)
OF_BREEDING = (
    *("search.crossover", "search.mutation", "search.cache", "search.survival", "search.rungs"),
    *("search.keep", "search.seeding", "search.initial", "search.offspring", "search.screening"),
    *("search.seconds", "search.optimiser", "search.decay"),
)
"""Settings of one family, which others do not read."""

JOINED = Family(
    name="joined",
    stages=STAGES,
    exchange="join",
    most_rounds=1,
    sends_once=("label-histogram",),
    common=("search", "tune"),
    has_map=True,
    must_search=False,
    verbs=("train", "export"),
    unread=(
        *OF_ROUNDS,
        *OF_BREEDING,
        *("network.norm", "search.learning_rate", "search.batch_size", "search.min_blocks"),
        *("search.kernels", "search.size", "search.max_bytes", "search.algorithm"),
        *(
            "tuning.initial",
            "tuning.parallel",
            "tuning.learning_rate",
            "tuning.clip",
            "tuning.noise_factor",
        ),
        *("tuning.batch_sizes", "tuning.epochs"),
        *("training.epochs", "training.learning_rate", "training.momentum"),
        *("training.batch_size", "training.clip"),
        *("training.warm_learning_rate", "training.warm_batch_size"),
        *("federation.rounds", "federation.participation", "federation.options"),
        *("federation.min_samples", "privacy.release"),
    ),
)
"""One release of a common representation, and one shared head, before a site searches."""

ROUNDS = Family(
    name="rounds",
    stages=("search", "tune", "train", "audit"),
    exchange="train",
    unread=(*OF_JOINING, "federation.options"),
)
"""Rounds of training, each with a release and a new head."""

ALONE = Family(
    name="rounds",
    stages=("search", "tune", "train", "audit"),
    exchange="train",
    sends="nothing",
    unread=(*OF_JOINING, "federation.options", "federation.compression"),
)
"""The same rounds without a server."""

UPDATES = Family(
    name="updates",
    stages=("train",),
    exchange="train",
    sends="updates",
    must_search=False,
    unread=(
        *OF_ROUNDS,
        *OF_JOINING,
        *("network.width", "search.*", "tuning.*", "training.*", "audit.*"),
        *("privacy.search", "privacy.release", "privacy.release_share", "federation.compression"),
    ),
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
