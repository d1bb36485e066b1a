"""The default engine: all sites on this machine, in a pool of worker processes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dprbft.messages import Reply, Verb
from dprbft.methods.serve import Machine, serve
from dprbft.paths import SitePaths
from panas.runtime.pool import Pool

Job = tuple[SitePaths, Machine, Verb, bytes]


class InProcess:
    """An `Engine` of worker processes; where sites are few, each may use several.

    Args:
        sites: all sites of the run, by their numbers.
        workers: processes, at least 1.
        device: a device of torch, as "cpu" or "cuda".
        asked: the number of sites that will be asked at once; None: all.

    """

    def __init__(
        self,
        sites: Sequence[SitePaths],
        workers: int = 1,
        device: str = "cpu",
        *,
        asked: int | None = None,
    ) -> None:
        self._sites = sites
        self.workers = min(workers, max(1, asked or len(sites)))
        self._pool: Pool[None] = Pool(self.workers, None, preload=("dprbft.methods.serve",))
        self.inner = workers // self.workers
        self._machine = Machine(device, self.inner)

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        """As `Engine.call`."""
        sites = list(messages)
        jobs = [(self._sites[i], self._machine, verb, messages[i]) for i in sites]
        for at, reply in self._pool.map(_serve, jobs):
            yield sites[at], reply

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool.__exit__(*error)


def _serve(context: None, job: Job) -> Reply:
    return serve(*job)
