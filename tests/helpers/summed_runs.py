"""Runs with a secure sum whose sites answer in this process, or are missing where a test says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiny_runs import SEARCH

from dprbft.config.files import build_config, merge, without_unread
from dprbft.config.schema import RunConfig
from dprbft.messages import Code, Reply, Verb
from dprbft.methods.serve import Machine, serve
from dprbft.paths import SitePaths, read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import exchange_stage

SMALL: dict[str, Any] = {
    "data": {"limit": 240, "public_limit": 60},
    "network": {"width": 10, "features": 8},
    "search": SEARCH,
    "training": {"student_steps": 1},
    "federation": {"method": "joined", "clients": 4, "partition": "iid", "baselines": False},
    "privacy": {"trust": "secure-sum"},
}


def summed_config(**sections: dict[str, Any]) -> RunConfig:
    return build_config(without_unread(merge(SMALL, sections)))


@dataclass
class Direct:
    """An engine that asks the sites one after the other, and notes what crossed."""

    sites: tuple[SitePaths, ...]
    gone: dict[Verb, set[int]] = field(default_factory=dict)  # who does not answer to what
    changed: dict[tuple[Verb, int], bytes] = field(default_factory=dict)  # other answers
    asked: list[tuple[Verb, int, bytes]] = field(default_factory=list)

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        """As `Engine.call`."""
        for site, content in messages.items():
            self.asked.append((verb, site, content))
            if site in self.gone.get(verb, ()):
                yield site, Reply(Code.ABSENT)
                continue
            reply = serve(self.sites[site], Machine(), verb, content)
            yield site, Reply(reply.code, self.changed.get((verb, site), reply.release))


def joined_by(engine: Direct, run: Path, config: RunConfig) -> None:
    """Carry the exchange of a run out, or on."""
    exchange_stage(OpenRun(run, config, engine))


def begun(run: Path, config: RunConfig, **facts: Any) -> Direct:
    """A new run, and an engine for it."""
    prepare(run, config, resume=False)
    return Direct(read_sites(run), **facts)
