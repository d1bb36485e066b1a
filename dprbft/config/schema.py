"""The configuration of a run: its sections, and what they must not contradict each other in.

Presets differ in what they promise. `sound` (the default) covers everything that leaves a site;
`demo` is the same at a size for a first look; `paper` does what the DPFNAS publication says, and
its ledger says what that costs.
"""

import math
from collections.abc import Callable
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
            if broken := rule(self):
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
        return self.has_public or self.has_unlabelled

    @property
    def has_unlabelled(self) -> bool:
        """Whether there are public samples without labels."""
        return self.data.source.has_unlabelled

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
    f = config.federation
    drawn = _drawn(config.seed, f.clients, f.participation, f.planned_rounds)
    return [r for r, c in enumerate(drawn, start=1) if site in c]


def _protected(config: RunConfig) -> str | None:
    p = config.privacy
    bare = p.kind is not None and p.kind.CHARGED_AS is Unprotected
    if p.allow_unprotected or (p.mode.protected and not bare):
        return None
    what = f"release = {p.release}" if bare else f"search = {p.search}"
    return (
        f"protected search and releases, got privacy.{what}, which has epsilon infinity; "
        "use preset = paper, or set privacy.allow_unprotected=true"
    )


def _finite(config: RunConfig) -> str | None:
    p = config.privacy
    if p.allow_unprotected or all(math.isfinite(e) for e in (p.epsilon, *p.epsilons)):
        return None
    return (
        "a finite epsilon, got infinity, which trains without privacy; set "
        "privacy.allow_unprotected=true if that is meant"
    )


def _a_budget_each(config: RunConfig) -> str | None:
    given, clients = len(config.privacy.epsilons), config.federation.clients
    if given in (0, clients):
        return None
    return f"{clients} privacy.epsilons, one a site, got {given}; give as many"


def _as_many_clients(config: RunConfig) -> str | None:
    f = config.federation
    if sum(map(bool, (f.sites, f.client_data, f.remote))) > 1:
        return "federation.sites, federation.client_data or federation.remote, got two; give one"
    if len(set(f.remote)) < len(f.remote):
        return "different names in federation.remote, got one twice; rename it"
    if f.facts and not f.remote:
        return "federation.remote for federation.facts, got none; leave the facts out"
    if f.comes_split and (share := config.data.source.public_fraction):
        what = f"a data set of its own as public where data come split, got {share} of theirs"
        return f"{what}; give data.public_data, and leave data.public_fraction out"
    given = len(f.sites or f.client_data or f.remote)
    if given in (0, f.clients):
        return None
    return f"federation.clients = {given}, one a site, got {f.clients}; leave it out"


def _searchable(config: RunConfig) -> str | None:
    name, mode = config.privacy.search, config.privacy.mode
    if config.needs_public and not config.has_public:
        return (
            f"public data for privacy.search = {name}, got none; give data.public_data, or "
            "data.public_fraction above 0, or use privacy.search=data-free"
        )
    if mode.least_search and not config.data.search_fraction:
        return (
            f"a search split for privacy.search = {name}, got data.search_fraction = 0; "
            "raise it, or use privacy.search=data-free"
        )
    return None


def _splits(config: RunConfig) -> str | None:
    v, t = config.data.validation_fraction, config.data.test_fraction
    if v > 0 and t > 0:
        return None
    return f"data.validation_fraction and data.test_fraction above 0, got {v} and {t}; raise them"


def _norm(config: RunConfig) -> str | None:
    if config.network.norm != "batch" or not config.some_private:
        return None
    return 'network.norm = "group" or "auto" under DP, got "batch", which mixes samples; change it'


def _passes(config: RunConfig) -> str | None:
    training, federation = config.training, config.federation
    epochs = {
        "search.epochs": config.search.optimizer.epochs,
        "training.epochs": training.optimizer.epochs,
        "training.warm_epochs": training.warm.epochs,
        "federation.server_epochs": federation.server.epochs,
    }
    missing = [name for name, n in epochs.items() if n < 1]
    return f"{', '.join(missing)} of at least 1, got 0; raise them" if missing else None


def _samples_to_release(config: RunConfig) -> str | None:
    p = config.privacy
    if p.kind is None or p.kind.READS != "public" or config.has_public:
        return None
    what = f"public samples for privacy.release = {p.release}, got none"
    return f"{what}; give data.public_data, or data.public_fraction above 0"


def _unit(config: RunConfig) -> str | None:
    kind = config.privacy.kind if config.sent else None
    if kind is None or not kind.UNIT or config.network.unit:
        return None
    return f"network.unit = true for the release {config.sent}, got false; change it"


def _unread(config: RunConfig) -> str | None:
    """Settings that the method does not read keep their defaults, also in what a hub sends."""
    method, family = config.federation.method, config.federation.family
    given, usual = (flatten(c.model_dump()) for c in (config, RunConfig.model_construct()))
    for key, value in given.items():
        if value != usual.get(key) and not family.reads(key):
            what = f"no {key} for federation.method = {method}"
            return f"{what}, which does not read it; leave it out"
    return None


def _split_for_search(config: RunConfig) -> str | None:
    p, family = config.privacy, config.federation.family
    if not p.mode.least_search or family.reads("data.search_fraction"):
        return None
    method = config.federation.method
    return (
        f"privacy.search = public-proxy or data-free for federation.method = {method}, got "
        f"{p.search}; change one of the two"
    )


def _secure_sum(config: RunConfig) -> str | None:
    f = config.federation
    if not config.privacy.secure_sum:
        return None
    n, t, most = f.clients, f.secure_missing_of(f.clients), sections.most_missing(f.clients)
    if n < f.secure_minimum:
        return (
            f"at least federation.secure_minimum = {f.secure_minimum} sites for privacy.trust = "
            f"secure-sum, got {n}; find more, or use privacy.trust=server"
        )
    if t > most:
        return (
            f"federation.secure_missing of at most {most}, which is below a third of {n} sites, "
            f"got {t}; lower it"
        )
    return None


def _compressed(config: RunConfig) -> str | None:
    f = config.federation
    if f.compression == "none" or not config.privacy.secure_sum:
        return None
    return (
        "federation.compression = none for a secure sum, which has no releases to compress, got "
        f"{f.compression}; change one of the two"
    )


RULES: tuple[Callable[[RunConfig], str | None], ...] = (
    *(_protected, _finite, _a_budget_each, _as_many_clients, _searchable),
    *(
        _splits,
        _norm,
        _passes,
        _samples_to_release,
        _unit,
        _split_for_search,
        _secure_sum,
        _compressed,
        _unread,
    ),
)
"""What sections must not contradict each other in; a rule says what it expected instead."""
