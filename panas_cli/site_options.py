"""Options of data that come split and of a site: what they name, without loading a library."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from panas.runtime.errors import BadInput

SITE = "site.toml"


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


def split_data(
    sites: Sequence[str] | None, client_data: Sequence[str] | None
) -> dict[str, list[str] | int]:
    """The settings for data that come split; a folder of sites or of data files is taken apart."""
    if sites and client_data:
        raise BadInput("expected --sites or --client-data, got both; give one of them")
    folders = [Path(s).expanduser().resolve() for s in sites or ()]
    files = [Path(s).expanduser().resolve() for s in client_data or ()]
    if len(folders) == 1 and folders[0].is_dir() and not (folders[0] / SITE).exists():
        inside = sorted(p for p in folders[0].iterdir() if not p.name.startswith("."))
        folders = [p for p in inside if (p / SITE).is_file()]
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
