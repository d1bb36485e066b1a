"""One site in a run: its data, its budgets and its ledger.

It is opened from its own directory for every verb; its samples are loaded there and
never move.
"""

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch

from dprbft.config.map_width import USUAL
from dprbft.config.schema import RunConfig, rounds_of
from dprbft.messages import Hello
from dprbft.paths import (
    CANDIDATES,
    SitePaths,
    book_file,
    count_file,
    hello_file,
    histogram_file,
)
from dprbft.secure_sum.keys import Signing
from dprbft.site.data import SiteData, changed, encoded, load_data, note_rows_read, read_public
from dprbft.site.directory import read_site, site_ledger
from dprbft.site.embeddings import site_encoder
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.axes import AxesMap, with_encoder
from panas.features.map import FeatureMap, read_map
from panas.privacy.accounting.events import Event
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.plan import TrainingSchedule
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import is_noised, kind_named
from panas.privacy.unit import planned_units
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, read_json, write_json
from panas.training.linear.rules import HISTOGRAM, histogram_share
from panas.training.warm_start import WarmStart


@dataclass(frozen=True)
class Site:
    """What a site is in a run, as opposed to where its training stands."""

    paths: SitePaths
    config: RunConfig
    facts: Facts
    read_data: Callable[[], SiteData]
    public: Samples
    unlabelled: Samples  # public ones without labels: all are written 0, which means nothing
    feature_map: FeatureMap | None  # that all sites share, where the method has one
    budget: Budget  # of this run
    ledger: Ledger
    device: torch.device
    workers: int = 1  # processes of its own
    signing: Signing | None = None  # of keys in a secure sum; None where sites have no keys

    @cached_property
    def data(self) -> SiteData:
        """Its samples, loaded at the first use: what follows in a verb may depend on them."""
        note_rows_read()
        return self.read_data()

    @property
    def id(self) -> int:
        """Its number in the run."""
        return self.paths.index

    @property
    def home(self) -> Path:
        """Its folder for the run."""
        return self.paths.home

    @property
    def spec(self) -> NetworkSpec:
        """What its networks share with all others'."""
        return spec_of(self.config, self.facts)

    @property
    def phi(self) -> FeatureMap:
        """The feature map that all sites share; BadInput if the run has none."""
        if self.feature_map is None:
            raise BadInput("expected a run with a feature map, got one without; start it again")
        return self.feature_map

    def rows(self, samples: Samples) -> Rows:
        """Samples as rows of that map."""
        return Rows(self.phi.of(samples), samples.y, samples.groups)

    @property
    def common(self) -> Path:
        """Where sites on one machine share what public samples have taught; beside the map."""
        hello = Hello.from_bytes(read_bytes(hello_file(self.home)))
        return Path(hello.map).parent / CANDIDATES

    @property
    def width(self) -> int:
        """Width of the representations that the run's releases and heads are of."""
        return self.spec.width if self.feature_map is None else self.feature_map.width

    @property
    def units(self) -> int:
        """Training samples, or groups of them, to plan with: a public number.

        What the owner declares, else what a noised histogram or count says, else `USUAL`; exact
        and at least 1 where the run has no budget, and promises nothing. The total of a histogram
        counts a group of k classes up to sqrt(k) times.
        """
        if not self.budget.private:
            return max(1, self.data.train.units)
        if self.declared_units is not None:
            return self.declared_units
        known = self.noised_units()
        return USUAL if known is None else planned_units(*known)

    @property
    def histogram_share(self) -> float:
        """Share of epsilon for the label histogram, set or by rule."""
        share = self.config.privacy.histogram_share
        if share is not None:
            return share
        joins = self.config.federation.family.has_map
        return histogram_share(self.budget.epsilon) if joins else HISTOGRAM

    def least_units(self) -> int:
        """How many there are at least, but for a chance of one in a thousand millions."""
        if not self.budget.private:
            return self.data.train.units
        noised, deviation = self.noised_units() or (0.0, 0.0)
        return self.declared_units or max(0, math.floor(noised - 6 * deviation))

    @property
    def declared_units(self) -> int | None:
        """Training samples by what the owner says is public; None where that is nothing."""
        declared, data = read_site(self.paths.folder).samples, self.config.data
        if declared is None:
            return None
        apart = data.validation_fraction + data.test_fraction
        apart += data.search_fraction if self.config.privacy.mode.least_search else 0.0
        return max(1, round(declared * (1 - apart)))

    def noised_units(self) -> tuple[float, float] | None:
        """Training samples by the noised histogram or count that the run has paid for, and the
        noise's standard deviation; None before there is one."""
        for path in (histogram_file(self.home), count_file(self.home)):
            if not path.is_file():
                continue
            record: dict[str, Any] = read_json(path)
            paid = {e.id: e.charge for e in self.account.entries}
            charges = [paid[id] for id in record["receipt"]["charges"] if id in paid]
            if charges:
                m = getattr(charges[-1].event, "noise_multiplier", 0.0)
                counts = record["histogram"]
                noise = m * (charges[-1].sensitivity or 0.0) * math.sqrt(len(counts))
                return math.fsum(counts), noise
        return None

    def warm_start(self, genome: Genome) -> WarmStart:
        """Where training of a genome's network starts: on public samples, if at all."""
        warm = self.config.training.warm if self.config.federation.warm_start != "none" else None
        return WarmStart(genome=genome, spec=self.spec, optimizer=warm, device=self.device)

    def schedule(self) -> TrainingSchedule:
        """Everything that it will charge to its budget from now on, with all rounds to come."""
        c, rounds = self.config, len(rounds_of(self.config, self.id))
        noised = c.sent is not None and is_noised(kind_named(c.sent))
        return TrainingSchedule(
            samples=self.units,
            epochs=c.training.optimizer.epochs,
            rounds=rounds,
            releases=rounds if noised else 0,
            release_share=c.release_share,
            spent=self.account.events_on("train"),
        )

    @property
    def account(self) -> Account:
        """What this run has charged to its ledger."""
        return self.ledger.account().of_run(self.paths.run)

    def bounds(self, subset: str = "train") -> list[tuple[Budget, list[Event]]]:
        """What the rounds to come must keep, each with what was spent of it: the run's share.

        Where other runs have spent of them, also what its hub may spend, and the lifetime budget.
        """
        whole, allotment = self.ledger.account(), self.ledger.allotment
        bounds = [(self.budget, self.account.events_on(subset))]
        for account in (allotment.of(whole), whole) if allotment else (whole,):
            spent = account.events_on(subset, self.paths.run)
            if len(spent) > len(bounds[0][1]):
                bounds.append((account.budget, spent))
        return bounds


