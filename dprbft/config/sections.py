"""The sections of a run's configuration."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from dprbft.config.families import Family, family_of, method_names
from dprbft.config.flat import Flat, Name, Section, about
from panas.architecture.blocks import Shape
from panas.architecture.space import SearchSpace, space_of
from panas.data.load import DataSettings
from panas.evolution.records import EvolutionConfig
from panas.privacy.release.compression import Compression
from panas.privacy.release.kind import ReleaseKind, kind_named, kind_names
from panas.search_modes.mode import SearchMode, mode_named
from panas.training.distillation import SHORT_STEPS, STEPS
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
    *("dataset", "data_root", "label", "limit", "image_size", "bits"),
    *("group", "client_column", "table", "ranges"),
    *("public_data", "public_fraction", "public_limit"),
    *("public_labels", "unlabelled_data"),
)
SIZES = ("epochs", "learning_rate", "batch_size")
WITHOUT_MOMENTUM = (*SIZES, "optimiser", "decay")


def most_missing(sites: int) -> int:
    """The largest t below a third of so many sites: with more, two different sums of one round
    could be unmasked."""
    return max(0, (sites - 1) // 3)


def _one_of(name: str, choices: Sequence[str]) -> str:
    if name not in choices:
        raise ValueError(f"to be one of {', '.join(choices)}")
    return name


class Data(Section):
    """Where the samples come from and how a site divides its own."""

    source: Annotated[DataSettings, Flat(only=SOURCE)] = DataSettings()
    search_fraction: Share = about(
        0.2, "share of a site's samples; used by privacy.search=unaccounted"
    )
    validation_fraction: Share = about(0.15, "share of a site's samples")
    test_fraction: Share = about(0.2, "share of a site's samples")


class Network(Section):
    """What all clients' networks share."""

    width: Count = about(64, "d, width of the representation")
    features: Count | None = about(
        None, "coordinates of the common map, at most; None: 8 to 128, by the budget (joined)"
    )
    encoder: str | None = about(
        None, "file of a frozen network that makes a vector of each picture (method joined)"
    )
    norm: Literal["auto", "group", "batch"] = about("auto", "auto: group under DP, batch without")
    unit: bool = about(True, "representations of norm 1")


