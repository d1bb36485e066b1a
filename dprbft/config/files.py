"""Configurations from presets, files and options, and back into a run's config.toml."""

import difflib
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from dprbft.config.families import CORE, Family, family_of, method_names
from dprbft.config.flat import Section, flatten
from dprbft.config.presets import FIRST_RUN, PRESETS
from dprbft.config.schema import RunConfig
from dprbft.config.sections import Data, FederationSettings, Privacy
from dprbft.config.toml import read_toml
from dprbft.config.where import is_path
from panas.data.torchvision_sets import NAMES
from panas.features.encoders.files import absolute
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes

DATASETS = ("dataset", "public_data", "unlabelled_data")
"""Settings of `data` that name a data set."""


def build_config(*layers: dict[str, Any]) -> RunConfig:
    """A configuration from nested dictionaries, later ones over earlier ones, over the preset.

    A preset's settings that the method does not read are left out.

    BadInput, in one line, names the key, what it expects and what came; also a key that the method
    does not read.
    """
    merged = with_table(merge(*layers))
    preset = merged.get("preset", "sound")
    if preset not in PRESETS:
        raise BadInput(f"expected a preset of {', '.join(PRESETS)}, got {preset!r}")
    presets = merge(PRESETS["sound"], PRESETS[preset])
    family = _family(merge(presets, merged))
    if family and (unread := [key for key in flatten(merged) if not family.reads(key)]):
        raise BadInput(_why_unread(unread[0], merge(presets, merged)["federation"]["method"]))
    settings = merge(without_unread(presets, family), merged)
    try:
        if not _may_look(settings):
            settings = merge({"privacy": {"search": "data-free"}}, settings)
        return RunConfig.model_validate(merge(_owners_delta(settings), settings))
    except ValidationError as e:
        raise BadInput(_first_error(e)) from e


def first_run(settings: dict[str, Any]) -> dict[str, Any]:
    """What lies under settings that name no data, sites, method or preset: those of the first run.

    Nothing lies under others.
    """
    federation = settings.get("federation", {})
    own = {"method", "sites", "client_data", "remote"} & federation.keys()
    return {} if own or "preset" in settings or settings.get("data") else FIRST_RUN


