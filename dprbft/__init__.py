"""The federation: many sites and a server, trained by representations (DPRBFT).

`dprbft.simulate` runs one on this machine; modules further down may change.
"""

from typing import TYPE_CHECKING

from panas.runtime.faces import face

if TYPE_CHECKING:
    from dprbft.api import simulate as simulate

__getattr__, __dir__, __all__ = face(__name__, __file__)
