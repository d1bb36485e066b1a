"""One file a command, loaded when it is first called."""

from typing import TYPE_CHECKING

from panas.runtime.faces import modules

if TYPE_CHECKING:
    from panas_cli.commands import (  # noqa: F401
        audit,
        compare,
        config,
        doctor,
        epsilon,
        export,
        implementation,
        ledger,
        plan,
        predict,
        report,
        run,
        sites,
        stages,
    )

__getattr__ = modules(__name__)
