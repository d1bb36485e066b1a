"""Sites elsewhere, as a hub knows them: names, the codes that they answer with, and releases.

A site that refuses, fails or is not there is left out of what it was asked, and the run goes on
without it as long as its minimum is left. What sites are through with is kept in `sites.json` of
the server's folder, so that a hub that died asks again only for what is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from dprbft.config.schema import RunConfig
from dprbft.engines.protocol import Engine, SiteRefusal
from dprbft.messages import Code, Hello, Reply, Verb
from dprbft.paths import through_file
from dprbft.run import events
from dprbft.run.sites.known import Step
from dprbft.run.view import RunView
from panas.runtime.errors import BadInput, PanasError
from panas.runtime.store import read_json, write_json

WHY: Mapping[Code, events.Why] = {
    Code.REFUSED: "refused",
    Code.NO_BUDGET: "budget",
}
"""Why a site that has answered has no part; all other codes mean that it failed."""
KEPT = (Verb.FINISH, Verb.SEARCH, Verb.TUNE, Verb.TRAIN, Verb.EXPORT)
"""Verbs that a site is through with once, in method joined, or in every method but FINISH."""

SHOWN = 20
"""Names in a line, at most."""


@dataclass(frozen=True)
class Remote:
    """What a hub knows of the sites of its run (methods as of `dprbft.run.sites.known.Local`)."""

    view: RunView
    minimum: int
    _why: dict[int, events.Why] = field(default_factory=dict)

    @property
    def names(self) -> Sequence[str]:
        """As `Local.names`."""
        return self.view.config.federation.remote

    def hello(self, site: int) -> bytes:
        """As `Local.hello`, without a path of the hub in the settings."""
        public = Hello.from_bytes(self.view.hello(site))
        return replace(public, config=without_paths(self.view.config).model_dump_json()).to_bytes()

    def done(self, step: Step, site: int) -> bool:
        """As `Local.done`: by what it has answered."""
        verbs = {"join": ("finish",), "train": self.view.config.federation.family.verbs}
        return self._through(site).issuperset(verbs.get(step, (step,)))

    def check(self, step: Step, site: int) -> None:
        """As `Local.check`."""
        if not self.done(step, site):
            raise BadInput(
                f"expected a site that is through with {step}, got {self.names[site]}, which is "
                "not; go on with --resume"
            )

    def why(self, site: int) -> events.Why:
        """As `Local.why`."""
        return self._why.get(site, "absent")

    def outcome(self, step: events.StageName, site: int) -> events.Event | None:
        """As `Local.outcome`: what it found, and its accuracy, stay there."""
        name = self.names[site]
        return events.SiteStarted(name, None) if step == "start" else events.SiteDone(name, step)

    def accuracy(self, sites: Sequence[int]) -> float | None:
        """As `Local.accuracy`: it is not known."""
        return None

    def log(self, step: Literal["search", "tune"], site: int) -> Path | None:
        """As `Local.log`: it stays there."""
        return None

    def error(self, refusal: SiteRefusal) -> PanasError:
        """As `Local.error`: too few sites are left."""
        out = [f"{self.names[i]} ({why})" for i, why in sorted(self._why.items())]
        more = f" and {len(out) - SHOWN} more" if len(out) > SHOWN else ""
        missing = ", ".join(out[:SHOWN]) + more or self.names[refusal.site]
        return BadInput(
            f"expected at least {self.minimum} of {len(self.names)} sites (minimum of hub.toml), "
            f"got too few without {missing}; look there, and run it again (--resume where it has "
            "begun)"
        )

    def note(self, site: int, verb: Verb, code: Code) -> None:
        """Take note of what a site has answered.

        Args:
            site: number of the site.
            verb: what it was asked for.
            code: its answer.
        """
        if code is Code.ABSENT:
            self._why.setdefault(site, "absent")
        elif code is not Code.DONE:
            self._why[site] = WHY.get(code, "failed")
        else:
            self._why.pop(site, None)
            if verb in KEPT and verb not in self._through(site):
                self._keep(site, verb)

    def note_bad(self, site: str, why: events.Why = "reply") -> None:
        """Take note that a site has sent what is no answer here."""
        if site in self.names:
            self._why[self.names.index(site)] = why

    def forget(self, sites: Sequence[int]) -> None:
        """Forget why sites had no part in what they were asked before."""
        for site in sites:
            self._why.pop(site, None)

    def _through(self, site: int) -> set[str]:
        return set(self._record().get(self.names[site], []))

    def _record(self) -> dict[str, list[str]]:
        path = through_file(self.view.run)
        return dict(read_json(path)["through"]) if path.exists() else {}

    def _keep(self, site: int, verb: Verb) -> None:
        name = self.names[site]
        through = self._record()
        through[name] = sorted({*through.get(name, []), verb.value})
        write_json(through_file(self.view.run), {"through": through})


@dataclass(frozen=True)
class Tolerant:
    """An engine over another one: a site that refuses or fails is noted, and counts as absent."""

    engine: Engine
    sites: Remote

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        """As `Engine.call`."""
        self.sites.forget(list(messages))
        for site, reply in self.engine.call(verb, messages):
            self.sites.note(site, verb, reply.code)
            yield site, reply if reply.code is Code.DONE else Reply(Code.ABSENT)


def without_paths(config: RunConfig) -> RunConfig:
    """The settings that sites elsewhere are told: names of files in the place of paths, which are
    the hub's own."""
    source, facts = config.data.source, config.federation.facts
    public, unlabelled = (p and Path(p).name for p in (source.public_data, source.unlabelled_data))
    own = replace(source, data_root=None, public_data=public, unlabelled_data=unlabelled)
    f = config.federation.model_copy(update={"facts": facts and Path(facts).name})
    data = config.data.model_copy(update={"source": own})
    return config.model_copy(update={"data": data, "federation": f})
