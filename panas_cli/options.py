"""The options that run, search, tune and train share, and how they become a configuration."""

import inspect
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from dprbft.config.files import build_config, read_run, read_toml
from dprbft.config.schema import RunConfig
from dprbft.run.directory import prepare
from panas.data.torchvision_sets import NAMES
from panas.runtime.errors import BadInput
from panas.runtime.pool import default_workers


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
class Job:
    """A request made definite: a configuration, a run directory, and where to compute."""

    config: RunConfig
    run: Path
    device: str
    workers: int
    json: bool


def common(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file of settings; options go over it.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="sound (default), demo (smaller) or paper.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="digits, a torchvision set by name, or a .npz, .csv or image folder."),
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder that holds torchvision's data sets.")
    ] = None,
    public_data: Annotated[
        str | None, typer.Option(help="A public data set of the same kind.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Label column of a .csv.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet or classes.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Each client's privacy budget, above 0.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Below 1/n of every client.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of the federation.")] = None,
    method: Annotated[str | None, typer.Option(help="dprbft or local.")] = None,
    warm_start: Annotated[str | None, typer.Option(help="public or none.")] = None,
    head_init: Annotated[str | None, typer.Option(help="etf or random.")] = None,
    head: Annotated[str | None, typer.Option(help="shared, local or blend.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of data, search and weights; never of privacy noise.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting: section.key=value. May be repeated."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Run directory.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes (default: one a core).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> Request:
    """Collect the options that were given."""
    settings: dict[str, Any] = {}
    given = {
        "preset": preset,
        "seed": seed,
        "data.dataset": _absolute(dataset),
        "data.data_root": str(data_root.resolve()) if data_root else None,
        "data.public_data": _absolute(public_data),
        "data.label": label,
        "federation.clients": clients,
        "federation.partition": partition,
        "federation.rounds": rounds,
        "federation.method": method,
        "federation.warm_start": warm_start,
        "federation.head_init": head_init,
        "federation.head": head,
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
    }
    for key, value in given.items():
        if value is not None:
            _put(settings, key, value)
    for item in set_ or ():
        key, equals, text = item.partition("=")
        if not equals:
            raise BadInput(f"expected --set section.key=value, got {item!r}")
        key, value = key.strip(), _value(text.strip())
        if given.get(key, value) not in (None, value):
            raise BadInput(
                f"expected {key} once, got {given[key]} by its option and {value} by --set"
            )
        _put(settings, key, value)
    return Request(config, settings, device, out, resume, workers, json)


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the common options; it receives them as its first argument, a `Request`."""
    shared = inspect.signature(common).parameters
    _, *own = inspect.signature(command).parameters.values()

    def wrapped(**values: Any) -> None:
        request = common(**{k: v for k, v in values.items() if k in shared})
        command(request, **{k: v for k, v in values.items() if k not in shared})

    wrapped.__signature__ = inspect.Signature([*shared.values(), *own])  # type: ignore[attr-defined]
    wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
    return wrapped


def start(
    request: Request,
    *,
    shared: bool = False,
    after: str | None = None,
    clients: Sequence[int] = (),
) -> Job:
    """Check everything, and make or reopen the run directory.

    With `shared`, several commands fill one directory, and reopening it needs no --resume. With
    `after`, the directory must be there, from the command of that name. `clients` are those that
    the user names.
    """
    run = request.out or _new_folder(request)
    if after and (request.out is None or not (run / "config.toml").is_file()):
        raise BadInput(
            f"expected --out DIR, a directory that `panas {after}` has filled, got "
            f"{request.out or 'none'}; run `panas {after}` first"
        )
    layers = [read_toml(request.config)] if request.config else []
    if (run / "config.toml").is_file() and (request.resume or shared):
        layers.insert(0, read_run(run))
    elif request.resume:
        raise BadInput(f"expected a run to resume at {run}, found none; leave --resume out")
    config = build_config(*(_with_paths(layer) for layer in (*layers, request.settings)))
    device = _device(request.device)
    if request.workers is not None and request.workers < 1:
        raise BadInput(f"expected --workers of at least 1, got {request.workers}")
    everyone = config.federation.clients
    for client in clients:
        if not 0 <= client < everyone:
            raise BadInput(f"expected a --client of 0 to {everyone - 1}, got {client}")
    # Several processes on one GPU only get into each other's way.
    workers = request.workers or (1 if device == "cuda" else default_workers())
    prepare(run, config, resume=request.resume, shared=shared)
    return Job(config, run, device, workers, request.json)


def _new_folder(request: Request) -> Path:
    if request.resume:
        raise BadInput("expected --out DIR with --resume, got none; name the run to go on with")
    return Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")


def _device(name: str) -> str:
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f"expected --device auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("expected a CUDA device for --device cuda, found none; use --device cpu")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def _absolute(dataset: str | None) -> str | None:
    """A path as an absolute one, so that the run can be read from anywhere; a name as it is."""
    folder = dataset is not None and dataset not in NAMES and Path(dataset).is_dir()
    if dataset and (Path(dataset).suffix or "/" in dataset or folder):
        return str(Path(dataset).expanduser().resolve())
    return dataset


def _with_paths(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with all paths absolute."""
    data = settings.get("data")
    if not isinstance(data, dict):
        return settings
    for key in ("dataset", "public_data"):
        if isinstance(data.get(key), str):
            data = data | {key: _absolute(data[key])}
    if isinstance(data.get("data_root"), str):
        data = data | {"data_root": str(Path(data["data_root"]).expanduser().resolve())}
    return settings | {"data": data}


def _put(settings: dict[str, Any], key: str, value: Any) -> None:
    section, dot, name = key.partition(".")
    if not dot:
        settings[section] = value
        return
    below = settings.setdefault(section, {})
    if not isinstance(below, dict) or not name:
        raise BadInput(f"expected --set section.key=value, got the key {key!r}")
    below[name] = value


def _value(text: str) -> Any:
    """A TOML value; what is none is taken as text, so that names need no quotes."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text
