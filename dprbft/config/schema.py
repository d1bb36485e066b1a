"""The configuration of a run: sections of plain values, checked once, unknown keys refused.

Presets differ in what they promise. `sound` (the default) covers everything that leaves a client;
`demo` is the same at a size for a first look; `paper` does what the DPFNAS publication says, and
its ledger says what that costs. Each field's comment gives unit and range.
"""

import math
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic import model_validator as validator

from dprbft.config.presets import PRESETS
from panas.privacy.budget import Budget
from panas.privacy.release.mechanisms import Kind
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Epsilon = Annotated[float, Field(gt=0)]
Preset = Literal["sound", "demo", "paper"]


class Section(BaseModel):
    """A frozen group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Data(Section):
    """Where the samples come from and how a client divides its own."""

    dataset: str = "digits"  # a name, or the path of an .npz, a .csv or a folder of images
    data_root: str | None = None  # folder of torchvision's data sets
    label: str | None = None  # label column of a .csv
    public_data: str | None = None  # a second data set that is public; else a share of this one
    public_fraction: Share = 0.25  # share of the data set that is set aside as public
    public_limit: Count = 2000  # at most so many public samples
    limit: Count | None = None  # at most so many private samples, all clients together
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
    population: Count = 6
    generations: Natural = 3  # 0: the best of the first population
    crossover: Annotated[float, Field(ge=0, le=1)] = 0.9
    mutation: Annotated[float, Field(ge=0, le=1)] = 0.2
    min_blocks: Count = 3
    max_blocks: Count = 6
    widths: tuple[Count, ...] = (16, 32, 64)
    kernels: tuple[Count, ...] = (3, 5)
    epochs: Count = 8  # of the short training that gives a genome's fitness
    learning_rate: Positive = 0.005
    optimiser: Literal["sgd", "adam"] = "adam"
    decay: Literal["none", "cosine"] = "cosine"  # of the learning rate
    batch_size: Count = 32
    cache: bool = True  # train no genome twice
    survival: Literal["best", "roulette"] = "best"  # of parents and offspring
    rungs: tuple[float, ...] = (0.5,)  # shares of the training after which the slower ones stop
    keep: Annotated[float, Field(gt=0, le=1)] = 1 / 3  # share that goes on beyond a rung
    seeding: Count = 2  # random genomes scored for each place of the first population
    initial: Count | None = 6  # individuals of the first population; None: as the population
    offspring: Count | None = 5  # children trained in a generation; None: as the population
    screening: Count = 20  # children drawn for each that is trained
    seconds: Positive | None = None  # that one stretch of training may take; makes runs differ
    size: Literal["parameters", "macs", "bytes"] | None = None  # second objective
    max_parameters: Count | None = None  # hard limits of a network
    max_macs: Count | None = None  # multiply-accumulates of one image
    max_bytes: Count | None = None
    max_latency_ms: Positive | None = None  # of one image on one thread, by a measured table


class Tuning(Section):
    """The search for DP-SGD settings (DPFNAS, III-A3); 0 trials keeps those of `training`."""

    trials: Natural = 8
    initial: Count = 4  # random trials before the first model
    learning_rate: tuple[Positive, Positive] = (0.02, 2.0)
    clip: tuple[Positive, Positive] = (0.1, 4.0)
    noise_factor: tuple[Positive, Positive] = (1.0, 4.0)  # times the least noise that fits
    batch_sizes: tuple[Count, ...] = (32, 64, 128)
    epochs: tuple[Count, ...] = ()  # passes a round to choose from; none: training.epochs
    parallel: Count = 1  # trials proposed at once; the outcome depends on it, on no worker


class Training(Section):
    """Local training; lr, batch, clip, noise and, if it looks, epochs are what tuning replaces."""

    epochs: Count = 3  # passes over the client's data each round
    learning_rate: Positive = 0.5
    momentum: Share = 0.0
    batch_size: Count = 64  # expected size of a Poisson batch
    clip: Positive = 1.0  # norm of a sample's gradient
    noise_multiplier: Positive | None = None  # sigma; None: the least that the budget allows
    warm_epochs: Count = 30  # passes over the public part before round 1
    warm_learning_rate: Positive = 0.005
    warm_batch_size: Count = 32


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
    server_learning_rate: Positive = 0.01  # of the server's SGD on raw rows
    server_batch_size: Count = 64
    server_epochs: Count = 1


class Privacy(Section):
    """Budget and what it is spent on."""

    epsilon: Epsilon = 8.0  # inf: train without DP
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5  # below 1/n of every client
    epsilons: tuple[Epsilon, ...] = ()  # one a client, instead of `epsilon`
    search: Literal["proxy", "data-free", "unaccounted"] = "proxy"
    release: Literal["moments", "class_sums", "public_rows", "raw_rows", "none"] = (
        "moments"  # what leaves in a round; see panas.privacy.release.gate
    )
    release_share: Annotated[float, Field(gt=0, lt=1)] = 0.3  # of epsilon, sizes release noise
    histogram_share: Annotated[float, Field(gt=0, lt=1)] = 0.1  # of epsilon, for the histogram
    allow_unprotected: bool = False  # let epsilon be infinite for search or release


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

    @validator(mode="after")
    def _consistent(self) -> "RunConfig":
        p, f = self.privacy, self.federation
        if not p.allow_unprotected and (p.release == "raw_rows" or p.search == "unaccounted"):
            what = "release = raw_rows" if p.release == "raw_rows" else "search = unaccounted"
            raise ValueError(
                f"protected search and releases, got privacy.{what}, which has epsilon infinity; "
                "use --preset paper, or set privacy.allow_unprotected=true"
            )
        if not p.allow_unprotected and not all(math.isfinite(e) for e in (p.epsilon, *p.epsilons)):
            raise ValueError(
                "a finite epsilon, got infinity, which trains without privacy; set "
                "privacy.allow_unprotected=true if that is meant"
            )
        if p.epsilons and len(p.epsilons) != f.clients:
            raise ValueError(
                f"{f.clients} privacy.epsilons, one a client, got {len(p.epsilons)}; give as many"
            )
        if p.search == "proxy" and self.data.public_data is None and not self.data.public_fraction:
            raise ValueError(
                "public data for privacy.search = proxy, got none; give --public-data, or "
                "data.public_fraction above 0, or use privacy.search=data-free"
            )
        if p.search == "unaccounted" and not self.data.search_fraction:
            raise ValueError(
                "a search split for privacy.search = unaccounted, got data.search_fraction = 0; "
                "raise it, or use privacy.search=data-free"
            )
        if self.data.validation_fraction <= 0 or self.data.test_fraction <= 0:
            raise ValueError(
                "data.validation_fraction and data.test_fraction above 0, got "
                f"{self.data.validation_fraction} and {self.data.test_fraction}; raise them"
            )
        if self.network.norm == "batch" and any(b.private for b in self.budgets()):
            raise ValueError(
                'network.norm = "group" or "auto" under DP, got "batch", which mixes samples; '
                "change it"
            )
        if self.search.generations and self.search.population < 2:
            raise ValueError(
                f"a search.population of at least 2 to breed, got {self.search.population}; raise "
                "it, or set search.generations=0"
            )
        if (
            p.release == "public_rows"
            and self.data.public_data is None
            and not self.data.public_fraction
        ):
            raise ValueError(
                "public samples for privacy.release = public_rows, got none; give --public-data, "
                "or data.public_fraction above 0"
            )
        if f.method == "dprbft" and p.release not in ("raw_rows", "none") and not self.network.unit:
            raise ValueError(
                f"network.unit = true for the release {p.release}, got false; change it"
            )
        return self

    def budgets(self) -> list[Budget]:
        """Each client's budget."""
        p = self.privacy
        return [Budget(e, p.delta) for e in p.epsilons or (p.epsilon,) * self.federation.clients]

    @property
    def sent(self) -> Kind | None:
        """What a client sends to the server in a round; None where nothing leaves it."""
        kind = self.privacy.release
        return None if kind == "none" or self.federation.method == "local" else kind

    @property
    def norm(self) -> Literal["group", "batch"]:
        """The norm all networks are searched, tuned and trained with."""
        if self.network.norm != "auto":
            return self.network.norm
        return "group" if any(b.private for b in self.budgets()) else "batch"


