"""The command `panas`: its subcommands, and what each error becomes.

Exit codes: 0 done, 1 a leak (`--fail-on`), 2 bad input (one line), 3 budget exhausted, 130
interrupted (resumable).
"""

import sys
import warnings

import typer

from panas.runtime.errors import PanasError
from panas_cli.commands.audit import audit
from panas_cli.commands.audit_model import audit_model
from panas_cli.commands.epsilon import epsilon
from panas_cli.commands.ledger import ledger
from panas_cli.commands.report import report
from panas_cli.commands.run import run
from panas_cli.commands.search import search
from panas_cli.commands.train import train
from panas_cli.commands.tune import tune

app = typer.Typer(
    name="panas",
    help="Per-client architecture search, private federated training, and audits.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (run, search, tune, train, audit, audit_model, ledger, epsilon, report):
    app.command()(command)

# The class of all usage errors, wherever this version of typer keeps it.
_Usage: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)

INTERRUPTED = 130


def main() -> None:
    """Run the command line, and turn errors into one line and an exit code."""
    warnings.showwarning = _warn  # type: ignore[assignment]
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except PanasError as e:
        _say(f"error: {e}")
        sys.exit(e.exit_code)
    except OSError as e:
        _say(f"error: {e.strerror or e}: {e.filename or 'a file'}; check --out and the disk")
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        again = {"audit": "goes on with the clients that are left", "audit-model": "begins anew"}
        command = next(iter(sys.argv[1:]), "")
        usual = "goes on with --resume and the same --out"
        _say(f"interrupted: the same command {again.get(command, usual)}")
        sys.exit(INTERRUPTED)
    except _Usage as e:
        message = e.format_message() if hasattr(e, "format_message") else str(e)
        if sys.argv[1:2] == ["audit"] and any(a.split("=")[0] == "--model" for a in sys.argv):
            message = (
                "expected a run directory, got --model; audit a network that was trained elsewhere "
                "with `panas audit-model FILE --data FILE`"
            )
        _say(f"error: {message}" if message else "error: no command; see panas --help")
        sys.exit(2)


def _say(line: str) -> None:
    sys.stderr.write(" ".join(line.split("\n")) + "\n")


def _warn(message: Warning | str, category: type[Warning], *where: object) -> None:
    if issubclass(category, UserWarning):
        _say(f"warning: {message}")


if __name__ == "__main__":
    main()
