"""`panas config`: every setting, as a TOML file in which what is not set is a comment."""

import json
import math
import textwrap
from itertools import groupby

from dprbft.config.files import merge
from dprbft.config.listing import Setting, Value, list_settings
from dprbft.config.toml import read_toml
from panas_cli.options import Request
from panas_cli.text.printing import print_json, print_text

WIDTH = 100


def config(request: Request) -> None:
    """Show every setting with its default, unit and range, and whether it is set."""
    given = merge(read_toml(request.config) if request.config else {}, request.settings)
    result = list_settings(given)
    if request.json:
        print_json({"settings": [s.to_json() for s in result]})
        return
    print_text("# What is set; the other settings, as comments, have their defaults.")
    for section, settings in groupby(result, lambda s: s.key.rpartition(".")[0]):
        if section:
            print_text(f"\n[{section}]")
        for setting in settings:
            for line in _lines(setting):
                print_text(line)


def _lines(setting: Setting) -> list[str]:
    """A setting with what it means: beside it, or above it where that is long."""
    name, value = setting.key.rpartition(".")[2], setting.value
    about = "; ".join(text for text in (setting.kind, setting.about) if text)
    line = f"{name} = {_toml(value)}"
    if setting.is_set and value is not None:
        about += f" (default: {_toml(setting.default)})"
    else:
        line = f"# {line}"
    if len(line) + len(about) < WIDTH:
        return [f"{line}  # {about}"]
    return [*textwrap.wrap(about, WIDTH, initial_indent="## ", subsequent_indent="## "), line]


def _toml(value: Value) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        cells = (f"{json.dumps(k, ensure_ascii=False)} = {_toml(v)}" for k, v in value.items())
        return f"{{{', '.join(cells)}}}"
    return "inf" if value == math.inf else json.dumps(value, ensure_ascii=False)
