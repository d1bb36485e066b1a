"""The command `panas`: its subcommands, and what each error becomes.

Exit codes: 0 done, 1 a leak (`--fail-on`), 2 bad input (one line), 3 budget exhausted, 130
interrupted (resumable).
"""

import os
import signal
import sys
import warnings
from collections import Counter
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.utils import get_params_from_function

from panas.runtime.errors import BadInput, PanasError
from panas_cli.front import COMMANDS
from panas_cli.options import spread_lists, with_options
from panas_cli.site_front import deploy, node, site


class FullHelp(TyperCommand):
    """A command whose help has that of its arguments."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the help, with that of arguments: click from 8.5 on forgets it under typer 0.20."""
        told = get_params_from_function(self.callback) if self.callback else {}
        for parameter in self.params:
            if not getattr(parameter, "help", None) and parameter.name in told:
                parameter.help = getattr(told[parameter.name].default, "help", None)
        super().format_help(ctx, formatter)


class OncePerOption(FullHelp):
    """A command that takes an option once, unless it says that it may be repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; BadInput for an option given twice."""
        args = spread_lists(args)
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(given).items():
            if times > 1 and not parameter.multiple and parameter.param_type_name == "option":
                name = max(parameter.opts, key=len)
                raise BadInput(f"expected {name} once, got it {times} times; keep one")
        return super().parse_args(ctx, args)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"panas {version('panas')}\n")
        raise typer.Exit


app = typer.Typer(
    name="panas",
    help="Per-client architecture search, private federated training, and audits.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


for command in (*COMMANDS, node):
    app.command(cls=OncePerOption)(command)
for each in (*site.registered_commands, *deploy.registered_commands):
    each.cls = FullHelp
app.add_typer(site, name="site")
app.add_typer(deploy, name="deploy")

# The class of all usage errors, wherever this version of typer keeps it.
_Usage: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)

INTERRUPTED = 130
"""The exit code of Ctrl-C and of SIGTERM, which a batch system sends."""

SPINS = "5000"
"""Turns of a waiting OpenMP thread before it sleeps. Milliseconds a step of two threads, on a quiet
and a busy machine: 18 and 70; by GNU's default of 300,000: 16 and 150; without any: 36 and 60."""

AGAIN = dict.fromkeys(
    ("run", "search", "tune", "train", "compare"), "goes on with --resume and the same --out"
)
AGAIN["audit"] = "goes on with the sites that are left"
"""What the same command does after an interruption; others begin anew."""


def main() -> None:
    """Run the command line, and turn errors into one line and an exit code."""
    # OpenMP's threads spin while they wait, by default for milliseconds that a busy machine lacks.
    # A short spin is as fast on a quiet one. Read when torch is imported, which comes later.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    _warn_once.cache_clear()
    warnings.showwarning = _warn  # type: ignore[assignment]
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(prog_name="panas", standalone_mode=False)
        if code == INTERRUPTED:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except PanasError as e:
        _say(f"error: {with_options(str(e))}")
        sys.exit(e.exit_code)
    except OSError as e:
        _say(f"error: {e.strerror or e}: {e.filename or 'a file'}; check --out and the disk")
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        again = AGAIN.get(next(iter(sys.argv[1:]), ""), "begins anew")
        _say(f"interrupted: the same command {again}")
        sys.exit(INTERRUPTED)
    except _Usage as e:
        if sys.argv[1:2] == ["audit"] and any(a.split("=")[0] == "--model" for a in sys.argv):
            _say(
                "error: expected a run directory, got --model; audit a network that was trained "
                "elsewhere with `panas audit-model FILE --data FILE`"
            )
        else:
            message = e.format_message() if hasattr(e, "format_message") else str(e)
            command = getattr(getattr(e, "ctx", None), "command_path", "panas")
            _say(f"error: {(message or 'no command').rstrip('.')} (see {command} --help)")
        sys.exit(2)


def _interrupt(*_: object) -> None:
    """End as Ctrl-C does, once: a second signal is ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(line: str) -> None:
    sys.stderr.write(" ".join(line.split("\n")) + "\n")


def _warn(message: Warning | str, category: type[Warning], *where: object) -> None:
    if issubclass(category, UserWarning):
        _warn_once(str(message))


@cache
def _warn_once(text: str) -> None:
    _say(f"warning: {with_options(text)}")


if __name__ == "__main__":
    main()
