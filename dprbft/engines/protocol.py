"""What carries messages between a server and its sites: an extension point."""

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from dprbft.messages import Code, Reply, Verb
from panas.runtime.errors import PanasError


@runtime_checkable
class Engine(Protocol):
    """Asks sites, wherever they are. Bytes go in, a code and bytes come out."""

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        """Ask the sites with these numbers, each its own; yields (number, reply) as they come.

        A site that refuses, or is not there, answers with a code: nothing is raised for it.

        Raises:
            PanasError: if the engine itself fails, as when a worker process dies.

        """
        ...


class SiteRefusal(PanasError):
    """A site has refused, or is not there; only its number and a code are known here."""

    def __init__(self, site: int, code: Code) -> None:
        super().__init__(f"site {site} answered {code.name.lower().replace('_', ' ')}")
        self.site, self.code, self.exit_code = site, code, int(code)


def check_reply(site: int, reply: Reply) -> None:
    """Raise `SiteRefusal` unless the site has done what was asked."""
    if reply.code is not Code.DONE:
        raise SiteRefusal(site, reply.code)