def build_config(*layers: dict[str, Any]) -> RunConfig:
    """A configuration from nested dictionaries, later ones over earlier ones, over the preset.

    Raises:
        BadInput: one line that names the key, what it expects and what came.

    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merge(merged, layer)
    preset = merged.get("preset", "sound")
    if preset not in PRESETS:
        raise BadInput(f"expected a preset of {', '.join(PRESETS)}, got {preset!r}")
    try:
        return RunConfig.model_validate(_merge(PRESETS[preset], merged))
    except ValidationError as e:
        raise BadInput(_first_error(e)) from e


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _first_error(e: ValidationError) -> str:
    error = e.errors()[0]
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return (
            f"expected a known configuration key, got {key!r}; the config.toml of any run lists "
            "them all"
        )
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "to be")
    if not key:
        return f"expected {message}"
    return f"expected {key} {message}, got {error['input']!r:.100}; change it"


def read_toml(path: Path) -> dict[str, Any]:
    """The nested dictionary of a TOML file.

    Raises:
        BadInput: if it is missing or no TOML.

    """
    try:
        return tomllib.loads(path.read_text())
    except OSError as e:
        raise BadInput(f"expected a configuration file at {path}, got none; check the path") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise BadInput(f"expected TOML in {path}, got a file that does not parse: {e}") from e


def load_config(run: Path) -> RunConfig:
    """The configuration that a run directory was made with."""
    if not (run / "config.toml").is_file():
        raise BadInput(f"expected a run directory with a config.toml at {run}, found none")
    return build_config(read_toml(run / "config.toml"))


def save_config(run: Path, config: RunConfig) -> None:
    """Write a run's whole configuration to its directory."""
    write_bytes(run / "config.toml", tomli_w.dumps(config.model_dump(exclude_none=True)).encode())


def default_workers() -> int:
    """As many worker processes as this process may use cores."""
    return len(os.sched_getaffinity(0))
