"""The configuration of a run: its sections, and what they must not contradict each other in.

Presets differ in what they promise. `sound` (the default) covers everything that leaves a site;
`demo` is the same at a size for a first look; `paper` does what the DPFNAS publication says, and
its ledger says what that costs.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from pydantic import model_validator

from dprbft.config import sections
from dprbft.config.flat import Section, about, flatten
from panas.privacy.accounting.events import Unprotected
from panas.privacy.budget import Budget
from panas.runtime.seeds import stream

ROUNDS_SHARE = 0.3


class RunConfig(Section):
    """Everything that decides a run's outcome; what merely runs it (workers, device) is apart."""

    preset: sections.Preset = about("sound", "what the other settings are unless they are set")
    seed: sections.Natural = about(0, "of data, search and weights; never of privacy noise")
    data: sections.Data = sections.Data()
    network: sections.Network = sections.Network()
    search: sections.Search = sections.Search()
    tuning: sections.Tuning = sections.Tuning()
    training: sections.Training = sections.Training()
    federation: sections.FederationSettings = sections.FederationSettings()
    privacy: sections.Privacy = sections.Privacy()
    audit: sections.Audit = sections.Audit()

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        for rule in RULES:
            for broken in rule(self):
                raise ValueError(broken)
        return self

    def budget(self, site: int) -> Budget:
        """A site's budget for the run."""
        p = self.privacy
        return Budget(p.epsilons[site] if p.epsilons else p.epsilon, p.delta)

    @property
    def largest_epsilon(self) -> float:
        """That of the site who may spend most."""
        return max(self.privacy.epsilons or (self.privacy.epsilon,))

    @property
    def some_private(self) -> bool:
        """Whether any site has a finite budget."""
        return any(map(math.isfinite, self.privacy.epsilons or (self.privacy.epsilon,)))

    @property
    def has_public(self) -> bool:
        """Whether there are samples that everybody may see."""
        source = self.data.source
        if self.federation.comes_split:
            return source.public_data is not None and source.public_limit > 0
        return source.has_public

    @property
    def release_share(self) -> float:
        """Share of epsilon that sizes the noise of releases in methods of rounds."""
        return self.privacy.release_share or ROUNDS_SHARE

    @property
    def secure_sum(self) -> bool:
        """Whether the server is to see the sum of releases alone: as set, or by public facts."""
        f, trust = self.federation, self.privacy.trust
        if trust == "auto":
            return f.family.reads("privacy.trust") and f.clients >= f.secure_minimum
        return trust == "secure-sum"

    @property
    def stays(self) -> bool:
        """Whether networks train without noise, and so stay where they are."""
        return self.privacy.network == "stays"

    def serves_all(self, stage: str) -> bool:
        """Whether what a machine's first site does in a stage spares all others of its work."""
        reads = self.privacy.mode.reads_samples
        common: dict[str, bool] = {s: reads or s == "tune" for s in self.federation.family.common}
        return common.get(stage, False)

    @property
    def has_inputs(self) -> bool:
        """Whether there are samples, with labels or without, that networks may learn from."""
        return self.has_public or self.data.source.has_unlabelled

    @property
    def sent(self) -> str | None:
        """What a site sends to the server in a round; None where nothing leaves it."""
        release = None if self.privacy.kind is None else self.privacy.release
        return {"releases": release}.get(self.federation.family.sends)

    @property
    def leaves(self) -> tuple[str, ...]:
        """All that a site may send to the server, as `releases` of a site.toml names it."""
        f = self.federation
        kinds = () if self.sent is None else (self.sent,)
        updates = {"updates": (f.method,)}.get(f.family.sends, ())
        return (*kinds, *updates, *f.family.sends_once)

    @property
    def needs_public(self) -> bool:
        """Whether a run without public samples is refused, since its search looks at them."""
        return self.federation.family.must_search and self.privacy.mode.needs_public

    @property
    def norm(self) -> Literal["group", "batch"]:
        """The norm all networks are searched, tuned and trained with."""
        if self.network.norm != "auto":
            return self.network.norm
        return "group" if self.some_private else "batch"


def participants(config: RunConfig) -> list[list[int]]:
    """The sites of each round, in order: public facts, drawn from the run's seed."""
    f = config.federation
    return [list(c) for c in _drawn(config.seed, f.clients, f.participation, f.planned_rounds)]


@lru_cache(maxsize=4)
def _drawn(seed: int, clients: int, share: float, rounds: int) -> tuple[tuple[int, ...], ...]:
    size, rng = max(1, round(share * clients)), stream(seed, "participation")
    draws = (rng.choice(clients, size, replace=False) for _ in range(rounds))
    return tuple(tuple(sorted(int(i) for i in drawn)) for drawn in draws)


def rounds_of(config: RunConfig, site: int) -> list[int]:
    """The rounds, from 1, in which a site takes part."""
    return [r for r, sites in enumerate(participants(config), start=1) if site in sites]