class Search(Section):
    """The search for an architecture (DPFNAS, III-A2)."""

    algorithm: Literal["genetic", "random"] = about(
        "genetic", "random: as many candidates, no breeding"
    )
    evolution: Annotated[EvolutionConfig, Flat()] = EvolutionConfig()
    optimizer: Annotated[OptimizerConfig, Flat(only=WITHOUT_MOMENTUM)] = about(
        SHORT, "of the short training that gives a genome's fitness"
    )
    student_steps: Count = about(SHORT_STEPS, "at least, of that training (method joined)")
    min_blocks: Count = about(SearchSpace.min_blocks, "of a network")
    max_blocks: Count = about(SearchSpace.max_blocks, "of a network")
    widths: tuple[Count, ...] = about(SearchSpace.widths, "channels of a block, to choose from")
    kernels: tuple[Count, ...] = about(
        SearchSpace.kernels, "sides of a kernel, to choose from, odd"
    )
    size: Literal["parameters", "macs", "bytes"] | None = about(None, "second objective")
    max_parameters: Count | None = about(None, "hard limit of a network, as the three below")
    max_macs: Count | None = about(None, "multiply-accumulates of an image, an encoder's aside")
    max_bytes: Count | None = about(None, "of its 32-bit state")
    max_latency_ms: Positive | None = about(None, "of one image on one thread, by a measured table")

    def space(self, shape: Shape, *, rows: bool) -> SearchSpace:
        """The space for samples of a shape, rows of a table or pictures, without limits."""
        return space_of(
            shape,
            rows=rows,
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

    optimizer: Annotated[
        OptimizerConfig, Flat(only=("epochs", "learning_rate", "momentum", "batch_size"))
    ] = about(
        OptimizerConfig(),
        "of local training, each round (under DP a batch size is expected, of a Poisson batch)",
    )
    clip: Positive = about(1.0, "norm of a sample's gradient")
    noise_multiplier: Positive | None = about(None, "sigma; None: the least that the budget allows")
    warm: Annotated[OptimizerConfig, Flat("warm_", only=SIZES)] = about(
        WARM,
        "of the training on public samples before round 1; of method joined, with "
        "privacy.network = stays, on a site's own",
    )
    student_steps: Count = about(
        STEPS, "at least, of an evolved network's training (method joined)"
    )


class FederationSettings(Section):
    """Rounds and heads (DPFNAS, algorithm 2)."""

    method: str = about("dprbft", "of dprbft.methods, or a module of baselines")
    clients: Count = about(4, "of a simulation; else as many as there are sites")
    sites: tuple[str, ...] = about((), "directories of sites, instead of a simulation's")
    client_data: tuple[str, ...] = about((), "a data set a site, instead of one shared out")
    remote: tuple[Name, ...] = about((), "names of sites elsewhere, which nodes answer for")
    facts: str | None = about(None, "file of what such sites declare; None: public data say it")
    classes: tuple[str, ...] = about((), "names of the federation's classes; (): the public data's")
    partition: Literal["iid", "dirichlet", "classes"] = about(
        "dirichlet", "how one set is shared out"
    )
    alpha: Positive = about(0.5, "of the Dirichlet partition; smaller is more skewed")
    classes_per_client: Count = about(2, 'of the partition "classes"')
    min_samples: Count = about(10, "a site has at least so many samples")
    rounds: Count = about(3, "number of rounds; method joined has one")
    participation: Annotated[float, Field(gt=0, le=1)] = about(1.0, "share of sites in a round")
    warm_start: Literal["none", "public"] = about(
        "public", "public: bottoms start from public samples"
    )
    head: Literal["shared", "local", "blend"] = about("blend", "which head a site keeps")
    head_init: Literal["etf", "random"] = about(
        "etf", "random: drawn small, so it moves (train_head)"
    )
    compression: Compression = about("none", "of releases, on the wire")
    train_head: bool = about(False, "whether the simplex head moves during local training")
    baselines: bool = about(True, "fit forests and regressions, for the summary to compare with")
    secure_minimum: Annotated[int, Field(ge=3)] = about(
        4, "sites of a secure sum at least; privacy.trust says what fewer do"
    )
    secure_missing: Natural | None = about(
        None,
        "sites of a secure sum that may be missing or help the server; None: a tenth, at least 1",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="of a method of the literature, by its own names"
    )
    server: Annotated[OptimizerConfig, Flat("server_", only=SIZES)] = about(
        OptimizerConfig(), "of the server's SGD on raw rows"
    )

    @field_validator("method")
    @classmethod
    def _is_a_method(cls, method: str) -> str:
        return _one_of(method.replace("-", "_"), method_names())

    @property
    def comes_split(self) -> bool:
        """Whether data come from several owners, instead of a set that a simulation shares out."""
        return bool(self.sites or self.client_data or self.remote)

    @property
    def family(self) -> Family:
        """What the method has in common with those like it."""
        return family_of(self.method)

    def secure_missing_of(self, sites: int) -> int:
        """t: how many of so many sites a secure sum bears to be missing, or to help the server."""
        if self.secure_missing is not None:
            return self.secure_missing
        return min(max(1, sites // 10), most_missing(sites))

    @property
    def planned_rounds(self) -> int:
        """Rounds that the method makes."""
        return min(self.rounds, self.family.most_rounds)


class Privacy(Section):
    """Budget and what it is spent on."""

    epsilon: Epsilon = about(8.0, "inf: train without DP")
    delta: Annotated[float, Field(gt=0, lt=1)] = about(1e-5, "below 1/n of every site")
    epsilons: tuple[Epsilon, ...] = about((), "one a site, instead of `epsilon`")
    search: str = about("public-proxy", "what a search looks at: a mode of panas.search_modes")
    release: str = about(
        "moments", "what leaves in a round: a kind of panas.privacy.release, or none"
    )
    release_share: Annotated[float, Field(gt=0, lt=1)] | None = about(
        None, "of epsilon, sizes release noise; None: .3, or what public facts say (joined)"
    )
    histogram_share: Annotated[float, Field(gt=0, lt=1)] | None = about(
        None, "of epsilon, for the histogram; None: .1, or up to .3 at a small epsilon (joined)"
    )
    network: Literal["protected", "stays"] = about(
        "protected",
        "protected: networks may be shown; stays: they train without noise, and must not (joined)",
    )
    trust: Literal["auto", "server", "secure-sum"] = about(
        "auto",
        "who sees what a site releases: the server, or of a secure sum nobody; auto: such a sum "
        "from federation.secure_minimum sites on (joined)",
    )
    strict: bool = about(False, "refuse samples that another ledger was charged for")
    allow_unprotected: bool = about(False, "let epsilon be infinite for search or release")

    @field_validator("release")
    @classmethod
    def _known(cls, release: str) -> str:
        return _one_of(release, (*kind_names(), "none"))

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

    samples: Count = about(500, "at most so many of a site's samples are attacked")
    decoder_epochs: Count = about(30, "passes of what attacks train: decoders and shadow networks")
    threats: tuple[Literal["shadow", "leaked pairs"], ...] = about(
        ("shadow", "leaked pairs"), "besides"
    )