def spec_of(config: RunConfig, facts: Facts) -> NetworkSpec:
    """What all sites' networks share."""
    return NetworkSpec(
        shape=facts.shape,
        classes=facts.classes,
        # A simplex needs as many directions as classes.
        width=max(config.network.width, facts.classes),
        norm=config.norm,
        unit=config.network.unit,
        head_init=config.federation.head_init,
        # Without a server nobody else moves the head.
        train_head=config.federation.train_head or config.federation.family.sends == "nothing",
    )


def open_site(paths: SitePaths, device: str = "cpu", workers: int = 1) -> Site:
    """A site in a run that it has joined.

    Args:
        paths: of the site and its run.
        device: "cpu" or "cuda".
        workers: processes of the site, at least 1.
    """
    noted = hello_file(paths.home)
    if not noted.is_file():
        raise BadInput(f"expected a run that the site has joined, got {paths.run}; say hello first")
    hello = Hello.from_bytes(read_bytes(noted))
    config, facts = config_of(hello.config), facts_of(hello.facts)
    return Site(
        paths=paths,
        config=config,
        facts=facts,
        read_data=lambda: encoded_of(paths, hello.config, hello.facts, changed(paths), device),
        public=public_of(hello.public, facts),
        unlabelled=public_of(hello.unlabelled, facts),
        feature_map=_map_at(paths, hello, facts, device),
        budget=config.budget(paths.index),
        ledger=site_ledger(paths.folder, paths.run),
        device=torch.device(device),
        workers=workers,
    )


def _map_at(paths: SitePaths, hello: Hello, facts: Facts, device: str) -> FeatureMap | None:
    """The common map of a run, with the site's encoder where it has one; None without a map."""
    if not hello.map:
        return None
    result = map_of(hello.map, Path(hello.map).stat().st_mtime_ns)
    if facts.encoder is None or not isinstance(result, AxesMap):
        return result
    encoder = site_encoder(paths.folder, read_site(paths.folder), facts.encoder, device)
    return with_encoder(result, encoder)


@contextlib.contextmanager
def same_ledger(site: Site) -> Iterator[None]:
    """Refuse a ledger that lacks what it held after the last verb; note what it holds after this.

    BadInput if it was deleted or another copy put in its place, also while the block lasts.
    """
    check_book(site.paths)
    try:
        yield
    finally:
        check_book(site.paths)  # if it was exchanged, what was noted stands
        note_book(site.paths, site.ledger)


def note_book(paths: SitePaths, ledger: Ledger) -> None:
    """Note what a site's ledger holds now, for `check_book`."""
    count, seen = ledger.head()
    write_json(book_file(paths.home), {"count": count, "hash": seen})


def check_book(paths: SitePaths) -> Ledger:
    """The ledger of a site; BadInput if it lacks what it held after the last verb of any run."""
    ledger = site_ledger(paths.folder, paths.run)
    for note in sorted(paths.home.parent.glob(f"*/{book_file(paths.home).name}")):
        record = read_json(note)
        ledger.check_holds(record["count"], record["hash"])
    return ledger


@lru_cache(maxsize=2)
def config_of(text: str) -> RunConfig:
    """The configuration of a run, from its text."""
    return RunConfig.model_validate_json(text)


@lru_cache(maxsize=2)
def facts_of(text: str) -> Facts:
    """The facts of a federation, from their text."""
    return Facts.from_json(json.loads(text))


@lru_cache(maxsize=4)
def data_of(paths: SitePaths, config: str, facts: str, changed: int) -> SiteData:
    """A site's samples, kept in memory for the next call.

    Args:
        paths: of the site in the run.
        config: its text, JSON.
        facts: their text, JSON.
        changed: when the data were written, in ns: newer ones are loaded again.
    """
    return load_data(paths, config_of(config), facts_of(facts))


@lru_cache(maxsize=4)
def encoded_of(
    paths: SitePaths, config: str, facts: str, changed: int, device: str = "cpu"
) -> SiteData:
    """The same with embeddings, where the run has an encoder.

    Args:
        paths: of the site in the run.
        config: its text, JSON.
        facts: their text, JSON.
        changed: when the data were written, in ns: newer ones are loaded again.
        device: that the encoder computes on.
    """
    return encoded(paths, data_of(paths, config, facts, changed), facts_of(facts), device)


@lru_cache(maxsize=2)
def map_of(path: str, changed: int) -> FeatureMap:
    """The common feature map of a run; kept in memory for the next call."""
    return read_map(Path(path))


def public_of(path: str, facts: Facts) -> Samples:
    """The public samples of a run, or those without labels; none without a path."""
    if path:
        return read_public(path, Path(path).stat().st_mtime_ns, facts.classes)
    return facts.no_samples()