def with_table(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with `data.texts`, as former versions called it, in `data.table`."""
    data = settings.get("data")
    if not isinstance(data, dict) or "texts" not in data:
        return settings
    rest = {key: value for key, value in data.items() if key != "texts"}
    texts = {"table": {"texts": data["texts"]}} if data["texts"] else {}
    return settings | {"data": merge(texts, rest)}


def without_unread(settings: dict[str, Any], family: Family | None = None) -> dict[str, Any]:
    """Nested settings without those that the methods of a family do not read.

    The family is that of the settings' own method unless it is given.
    """
    if (family := family or _family(merge(PRESETS["sound"], settings))) is None:
        return settings
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            value = {key: v for key, v in value.items() if family.reads(f"{name}.{key}")}
        if value != {}:
            kept[name] = value
    return kept


def _family(settings: dict[str, Any]) -> Family | None:
    """The family of the method that settings name; None if it is no method's name."""
    federation = settings.get("federation")
    method = federation.get("method") if isinstance(federation, dict) else None
    name = method.replace("-", "_") if isinstance(method, str) else ""
    return family_of(name) if name in method_names() else None


def _why_unread(key: str, method: str) -> str:
    readers = [name for name in CORE if family_of(name).reads(key)]
    other = f", or use --method {' or '.join(readers)}" if readers else ""
    return (
        f"expected a setting of method {method}, got {key}, which it does not read; leave it "
        f"out{other}"
    )


def _owners_delta(settings: dict[str, Any]) -> dict[str, Any]:
    """The delta of a run whose settings name none: the default, or the smallest that an owner of
    its sites here has in `site.toml`, who would refuse a larger one."""
    federation = settings.get("federation", {})
    folders = federation.get("sites", ()) if isinstance(federation, dict) else ()
    deltas = [Privacy.model_fields["delta"].default]
    for folder in folders if isinstance(folders, list | tuple) else ():
        with suppress(OSError, ValueError, TypeError):  # whoever opens the site says so
            delta = tomllib.loads((Path(folder) / "site.toml").read_text()).get("delta")
            deltas += [delta] if isinstance(delta, float) and 0 < delta < 1 else []
    return {"privacy": {"delta": min(deltas)}} if len(deltas) > 1 else {}


def _may_look(settings: dict[str, Any]) -> bool:
    """Whether a search by default looks at samples: where there are public ones, or it is left out
    without any. Networks that stay are searched in any case."""
    try:
        federation = FederationSettings.model_validate(settings.get("federation", {}))
        source = Data.model_validate(settings.get("data", {})).source
    except ValidationError:
        return True  # the whole configuration will say so
    open_to_all = source.has_public and not (federation.comes_split and source.public_data is None)
    stays = settings.get("privacy", {}).get("network") == "stays"
    must_search = federation.family.must_search or (stays and not source.has_unlabelled)
    return open_to_all or not must_search


def merge(*layers: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries as one, later ones over earlier ones."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            both = isinstance(below, dict) and isinstance(value, dict)
            merged[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def with_paths(settings: dict[str, Any], folder: Path = Path()) -> dict[str, Any]:
    """The settings with all paths absolute; relative ones are of `folder`."""
    settled = dict(settings)
    if isinstance(data := settings.get("data"), dict):
        named = {k: v for k, v in data.items() if k in DATASETS and isinstance(v, str)}
        paths = {key: _absolute(value, folder) for key, value in named.items()}
        if isinstance(root := data.get("data_root"), str):
            paths["data_root"] = str((folder / Path(root).expanduser()).resolve())
        settled["data"] = data | paths
    if isinstance(federation := settings.get("federation"), dict):
        files = federation.get("client_data")
        if isinstance(files, list | tuple) and all(isinstance(f, str) for f in files):
            whole = [_absolute(f, folder) for f in files]
            settled["federation"] = federation | {"client_data": whole}
    network = settings.get("network")
    if isinstance(network, dict) and isinstance(encoder := network.get("encoder"), str):
        settled["network"] = network | {"encoder": absolute(encoder, folder)}
    return settled


def _absolute(dataset: str, folder: Path) -> str:
    """A path as an absolute one, so that the run can be read from anywhere; a name as it is."""
    path = folder / Path(dataset).expanduser()
    if dataset and (is_path(dataset) or (dataset not in NAMES and path.is_dir())):
        return str(path.resolve())
    return dataset


def _first_error(e: ValidationError) -> str:
    error = e.errors()[0]
    key = _key(error["loc"])
    if error["type"] == "extra_forbidden":
        known = [*flatten(RunConfig.model_construct().model_dump()), "preset", "seed"]
        near = difflib.get_close_matches(key, known, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        return f"expected a known configuration key, got {key!r}; {meant}`panas config` lists all"
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "to be")
    if message.startswith("expected"):  # by a dataclass of the domain
        return f"{key}: {message}"
    if not key:
        return f"expected {message}"
    return f"expected {key} {message}, got {error['input']!r:.100}; change it"


def _key(location: tuple[int | str, ...]) -> str:
    """The key as a user writes it, for a place in the configuration's models."""
    # pydantic also names the member of a union that did not fit.
    section, *rest = (str(p) for p in location or ("",) if not str(p).startswith("tuple["))
    model = RunConfig.model_fields[section].annotation if rest else None
    if isinstance(model, type) and issubclass(model, Section):
        prefixes = {name: prefix for name, prefix, _ in model.flat()}
        if rest[0] in prefixes:
            rest = [prefixes[rest[0]] + (rest[1] if rest[1:] else "*"), *rest[2:]]
    return ".".join((section, *rest)).removesuffix(".*")


def load_config(run: Path) -> RunConfig:
    """The configuration that a run directory was made with."""
    return build_config(read_run(run))


def read_run(run: Path) -> dict[str, Any]:
    """The settings of a run directory as they are written; BadInput if this version cannot."""
    if not (run / "config.toml").is_file():
        raise BadInput(
            f"expected a run directory with a config.toml at {run}, found none; check the path"
        )
    # Former versions wrote all settings: those that the method does not read had no effect.
    settings = without_unread(read_toml(run / "config.toml"))
    try:
        build_config(settings)
    except BadInput as e:
        raise BadInput(
            f"expected a run of this version, got {run}, made by an older version ({e}); start a "
            "new run"
        ) from e
    return settings


def save_config(run: Path, config: RunConfig) -> None:
    """Write all settings that a run's method reads to its directory."""
    settings = without_unread(config.model_dump(exclude_none=True))
    write_bytes(run / "config.toml", tomli_w.dumps(settings).encode())
