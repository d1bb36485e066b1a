"""`panas_cli.shell`: commands of the shell in a notebook, with what they print.

A notebook's own `!` and `%%bash` take its kernel for a terminal, and need `panas` on the PATH.
"""

import os
import subprocess
import sys
from pathlib import Path

from panas.runtime.errors import BadInput
from panas_cli.text.printing import print_text

QUIET = ("error", "warning")
"""How lines of stderr begin that are printed; the others tell how far a command is."""
TERMINAL = ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")
"""Variables by which a kernel asks for colours."""


def shell(command: str, code: int = 0) -> None:
    """Run a command of the shell, and print it with its output, warnings and errors.

    `panas` is that of this installation; paths below the current folder are printed as relative.
    BadInput if the command ends with another exit code.

    Args:
        command: one line, run by `bash` in the current folder.
        code: the exit code to expect; one other than 0 is printed.
    """
    print_text(f"$ {command}")
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines(True) if line.startswith(QUIET)]
    sys.stdout.write("".join([done.stdout, *lines]).replace(f"{Path.cwd()}{os.sep}", ""))
    if done.returncode != code:
        raise BadInput(f"expected exit code {code}, got {done.returncode}: {done.stderr[-2000:]}")
    if code:
        print_text(f"[exit code {code}]")


def _environment() -> dict[str, str]:
    """That of this process, for a command that writes to no terminal."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    kept = {name: value for name, value in os.environ.items() if name not in TERMINAL}
    return kept | {"PATH": path, "TERM": "dumb"}
