"""How long a run will take: what its stages plan to do, at a pace measured on the spot.

It is a forecast: networks differ in size, and nobody knows beforehand which a search will like.
So the seconds in all have a range, over networks of the search's space. While the run goes on, what
has been done corrects it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from dprbft.run.directory import OpenRun, chosen
from dprbft.run.progress.encoding import not_encoded
from dprbft.run.progress.pace import Pace, measured
from dprbft.run.progress.work import STAGES_OF, Cost, Data
from dprbft.run.sites.known import FILES

MOST_SITES = 5  # whose samples are counted; the others are taken to have as many


@dataclass(frozen=True)
class Encoding:
    """What an encoder has to read yet; its seconds are among those of the stages."""

    pictures: int  # of all sites, about
    made: int  # of public ones
    seconds: float  # of each


@dataclass(frozen=True)
class Forecast:
    """Seconds that each stage to come will take."""

    seconds: Mapping[str, float]
    serve_all: frozenset[str] = frozenset()  # stages that are through once one site is, or nearly
    least: float = 0.0  # seconds in all, where the search likes the smallest network
    most: float = 0.0  # and where it likes the largest
    encoding: Encoding | None = None  # None without an encoder

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(self.seconds.values())

    def left(self, stage: str, share: float, spent: float) -> float:
        """Seconds that are left; what was done tells how right the forecast is.

        Args:
            stage: under way, one of `seconds`.
            share: of it that is done, in [0, 1].
            spent: seconds since the first stage began.
        """
        names = list(self.seconds)
        at = names.index(stage)
        done = sum(self.seconds[n] for n in names[:at]) + share * self.seconds[stage]
        # As if a tenth had gone as forecast, so that the first steps do not say too much.
        trusted = self.total / 10
        return (self.total - done) * (spent + trusted) / (done + trusted)


def forecast(
    run: OpenRun,
    stages: Sequence[str],
    *,
    workers: int,
    device: str,
    clients: Sequence[int] | None = None,
) -> Forecast:
    """The seconds of stages to come, of those that leave a site anything to do.

    Args:
        run: its configuration and sites.
        stages: to come, in order.
        workers: processes of a stage, at least 1.
        device: "cpu" or "cuda", on which the pace is measured.
        clients: numbers of the sites that search or tune, whose samples are counted; None: all.
    """
    work = STAGES_OF.get(run.config.federation.family.name)
    if work is None:
        return Forecast({})  # their networks are not those of the search's space
    view = run.view
    sites = [view.sites[i] for i in chosen(run.config, clients) if view.sites[i].is_present]
    todo = {
        stage: [s for s in sites if not (stage in FILES and FILES[stage](s.home).exists())]
        for stage in stages
    }
    counts = {stage: len(left) for stage, left in todo.items() if left}
    if not counts:
        return Forecast({})
    few = sites[:MOST_SITES]
    own = fmean(len(view.site(site.index).train) for site in few)
    waiting = not_encoded(view, few)
    data = Data(view.facts, len(view.public), len(view.unlabelled), own, waiting)
    pace = measured(run, workers=workers, device=device)

    def seconds(factor: float) -> dict[str, float]:
        costs = work(run.config, data, pace, _scaled(pace, factor))
        return {s: _seconds(costs[s], s, n, workers) for s, n in counts.items()}

    results = seconds(pace.liked)
    least, most = (sum(seconds(factor).values()) for factor in pace.spread)
    common = frozenset(stage for stage in counts if run.config.serves_all(stage))
    encoding = None
    if view.facts.encoder:
        encoding = Encoding(round(waiting * len(sites)), sum(data.made), pace.encoding)
    return Forecast(results, common, least, most, encoding)


def _scaled(pace: Pace, factor: float) -> Pace:
    """The pace of a network that takes so many times as long as the mean one."""
    return replace(pace, plain=pace.plain.times(factor), private=pace.private.times(factor))


def _seconds(cost: Cost, stage: str, sites: int, workers: int) -> float:
    """What a stage takes: few sites share the workers out."""
    alone = min(workers, sites)
    inner = workers // alone if stage in FILES else 1
    shared = sum(math.ceil(n / workers) * seconds for n, seconds in cost.common)
    return cost.once + shared + cost.each * sites / alone / inner
