"""The configuration of a run: sections of plain values, checked once, unknown keys refused.

Presets differ in what they promise. `sound` (the default) covers everything that leaves a client;
`demo` is the same at a size for a first look; `paper` does what the DPFNAS publication says, and
its ledger says what that costs. Each field's comment gives unit and range; a `Flat` field is a
dataclass whose own fields are keys of the section, with their defaults.
"""

import math
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from dprbft.config.section import Flat, Section
from panas.architecture.blocks import Shape
from panas.architecture.space import SearchSpace
from panas.data.load import DataSettings
from panas.evolution.records import EvolutionConfig
from panas.privacy.accounting.events import Unprotected
from panas.privacy.budget import Budget
from panas.privacy.release.kind import ReleaseKind, kind_named, kind_names
from panas.search_modes.mode import SearchMode, mode_named
from panas.training.sgd import SHORT, WARM, OptimizerConfig
from panas.tuning.space import TuningSpace
from panas.tuning.trial import TuningConfig

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Epsilon = Annotated[float, Field(gt=0)]
Preset = Literal["sound", "demo", "paper"]

SOURCE = (
    *("dataset", "data_root", "label", "limit"),
    *("public_data", "public_fraction", "public_limit"),
)
SIZES = ("epochs", "learning_rate", "batch_size")
WITHOUT_MOMENTUM = (*SIZES, "optimiser", "decay")


class Data(Section):
    """Where the samples come from and how a client divides its own."""

    source: Annotated[DataSettings, Flat(only=SOURCE)] = DataSettings()
    search_fraction: Share = 0.2  # share of a client's samples; used by privacy.search=unaccounted
    validation_fraction: Share = 0.15
    test_fraction: Share = 0.2


class Network(Section):
    """What all clients' networks share."""

    width: Count = 64  # d, width of the representation
    norm: Literal["auto", "group", "batch"] = "auto"  # auto: group under DP, batch without
    unit: bool = True  # representations of norm 1


class Search(Section):
    """The search for an architecture (DPFNAS, III-A2)."""

    algorithm: Literal["genetic", "random"] = "genetic"  # random: as many candidates, no breeding
    evolution: Annotated[EvolutionConfig, Flat()] = EvolutionConfig()
    # of the short training that gives a genome's fitness
    optimizer: Annotated[OptimizerConfig, Flat(only=WITHOUT_MOMENTUM)] = SHORT
    min_blocks: Count = SearchSpace.min_blocks
    max_blocks: Count = SearchSpace.max_blocks
    widths: tuple[Count, ...] = SearchSpace.widths
    kernels: tuple[Count, ...] = SearchSpace.kernels
    size: Literal["parameters", "macs", "bytes"] | None = None  # second objective
    max_parameters: Count | None = None  # hard limits of a network
    max_macs: Count | None = None  # multiply-accumulates of one image
    max_bytes: Count | None = None
    max_latency_ms: Positive | None = None  # of one image on one thread, by a measured table

    def space(self, shape: Shape) -> SearchSpace:
        """The space for images of a shape, without limits."""
        return SearchSpace(
            shape=shape,
            min_blocks=self.min_blocks,
            max_blocks=self.max_blocks,
            widths=self.widths,
            kernels=self.kernels,
        )


class Tuning(Section):
    """The search for DP-SGD settings (DPFNAS, III-A3); 0 trials keeps those of `training`."""

    config: Annotated[TuningConfig, Flat()] = TuningConfig()
    space: Annotated[TuningSpace, Flat()] = TuningSpace()


class Training(Section):
    """Local training; lr, batch, clip, noise and, if it looks, epochs are what tuning replaces."""

    # passes over the client's data each round; batch_size is expected, of a Poisson batch
    optimizer: Annotated[
        OptimizerConfig, Flat(only=("epochs", "learning_rate", "momentum", "batch_size"))
    ] = OptimizerConfig()
    clip: Positive = 1.0  # norm of a sample's gradient
    noise_multiplier: Positive | None = None  # sigma; None: the least that the budget allows
    # passes over the public part before round 1
    warm: Annotated[OptimizerConfig, Flat("warm_", only=SIZES)] = WARM


class FederationSettings(Section):
    """Rounds and heads (DPFNAS, algorithm 2)."""

    method: Literal["dprbft", "local"] = "dprbft"
    clients: Count = 4
    partition: Literal["iid", "dirichlet", "classes"] = "dirichlet"
    alpha: Positive = 0.5  # of the Dirichlet partition; smaller is more skewed
    classes_per_client: Count = 2  # of the partition "classes"
    min_samples: Count = 10  # a client has at least so many samples
    rounds: Count = 3
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0  # share of clients in a round
    warm_start: Literal["none", "public"] = "public"
    head: Literal["shared", "local", "blend"] = "blend"  # which head a client keeps
    head_init: Literal["etf", "random"] = "etf"  # random: drawn small, so it moves (train_head)
    train_head: bool = False  # whether the simplex head moves during local training
    # of the server's SGD on raw rows
    server: Annotated[OptimizerConfig, Flat("server_", only=SIZES)] = OptimizerConfig()


