"""A site's DP-SGD settings, tuned on what its search looked at.

Each trial is logged before the next begins; a killed tuning goes on where it was.
"""

from dprbft.config.schema import RunConfig, rounds_of
from dprbft.paths import tune_log
from dprbft.site.counting import count_units
from dprbft.site.results.records import PLANNED_NOISE, SearchRecord, TuningRecord
from dprbft.site.search import search_site
from dprbft.site.site import Site
from panas.runtime.errors import BudgetExhausted
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal, open_journal
from panas.runtime.seeds import stream
from panas.tuning.bayesian import tune as tune_settings
from panas.tuning.objective import training_objective
from panas.tuning.space import BudgetedSpace, DPSGDSettings, ScheduleConstraint
from panas.tuning.trial import TuningResult


def tune(site: Site) -> TuningRecord:
    """Tune a site's DP-SGD settings, or keep those of the configuration."""
    outcome, fixed = SearchRecord.read(site.home), fixed_settings(site.config)
    if not planned_trials(site):
        return TuningRecord(site=site.id, settings=fixed)
    header = {"tune": str(outcome.genome), "client": site.id}
    with open_journal(tune_log(site.home), header) as journal:
        try:
            result = _tune(site, outcome, journal)
        except BudgetExhausted as e:
            # Training says so again and stops there, with the warm-started network kept.
            return TuningRecord(site=site.id, settings=fixed, refused=str(e))
    return TuningRecord(
        site=site.id, settings=result.best, predicted=result.predicted, trials=result.trials
    )


def fixed_settings(config: RunConfig) -> DPSGDSettings:
    """The settings of the configuration, of a run that tunes none."""
    t = config.training
    return DPSGDSettings(
        learning_rate=t.optimizer.learning_rate,
        noise_multiplier=t.noise_multiplier or PLANNED_NOISE,
        clip=t.clip,
        batch_size=t.optimizer.batch_size,
    )


def planned_trials(site: Site) -> int:
    """How many settings tuning will try; 0 where it has nothing to learn from, or nothing to do."""
    c = site.config
    tunes = site.budget.private and c.training.noise_multiplier is None
    if not (c.privacy.mode.reads_samples and tunes and rounds_of(c, site.id)):
        return 0
    return c.tuning.config.trials


def _tune(site: Site, searched: SearchRecord, journal: Journal) -> TuningResult:
    count_units(site)
    c, schedule = site.config, site.schedule()
    objective = training_objective(
        c.privacy.mode.data(search_site(site), searched.histogram),
        site.warm_start(searched.genome),
        schedule,
        momentum=c.training.optimizer.momentum,
        seed=c.seed,
        site=site.id,
    )
    return tune_settings(
        objective,
        BudgetedSpace(c.tuning.space, ScheduleConstraint(site.budget, schedule)),
        c.tuning.config,
        rng=stream(c.seed, "client", site.id, "tune"),
        execution=Execution(workers=site.workers, journal=journal),
    )
