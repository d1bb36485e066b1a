"""The options that several commands share, and what they ask for.

No library but typer is loaded here: what a look at the arguments can refuse is refused at once.
"""

import inspect
import math
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from dprbft.config.where import is_path
from panas.runtime.device import check_word
from panas.runtime.errors import BadInput
from panas.runtime.pool import default_workers

FailOn = Literal["leak", "inconclusive"]


NoHeader = Annotated[
    bool, Option("--no-header", help="A table without a header: columns are named 1, 2, ...")
]
OfDates = Annotated[
    Literal["iso", "us", "eu"], Option(help="A table's: us for 1/31/2020, eu for 31/1/2020.")
]
OfNumbers = Annotated[
    Literal["1,234.5", "1.234,5"] | None,
    Option(help="A table's: 1,234.5 or 1.234,5 (default: by its delimiter)."),
]


@dataclass(frozen=True)
class Request:
    """What the user asked for on the command line."""

    config: Path | None
    settings: dict[str, Any]
    device: str
    out: Path | None
    resume: bool
    workers: int | None
    json: bool


@dataclass(frozen=True)
class Reach:
    """How a run reaches its sites, as the words of the command line."""

    engine: Literal["inprocess", "flower"] | None = None
    hub: Path | None = None  # the folder of a hub, whose sites are elsewhere
    facts: Path | None = None  # what sites elsewhere declare


@dataclass(frozen=True)
class CompareRequest:
    """What the user asked to be compared, as the words of the command line."""

    experiment: Path | None
    methods: str | None
    seeds: int | None
    size: str | None
    columns: str | None


@dataclass(frozen=True)
class ReportRequest:
    """What a report shows on the screen, and where its page goes."""

    out: Path | None = None  # None: in the folder of the (first) run
    details: bool = False
    json: bool = False
    watch: bool = False  # until the run is done
    tensorboard: Path | None = None  # folder of event files; None: none are written


def common(
    config: Annotated[Path | None, Argument(help="A TOML file of settings, below options.")] = None,
    preset: Annotated[str | None, Option(help="sound (default), demo (smaller) or paper.")] = None,
    dataset: Annotated[
        str | None,
        Option(help="digits, a torchvision set by name, or a .npz, table or image folder."),
    ] = None,
    data_root: Annotated[Path | None, Option(help="Folder of torchvision's data sets.")] = None,
    public_data: Annotated[str | None, Option(help="A public data set of the same kind.")] = None,
    unlabelled_data: Annotated[
        str | None, Option(help="Public samples, whose labels are absent or not read.")
    ] = None,
    public_fraction: Annotated[
        float | None, Option(help="Share of the data set to make public: it has no protection.")
    ] = None,
    encoder: Annotated[
        str | None,
        Option(help="Frozen network for pictures: .pt2, .onnx or ARCHITECTURE:WEIGHTS."),
    ] = None,
    label: Annotated[str | None, Option(help="Label column of a table.")] = None,
    group: Annotated[
        str | None, Option(help="Column, or array of a .npz, of the privacy unit, as patient_id.")
    ] = None,
    no_header: NoHeader = False,
    client_column: Annotated[str | None, Option(help="Column with the site, as hospital.")] = None,
    sites: Annotated[
        list[str] | None,
        Option(help="Directories of sites (`panas site init`), or a folder of such."),
    ] = None,
    client_data: Annotated[list[str] | None, Option(help="A data file or folder a site.")] = None,
    clients: Annotated[int | None, Option(help="Number of sites.")] = None,
    partition: Annotated[str | None, Option(help="iid, dirichlet or classes.")] = None,
    epsilon: Annotated[float | None, Option(help="Each site's privacy budget, above 0.")] = None,
    delta: Annotated[float | None, Option(help="Below 1/n of every site.")] = None,
    strict: Annotated[bool, Option("--strict", help="Refuse samples of other ledgers.")] = False,
    rounds: Annotated[int | None, Option(help="Rounds of the federation.")] = None,
    method: Annotated[str | None, Option(help="joined, dprbft, local, fedavg, ...")] = None,
    warm_start: Annotated[str | None, Option(help="public or none.")] = None,
    head_init: Annotated[str | None, Option(help="etf or random.")] = None,
    head: Annotated[str | None, Option(help="shared, local or blend.")] = None,
    max_parameters: Annotated[
        int | None, Option(help="Most parameters of a searched network.")
    ] = None,
    max_latency_ms: Annotated[
        float | None,
        Option(help="Most milliseconds that such a network takes for one sample, on one thread."),
    ] = None,
    seed: Annotated[int | None, Option(help="Of data, search and weights; not of noise.")] = None,
    set_: Annotated[
        list[str] | None, Option("--set", help="Any setting: section.key=value. May be repeated.")
    ] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[Path | None, Option(help="Run directory.")] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with the run in --out.")] = False,
    workers: Annotated[int | None, Option(help="Worker processes (default: one a core).")] = None,
    json: Annotated[bool, Option("--json", help="One JSON object on stdout.")] = False,
) -> Request:
    """Collect the options that were given."""
    settings: dict[str, Any] = {}
    given = {
        "preset": preset,
        "seed": seed,
        "data.dataset": dataset,
        "data.data_root": str(data_root) if data_root else None,
        "data.public_data": public_data,
        "data.unlabelled_data": unlabelled_data,
        "data.public_fraction": public_fraction,
        "network.encoder": encoder,
        "data.label": label,
        "data.group": group,
        "data.client_column": client_column,
        "data.table.header": "no" if no_header else None,
        **split_data(sites, client_data),
        **({"federation.clients": clients} if clients is not None else {}),
        "privacy.strict": strict or None,
        "federation.partition": partition,
        "federation.rounds": rounds,
        "federation.method": method,
        "federation.warm_start": warm_start,
        "federation.head_init": head_init,
        "federation.head": head,
        "search.max_parameters": max_parameters,
        "search.max_latency_ms": max_latency_ms,
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
    }
    for key, value in given.items():
        if value is not None:
            _put(settings, key, value)
    by_set: set[str] = set()
    for item in set_ or ():
        key, equals, text = item.partition("=")
        if not equals:
            raise BadInput(f"expected --set section.key=value, got {item!r}")
        key, value = key.strip(), _value(text.strip())
        if key in by_set:
            raise BadInput(f"expected --set {key} once, got it twice; keep one")
        by_set.add(key)
        if given.get(key, value) not in (None, value):
            raise BadInput(
                f"expected {key} once, got {given[key]} by its option and {value} by --set"
            )
        _put(settings, key, value)
    request = Request(config, settings, device, out, resume, workers, json)
    _refuse(request)
    return request


