"""Pages that follow from the code: commands, settings, and the public names of the packages."""

from collections.abc import Iterator
from importlib import import_module

import click
import typer

from dprbft.config.listing import Setting, list_settings
from panas_cli.main import app

METHODS = {"joined": "joined", "rounds": "dprbft", "updates": "fedavg"}
"""A method of each family, by which the settings of the family are listed."""


def commands() -> str:
    """Every command with its help, arguments and options."""
    lines = ["# Commands", "", "`panas COMMAND --help` shows the same. Exit codes: 0, done; 1, a"]
    lines += ["leak or a failed check; 2, wrong input; 3, a budget does not suffice.", ""]
    root = typer.main.get_command(app)
    for path, command in _walk(root, "panas"):
        lines += [f"## `{path}`", "", command.help or "", ""]
        parameters = [p for p in command.params if not getattr(p, "hidden", False)]
        if parameters:
            lines += ["| option | what it does |", "|---|---|"]
            lines += [_parameter(p) for p in parameters]
            lines.append("")
    return "\n".join(lines)


def _walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            if not below.hidden:
                yield from _walk(below, f"{path} {name}")
    else:
        yield path, command


def _parameter(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
        kind = "" if parameter.is_flag else f" {parameter.make_metavar(_context())}"
        text = parameter.help or ""
    else:
        name, kind = parameter.make_metavar(_context()), ""
        text = getattr(parameter, "help", None) or ""
    return f"| `{name}{kind}` | {_cell(text)} |".replace("``", "`")


def _context() -> click.Context:
    return click.Context(click.Command("panas"))


def settings() -> str:
    """Every setting of every family, in sections, with its default."""
    entries: dict[str, Setting] = {}
    readers: dict[str, list[str]] = {}
    for family, method in METHODS.items():
        for setting in list_settings({"federation": {"method": method}}):
            entries.setdefault(setting.key, setting)
            readers.setdefault(setting.key, []).append(family)
    lines = ["# Settings", "", "Set them in a file (`--config FILE`, TOML) or one by one"]
    lines += ["(`--set section.name=value`). `panas config` lists those that a method reads.", ""]
    lines += ["Families: `joined`; *rounds* (`dprbft`, `local`); *updates* (the literature).", ""]
    section = None
    for key in sorted(entries, key=lambda k: (k.count(".") > 0, k.rpartition(".")[0])):
        setting = entries[key]
        if (head := key.rpartition(".")[0]) != section:
            section = head
            lines += [f"## `{head}`" if head else "## Top level", ""]
            lines += [
                "| setting | default | values | meaning | families |",
                "|---|---|---|---|---|",
            ]
        which = "all" if len(readers[key]) == len(METHODS) else ", ".join(readers[key])
        default = "none" if setting.default is None else setting.default
        values = [f"`{key}`", f"`{default}`", setting.kind, setting.about, which]
        lines.append("| " + " | ".join(map(_cell, values)) + " |")
    return "\n".join(_spaced(lines))


def _spaced(lines: list[str]) -> Iterator[str]:
    """An empty line before each heading."""
    for line in lines:
        if line.startswith("## "):
            yield ""
        yield line


def api(package: str) -> str:
    """The public names of a package, rendered from their docstrings."""
    module = import_module(package)
    first, _, rest = (module.__doc__ or "").partition("\n\n")
    lines = [f"# `{package}`", "", first, "", rest, ""]
    for name in module.__all__:
        value = getattr(module, name)
        lines += [f"::: {value.__module__}.{name}", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
