"""The federation: many sites and a server, trained by representations (DPRBFT).

`dprbft.simulate` runs one on this machine; modules further down may change.
"""

from typing import TYPE_CHECKING

from panas.runtime.faces import face

if TYPE_CHECKING:
    from dprbft.api import simulate

__all__ = ["simulate"]

__getattr__ = face(__name__, {"simulate": "api"})


def __dir__() -> list[str]:
    return __all__