def _refuse(request: Request) -> None:
    check_word(request.device)
    if request.workers is not None and request.workers < 1:
        raise BadInput(f"expected --workers of at least 1, got {request.workers}; leave it out")
    if request.config and not request.config.is_file():
        raise BadInput(
            f"expected a configuration file at {request.config}, got none; check the path"
        )
    if request.resume and request.out is None:
        raise BadInput("expected --out DIR with --resume, got none; name the run to go on with")
    data = request.settings.get("data", {})
    for key in ("dataset", "public_data", "unlabelled_data"):
        given = data.get(key)
        if isinstance(given, str) and is_path(given) and not Path(given).expanduser().exists():
            raise BadInput(f"expected data at {given}, found none; check data.{key}")
    check_encoder_file(request.settings.get("network", {}).get("encoder"))
    root = data.get("data_root")
    if isinstance(root, str) and not Path(root).expanduser().is_dir():
        raise BadInput(f"expected a folder at {root}, found none; check --data-root")


def check_encoder_file(encoder: object) -> None:
    """Refuse an encoder whose file is not there."""
    if not isinstance(encoder, str):
        return
    path = encoder.rpartition(":")[2]
    if not Path(path).expanduser().is_file():
        raise BadInput(f"expected an encoder's file at {path}, found none; check --encoder")


def refuse_used(request: Request) -> None:
    """Refuse a run directory that holds a run already, unless it is to go on."""
    if request.out and not request.resume and (request.out / "config.toml").exists():
        raise BadInput(
            f"expected a new run directory, got {request.out}, which holds a run; give --resume to "
            "continue it or another --out"
        )


def with_options(sentence: str) -> str:
    """A sentence with the option after each setting that has one: "data.label (--label)"."""
    named = inspect.signature(common).parameters

    def add(found: re.Match[str]) -> str:
        option = f" (--{found[1].replace('_', '-')})" if found[1] in named else ""
        return f"{found[0]}{option}"

    return re.sub(r"\b(?:data|federation|privacy|search)\.(\w+)\b(?![=.*])", add, sentence)


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the common options; it receives them as its first argument, a `Request`."""
    return _with(command, tuple(inspect.signature(common).parameters))


NOT_COMPARED = (
    *("config", "preset", "sites", "strict", "method", "warm_start", "head_init", "head"),
)
"""Common options that a comparison has not: it decides them, or they are of one method alone."""


def with_compared(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command those common options that a comparison of methods has."""
    names = inspect.signature(common).parameters
    return _with(command, tuple(name for name in names if name not in NOT_COMPARED))


def _with(command: Callable[..., None], names: Sequence[str]) -> Callable[..., None]:
    every = inspect.signature(common).parameters
    shared = {name: every[name] for name in names}
    absent = {name: p.default for name, p in every.items() if name not in shared}
    _, *own = inspect.signature(command).parameters.values()

    def wrapped(**values: Any) -> None:
        request = common(**absent, **{k: v for k, v in values.items() if k in shared})
        command(request, **{k: v for k, v in values.items() if k not in shared})

    wrapped.__signature__ = inspect.Signature([*shared.values(), *own])  # type: ignore[attr-defined]
    wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
    return wrapped