def _of_privacy(config: RunConfig) -> Iterator[str]:
    p, clients = config.privacy, config.federation.clients
    bare = p.kind is not None and p.kind.CHARGED_AS is Unprotected
    if not p.allow_unprotected and (bare or not p.mode.protected):
        what = f"release = {p.release}" if bare else f"search = {p.search}"
        yield (
            f"protected search and releases, got privacy.{what}, which has epsilon infinity; "
            "use preset = paper, or set privacy.allow_unprotected=true"
        )
    if not p.allow_unprotected and not all(map(math.isfinite, (p.epsilon, *p.epsilons))):
        yield (
            "a finite epsilon, got infinity, which trains without privacy; set "
            "privacy.allow_unprotected=true if that is meant"
        )
    if len(p.epsilons) not in (0, clients):
        yield f"{clients} privacy.epsilons, one a site, got {len(p.epsilons)}; give as many"


def _of_sites(config: RunConfig) -> Iterator[str]:
    f, share = config.federation, config.data.source.public_fraction
    if sum(map(bool, (f.sites, f.client_data, f.remote))) > 1:
        yield "federation.sites, federation.client_data or federation.remote, got two; give one"
    if len(set(f.remote)) < len(f.remote):
        yield "different names in federation.remote, got one twice; rename it"
    if f.facts and not f.remote:
        yield "federation.remote for federation.facts, got none; leave the facts out"
    if f.comes_split and share:
        what = f"a data set of its own as public where data come split, got {share} of theirs"
        yield f"{what}; give data.public_data, and leave data.public_fraction out"
    if (n := len(f.sites or f.client_data or f.remote)) not in (0, f.clients):
        yield f"federation.clients = {n}, one a site, got {f.clients}; leave it out"


def _of_data(config: RunConfig) -> Iterator[str]:
    data, name = config.data, config.privacy.search
    if config.needs_public and not config.has_public:
        yield (
            f"public data for privacy.search = {name}, got none; give data.public_data, or "
            "data.public_fraction above 0, or use privacy.search=data-free"
        )
    if config.privacy.mode.least_search and not data.search_fraction:
        yield (
            f"a search split for privacy.search = {name}, got data.search_fraction = 0; "
            "raise it, or use privacy.search=data-free"
        )
    v, t = data.validation_fraction, data.test_fraction
    if not (v > 0 and t > 0):
        names = "data.validation_fraction and data.test_fraction"
        yield f"{names} above 0, got {v} and {t}; raise them"


def _of_networks(config: RunConfig) -> Iterator[str]:
    p, f, kind = config.privacy, config.federation, config.privacy.kind
    if config.network.norm == "batch" and config.some_private:
        yield (
            'network.norm = "group" or "auto" under DP, got "batch", which mixes samples; change it'
        )
    epochs = {
        "search.epochs": config.search.optimizer.epochs,
        "training.epochs": config.training.optimizer.epochs,
        "training.warm_epochs": config.training.warm.epochs,
        "federation.server_epochs": f.server.epochs,
    }
    if missing := [name for name, n in epochs.items() if n < 1]:
        yield f"{', '.join(missing)} of at least 1, got 0; raise them"
    if kind is not None and kind.READS == "public" and not config.has_public:
        what = f"public samples for privacy.release = {p.release}, got none"
        yield f"{what}; give data.public_data, or data.public_fraction above 0"
    if config.sent and kind is not None and kind.UNIT and not config.network.unit:
        yield f"network.unit = true for the release {config.sent}, got false; change it"
    if p.mode.least_search and not f.family.reads("data.search_fraction"):
        yield (
            f"privacy.search = public-proxy or data-free for federation.method = {f.method}, got "
            f"{p.search}; change one of the two"
        )


def _of_secure_sum(config: RunConfig) -> Iterator[str]:
    f = config.federation
    if not config.secure_sum:
        return
    n, t, most = f.clients, f.secure_missing_of(f.clients), sections.most_missing(f.clients)
    if n < f.secure_minimum:
        yield (
            f"at least federation.secure_minimum = {f.secure_minimum} sites for privacy.trust = "
            f"secure-sum, got {n}; find more, or use privacy.trust=server"
        )
    if t > most:
        yield (
            f"federation.secure_missing of at most {most}, which is below a third of {n} sites, "
            f"got {t}; lower it"
        )
    if f.compression != "none":
        yield (
            "federation.compression = none for a secure sum, which has no releases to compress, "
            f"got {f.compression}; leave it out, or use privacy.trust=server"
        )


def _unread(config: RunConfig) -> Iterator[str]:
    """Settings that the method does not read keep their defaults, also in what a hub sends."""
    method, family = config.federation.method, config.federation.family
    settings, usual = (flatten(c.model_dump()) for c in (config, RunConfig.model_construct()))
    for key, value in settings.items():
        if value != usual.get(key) and not family.reads(key):
            what = f"no {key} for federation.method = {method}"
            yield f"{what}, which does not read it; leave it out"


RULES = (_of_privacy, _of_sites, _of_data, _of_networks, _of_secure_sum, _unread)
"""What sections must not contradict each other in; a rule says what it expected instead."""