class Privacy(Section):
    """Budget and what it is spent on."""

    epsilon: Epsilon = 8.0  # inf: train without DP
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5  # below 1/n of every client
    epsilons: tuple[Epsilon, ...] = ()  # one a client, instead of `epsilon`
    search: str = "public-proxy"  # what a search looks at: a mode of panas.search_modes
    release: str = "moments"  # what leaves in a round: a kind of panas.privacy.release, or none
    release_share: Annotated[float, Field(gt=0, lt=1)] = 0.3  # of epsilon, sizes release noise
    histogram_share: Annotated[float, Field(gt=0, lt=1)] = 0.1  # of epsilon, for the histogram
    allow_unprotected: bool = False  # let epsilon be infinite for search or release

    @field_validator("release")
    @classmethod
    def _known(cls, release: str) -> str:
        choices = (*kind_names(), "none")
        if release not in choices:
            raise ValueError(f"to be one of {', '.join(choices)}")
        return release

    @field_validator("search")
    @classmethod
    def _is_a_mode(cls, search: str) -> str:
        mode_named(search)
        return search

    @property
    def mode(self) -> SearchMode:
        """What a search looks at."""
        return mode_named(self.search)

    @property
    def kind(self) -> ReleaseKind | None:
        """What is released; None if nothing is."""
        return None if self.release == "none" else kind_named(self.release)


class Audit(Section):
    """The attacks after training."""

    samples: Count = 500  # at most so many of a client's samples are attacked
    decoder_epochs: Count = 30  # passes of what attacks train: decoders and shadow networks
    threats: tuple[Literal["shadow", "leaked pairs"], ...] = ("shadow", "leaked pairs")  # besides


class RunConfig(Section):
    """Everything that decides a run's outcome; what merely runs it (workers, device) is apart."""

    preset: Preset = "sound"
    seed: Natural = 0
    data: Data = Data()
    network: Network = Network()
    search: Search = Search()
    tuning: Tuning = Tuning()
    training: Training = Training()
    federation: FederationSettings = FederationSettings()
    privacy: Privacy = Privacy()
    audit: Audit = Audit()

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        for rule in RULES:
            if broken := rule(self):
                raise ValueError(broken)
        return self

    def budgets(self) -> list[Budget]:
        """Each client's budget."""
        p = self.privacy
        return [Budget(e, p.delta) for e in p.epsilons or (p.epsilon,) * self.federation.clients]

    @property
    def sent(self) -> str | None:
        """What a client sends to the server in a round; None where nothing leaves it."""
        kind = self.privacy.release
        return None if kind == "none" or self.federation.method == "local" else kind

    @property
    def norm(self) -> Literal["group", "batch"]:
        """The norm all networks are searched, tuned and trained with."""
        if self.network.norm != "auto":
            return self.network.norm
        return "group" if any(b.private for b in self.budgets()) else "batch"


def _protected(config: RunConfig) -> str | None:
    p = config.privacy
    bare = p.kind is not None and p.kind.CHARGED_AS is Unprotected
    if p.allow_unprotected or (p.mode.protected and not bare):
        return None
    what = f"release = {p.release}" if bare else f"search = {p.search}"
    return (
        f"protected search and releases, got privacy.{what}, which has epsilon infinity; "
        "use --preset paper, or set privacy.allow_unprotected=true"
    )


def _finite(config: RunConfig) -> str | None:
    p = config.privacy
    if p.allow_unprotected or all(math.isfinite(e) for e in (p.epsilon, *p.epsilons)):
        return None
    return (
        "a finite epsilon, got infinity, which trains without privacy; set "
        "privacy.allow_unprotected=true if that is meant"
    )


def _a_budget_each(config: RunConfig) -> str | None:
    given, clients = len(config.privacy.epsilons), config.federation.clients
    if given in (0, clients):
        return None
    return f"{clients} privacy.epsilons, one a client, got {given}; give as many"


def _searchable(config: RunConfig) -> str | None:
    name, mode = config.privacy.search, config.privacy.mode
    if mode.needs_public and not config.data.source.has_public:
        return (
            f"public data for privacy.search = {name}, got none; give --public-data, or "
            "data.public_fraction above 0, or use privacy.search=data-free"
        )
    if mode.least_search and not config.data.search_fraction:
        return (
            f"a search split for privacy.search = {name}, got data.search_fraction = 0; "
            "raise it, or use privacy.search=data-free"
        )
    return None


def _splits(config: RunConfig) -> str | None:
    d = config.data
    if d.validation_fraction > 0 and d.test_fraction > 0:
        return None
    return (
        "data.validation_fraction and data.test_fraction above 0, got "
        f"{d.validation_fraction} and {d.test_fraction}; raise them"
    )


def _norm(config: RunConfig) -> str | None:
    if config.network.norm != "batch" or not any(b.private for b in config.budgets()):
        return None
    return 'network.norm = "group" or "auto" under DP, got "batch", which mixes samples; change it'


def _passes(config: RunConfig) -> str | None:
    s, t = config.search.optimizer.epochs, config.training.optimizer.epochs
    if s and t:
        return None
    return f"search.epochs and training.epochs of at least 1, got {s} and {t}; raise them"


def _samples_to_release(config: RunConfig) -> str | None:
    p = config.privacy
    if p.kind is None or p.kind.READS != "public" or config.data.source.has_public:
        return None
    return (
        f"public samples for privacy.release = {p.release}, got none; give --public-data, "
        "or data.public_fraction above 0"
    )


def _unit(config: RunConfig) -> str | None:
    p = config.privacy
    free = config.federation.method != "dprbft" or p.kind is None or not p.kind.UNIT
    if free or config.network.unit:
        return None
    return f"network.unit = true for the release {p.release}, got false; change it"


RULES: tuple[Callable[[RunConfig], str | None], ...] = (
    _protected,
    _finite,
    _a_budget_each,
    _searchable,
    _splits,
    _norm,
    _passes,
    _samples_to_release,
    _unit,
)
"""What sections must not contradict each other in; a rule says what it expected instead."""