def _put(settings: dict[str, Any], key: str, value: Any) -> None:
    section, dot, name = key.partition(".")
    if not dot:
        settings[section] = value
        return
    below = settings.setdefault(section, {})
    if not isinstance(below, dict) or not name:
        raise BadInput(f"expected --set section.key=value, got the key {key!r}")
    if name.startswith(("options.", "table.")):  # a table of its own within the section
        _put(below, name, value)
    else:
        below[name] = value


def _value(text: str) -> Any:
    """A TOML value; what is none is taken as text, so that names need no quotes."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def checked_folder(path: Path) -> Path:
    """A folder that is there."""
    if not path.is_dir():
        raise BadInput(f"expected a run directory, got {path}, which is none; check the path")
    return path


def checked_audited(run: Path | None, implementation: bool, mechanism: str | None) -> Path | None:
    """The run to audit; None where it is an implementation.

    Args:
        run: its directory, if one was named.
        implementation: whether the code is to be tested.
        mechanism: FILE.py:NAME of the user's own.
    """
    if mechanism is not None and not implementation:
        raise BadInput("expected --implementation with --mechanism, got none; add it")
    if implementation == (run is not None):
        got = "both" if implementation else "neither"
        raise BadInput(f"expected a run directory or --implementation, got {got}; give one")
    return None if run is None else checked_folder(run)


def checked_source(path: Path) -> Path:
    """A folder or file that is there."""
    if not path.exists():
        raise BadInput(
            f"expected a run directory, or a file of a network or predictor, at {path}, found "
            "none; check the path"
        )
    return path


def checked_input(data: str) -> str:
    """A path of samples that is there."""
    if not Path(data).expanduser().exists():
        raise BadInput(f"expected samples at {data}, found none; check --input")
    return data


RESULTS = (".csv", ".json")


def checked_results(out: Path | None, json: bool) -> Path | None:
    """A file for predictions, by its ending, which must be .json where JSON is asked for."""
    endings = RESULTS[1:] if json else RESULTS
    if out is not None and (out.suffix.lower() not in endings or out.is_dir()):
        expected = " or ".join(endings)
        raise BadInput(f"expected a {expected} file as --out, got {out}; name another")
    return out


@dataclass(frozen=True)
class Chosen:
    """What classifies, of all that a run has left."""

    site: str | None = None  # by name; None where there is one only
    model: Literal["predictor", "network"] | None = None  # None: the predictor, if there is one
    encoder: str | None = None  # its file; None: the one that the site's owner has named


FORMATS = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}


def checked_export(out: Path | None, format: str) -> Path | None:
    """A file for a network, by its ending; None for none."""
    ending = FORMATS[format]
    if out is not None and (out.suffix.lower() != ending or out.is_dir()):
        raise BadInput(f"expected a {ending} file as --out for {format}, got {out}; name another")
    return out


@dataclass(frozen=True)
class Leaving:
    """What an owner lets leave that no epsilon covers."""

    although_it_must_stay: bool = False
    with_accuracy: bool = False


def checked_reach(request: Request, reach: Reach) -> Reach:
    """How sites are reached, as far as the arguments show that it fits."""
    own = request.settings.get("federation", {})
    if reach.facts and not reach.hub:
        raise BadInput("expected --hub DIR with --facts, got none; sites here declare their own")
    if reach.facts and not reach.facts.is_file():
        raise BadInput(f"expected declared facts at {reach.facts}, found none; check --facts")
    if reach.hub is None:
        return reach
    if not (reach.hub / "hub.toml").is_file():
        raise BadInput(
            f"expected a hub with a hub.toml at {reach.hub}, found none; `panas deploy init`"
        )
    if reach.engine == "inprocess":
        raise BadInput(
            "expected sites of this machine with --engine inprocess, got --hub, whose sites are "
            "elsewhere; leave one out"
        )
    for name in ("sites", "client_data", "clients"):
        if name in own:
            raise BadInput(
                f"expected the sites that hub.toml names, got federation.{name} as well; leave one "
                "out"
            )
    return reach


def planned_request(request: Request, reach: Reach) -> Request:
    """The request of a run that is only planned: its directory is not made."""
    if reach.hub is not None:
        raise BadInput(
            "expected sites of this machine with --dry-run, got --hub, whose sites are elsewhere; "
            "leave one out"
        )
    if request.resume:
        raise BadInput("expected no --resume with --dry-run, got one; leave it out")
    return replace(request, out=None)


def checked_workers(shadows: int, workers: int | None) -> int:
    """The number of processes.

    Raises:
        BadInput: for one shadow, which has no spread, or less than one process.

    """
    if shadows < 0 or shadows == 1:
        raise BadInput(f"expected --shadows of 0, or 2 and more, got {shadows}; 16 is a good start")
    processes = default_workers() if workers is None else workers
    if processes < 1:
        raise BadInput(f"expected --workers of 1 or more, got {processes}; leave it out")
    return processes


def check_claim(epsilon: float | None, delta: float, accuracy: float | None) -> None:
    """Refuse what is known of a network trained elsewhere, where it is out of range.

    Args:
        epsilon: above 0; None: none is claimed.
        delta: in (0, 1).
        accuracy: in [0, 1]; None: unknown.
    """
    if not 0 < delta < 1 or (epsilon is not None and not epsilon > 0):
        raise BadInput(
            f"expected --epsilon above 0, --delta in (0, 1), got {epsilon}, {delta}; fix them"
        )
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise BadInput(f"expected --accuracy in [0, 1], got {accuracy}; give a share, as 0.98")


def numbers(option: str, text: str, positive: bool = False) -> list[float]:
    """Finite numbers between commas; BadInput for others.

    Args:
        option: the option that takes them, for the message.
        text: what the user gave.
        positive: whether all must be above 0.
    """
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as e:
        raise BadInput(f"expected numbers for {option}, as 0.5 or 0.5,0.4,0.3, got {text!r}") from e
    if not all(math.isfinite(v) and (v > 0 or not positive) for v in values):
        kind = "finite numbers above 0" if positive else "finite numbers"
        raise BadInput(f"expected {kind} for {option}, got {text!r}; 0.5 is its default")
    return values


@dataclass(frozen=True)
class DeclaredBy:
    """What an owner declares data by, besides the data: one of the two, or neither."""

    public_data: str | None = None  # a data set that anybody may see
    facts: Path | None = None  # a federation's facts.json


def declared_by(public_data: str | None, facts: Path | None) -> DeclaredBy:
    """The two options; BadInput if both are given, or a file is missing."""
    if public_data and facts:
        raise BadInput("expected --public-data or --facts, got both; give one of them")
    if facts and not facts.is_file():
        raise BadInput(f"expected a facts.json at {facts}, found none; check --facts")
    return DeclaredBy(public_data, facts)


def ranges_of(given: Sequence[str] | None) -> dict[str, tuple[float, float]] | None:
    """Lowest and highest value of columns, from texts COLUMN=LOW:HIGH; None for none."""
    results = {}
    for text in given or ():
        name, _, numbers = text.rpartition("=")
        low, _, high = numbers.partition(":")
        try:
            results[name] = float(low), float(high)
        except ValueError as e:
            raise BadInput(
                f"expected --range COLUMN=LOW:HIGH, got {text!r}; say for example --range age=0:120"
            ) from e
        if not name:
            raise BadInput(f"expected the name of a column in --range, got {text!r}; name it")
    return results or None


OF_SYSTEMS = ("__MACOSX", "Thumbs.db", "desktop.ini")
"""What systems add to folders that are packed or looked at."""


def split_data(
    sites: Sequence[str] | None, client_data: Sequence[str] | None
) -> dict[str, list[str] | int]:
    """The settings for data that come split; a folder of sites or of data files is taken apart."""
    if sites and client_data:
        raise BadInput("expected --sites or --client-data, got both; give one of them")
    folders = [Path(s).expanduser().resolve() for s in sites or ()]
    files = [Path(s).expanduser().resolve() for s in client_data or ()]
    if len(folders) == 1 and folders[0].is_dir() and not (folders[0] / "site.toml").exists():
        below = (p for p in folders[0].iterdir() if not p.name.startswith("."))
        inside = sorted(p for p in below if p.name not in OF_SYSTEMS)
        folders = [p for p in inside if (p / "site.toml").is_file()]
        files = [p for p in inside if p not in folders]
        if folders and files:
            raise BadInput(
                f"expected sites or data in {sites}, got both: {files[0].name} is no site; "
                "`panas site init` makes one"
            )
    paths = folders or files
    if not paths:
        if sites:
            raise BadInput(f"expected sites at {', '.join(sites)}, found none; `panas site init`")
        return {}
    key = "federation.sites" if folders else "federation.client_data"
    return {key: [str(path) for path in paths], "federation.clients": len(paths)}


def spread_lists(arguments: Sequence[str]) -> list[str]:
    """Arguments in which an option of several values stands before each: --sites A --sites B."""
    spread: list[str] = []
    option = None
    for argument in arguments:
        if argument.startswith("-"):
            option = argument if argument in ("--sites", "--client-data") else None
            if option is None:
                spread.append(argument)
        elif option:
            spread += [option, argument]
        else:
            spread.append(argument)
    return spread
