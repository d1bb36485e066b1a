"""The federation: many sites and a server, trained by representations (DPRBFT).

`dprbft.simulate` runs one on this machine, `dprbft.view_run` looks into it. Modules further down
may change.
"""

from typing import TYPE_CHECKING

from panas.runtime.faces import face

if TYPE_CHECKING:
    from dprbft.api import simulate as simulate
    from dprbft.api import view_run as view_run
    from dprbft.messages import Release as Release
    from dprbft.run.view import RunView as RunView

__getattr__, __dir__, __all__ = face(__name__, __file__)
