"""A site's search for its architecture, by the mode that `privacy.search` names.

Each generation is logged before the next begins; a killed search goes on where it was. The noised
label histogram is kept, with its receipt, as soon as it is paid for: a search that goes on looks at
the same samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from dprbft.config.schema import RunConfig
from dprbft.paths import candidates_file, histogram_file, latency_file, search_log
from dprbft.site.results.records import SearchRecord
from dprbft.site.site import Site, spec_of
from panas.architecture.cost import Cost, LayerCost, cost_table, size_of
from panas.architecture.latency import limited
from panas.architecture.limits import Constraints
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.facts import Facts
from panas.evolution.records import EvolutionResult
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal
from panas.runtime.store import read_json, write_json
from panas.search_modes.mode import WHOEVER, SearchPlan, SearchPrice, SearchSite, mode_named

Searching = Callable[[list[float] | None, SearchPlan], EvolutionResult]
"""A search by its plan, on samples in the frequencies of a label histogram."""


WHOLE = 982_000  # bytes of all weights where layers come before a genome's: a file of 1 MB
HARDLY = 0.1  # of the operations of these layers, that the others may have besides a limit
BROADER = 2  # times as wide are blocks behind these
NARROW = 4  # times as many channels may the maps have as blocks that read them, at most


@dataclass(frozen=True)
class Before:
    """Fixed layers that the blocks of every genome come after."""

    spec: NetworkSpec  # of the maps that they make
    layer: LayerCost
    milliseconds: float  # of one sample

    def within(self, limits: Constraints) -> Constraints:
        """What is left for a genome's blocks: as many bytes as make `WHOLE`, unless a limit says
        otherwise. What is little beside these layers may be added to a limit of operations."""
        p, macs, ms = limits.parameters, limits.macs, limits.latency_ms
        return Constraints(
            parameters=p and max(1, p - self.layer.parameters),
            macs=macs and macs + int(HARDLY * self.layer.macs),
            bytes=max(1, (limits.bytes or WHOLE) - self.layer.bytes),
            latency_ms=ms and max(0.001, ms - self.milliseconds),
        )

    def space(self, space: SearchSpace) -> SearchSpace:
        """The space of their maps, of which narrow blocks would lose much."""
        widths = [BROADER * width for width in space.widths]
        wide = [width for width in widths if NARROW * width >= self.spec.shape[0]]
        return replace(space, shape=self.spec.shape, widths=tuple(wide or [max(widths)]))


def search(
    site: Site, searching: Searching | None = None, before: Before | None = None
) -> SearchRecord:
    """Search a site's architecture.

    Args:
        site: whose search it is.
        searching: in the place of its mode's search.
        before: what genomes come after; None: they read the samples.

    Privacy: a histogram is charged first.
    """
    c, mode = site.config, site.config.privacy.mode
    b = site.spec if before is None else before.spec
    histogram, genetic = paid_histogram(site), c.search.evolution
    log = search_log(site.home)
    with open_journal(log, {"search": c.privacy.search, "client": site.id}) as journal:
        plan = SearchPlan(
            spec=b,
            space=search_space(c, site.facts, latency_table(site), before),
            config=genetic if c.search.algorithm == "genetic" else genetic.random(),
            optimizer=c.search.optimizer,
            size=size_of(b, c.search.size),
            device=str(site.device),
            execution=Execution(
                workers=site.workers, journal=journal, on_candidate=partial(_note, site.home)
            ),
        )
        result = (searching or partial(mode.search, search_site(site)))(histogram, plan)
    candidates_file(site.home).unlink(missing_ok=True)
    layers = [before.layer] if before else []
    layers += cost_table(result.best, b)
    return SearchRecord(
        site=site.id,
        mode=c.privacy.search,
        histogram=histogram,
        result=result,
        cost=Cost(*(sum(getattr(row, f.name) for row in layers) for f in fields(Cost))),
        cost_table=layers,
    )


def _note(home: Path, scored: int, at_most: int) -> None:
    write_json(candidates_file(home), {"candidates": scored, "at_most": at_most})


def search_price(site: Site) -> SearchPrice:
    """The price of a site's search, known before it begins; reads no private sample."""
    paid = histogram_file(site.home).exists()
    return site.config.privacy.mode.price(search_site(site), paid)


def search_site(site: Site) -> SearchSite:
    """What a search mode may use of a site."""
    c = site.config
    return SearchSite(
        id=site.id,
        seed=c.seed,
        train=site.data.train,
        units=site.units,
        search=site.data.search,
        public=site.public,
        warm_start=c.federation.warm_start != "none",
        ledger=site.ledger,
        histogram_share=site.histogram_share,
    )


def paid_histogram(site: Site, recipient: str = WHOEVER) -> list[float] | None:
    """The label histogram that mode or method needs, paid for once; None if neither needs one.

    `recipient` is who sees it.
    """
    path, before = histogram_file(site.home), _charges(site)
    if path.exists():
        record = read_json(path)
        _check_paid(site, record["receipt"], path)
        return list(record["histogram"])
    if search_log(site.home).exists() and before:
        return None  # paid for by the search that goes on
    # A shared map's moments come with a histogram, whatever a search looks at.
    pools = site.config.federation.family.has_map
    mode = mode_named("public-proxy") if pools else site.config.privacy.mode
    histogram = mode.pay(replace(search_site(site), recipient=recipient))
    if histogram is not None:
        paid = [id for id in _charges(site) if id not in before]
        receipt = {"charges": paid, "ledger": site.ledger.head()}
        write_json(path, {"client": site.id, "histogram": histogram, "receipt": receipt})
    return histogram


def _charges(site: Site) -> list[str]:
    return [e.id for e in site.account.entries if e.charge.phase == "search"]


def _check_paid(site: Site, receipt: dict[str, Any], path: Path) -> None:
    """Refuse a histogram that outlives the ledger that was charged for it."""
    site.ledger.check_holds(*receipt["ledger"])
    if not set(receipt["charges"]) <= {*_charges(site)}:
        raise BadInput(
            f"expected {path} to be paid for in {site.ledger.path}, got a ledger without its "
            "charge; put the right one back, or start a new run"
        )


def latency_table(site: Site) -> Path:
    """Where the latencies of blocks are kept: measured once for all sites that share a search."""
    own = latency_file(site.home)
    return site.common / own.name if site.feature_map is not None else own


def search_space(
    config: RunConfig, facts: Facts, table: Path | None, before: Before | None = None
) -> SearchSpace:
    """The space with its limits.

    Args:
        config: of the run: blocks, widths and limits.
        facts: what is public of the data: shape and kind of samples.
        table: file that keeps latencies; None: as if every latency were allowed.
        before: what genomes come after; None: they read the samples.
    """
    s, spec = config.search, spec_of(config, facts)
    limits = Constraints(
        parameters=s.max_parameters,
        macs=s.max_macs,
        bytes=s.max_bytes,
        latency_ms=s.max_latency_ms if table else None,
    )
    space = s.space(facts.shape, rows=facts.are_rows)
    if before is None:
        return limited(space, spec, limits, table=table)
    left = before.within(limits)
    try:
        return limited(before.space(space), before.spec, left, table=table)
    except BadInput:  # nothing so wide fits: blocks as wide as for pictures may
        narrow = replace(space, shape=before.spec.shape)
        return limited(narrow, before.spec, left, table=table)
