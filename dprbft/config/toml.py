"""TOML files, read without anything heavy: a hub's settings need no torch."""

import tomllib
from pathlib import Path
from typing import Any

from panas.runtime.errors import BadInput


def read_toml(path: Path) -> dict[str, Any]:
    """The nested dictionary of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as e:
        raise BadInput(f"expected a configuration file at {path}, got none; check the path") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise BadInput(f"expected TOML in {path}, got a file that does not parse: {e}") from e
