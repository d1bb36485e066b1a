"""Options for data that come split: what they name, without loading a library."""

from collections.abc import Sequence
from pathlib import Path

from panas.runtime.errors import BadInput

SITE = "site.toml"


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
