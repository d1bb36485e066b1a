"""The front door: one file per subcommand. It parses, calls and prints.

`panas_cli.shell` runs commands in a notebook; all other names may change.
"""

from typing import TYPE_CHECKING

from panas.runtime.faces import face

if TYPE_CHECKING:
    from panas_cli.notebooks import shell as shell

__getattr__, __dir__, __all__ = face(__name__, __file__)
