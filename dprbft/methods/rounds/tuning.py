"""A client's DP-SGD settings, tuned on what its search looked at.

Each trial is logged before the next begins; a killed tuning goes on where it was.
"""

from dprbft.config.schema import rounds_of
from dprbft.methods.rounds.plan import count_units
from dprbft.paths import tune_log
from dprbft.site.results.records import PLANNED_NOISE, SearchRecord, TuningRecord
from dprbft.site.search import search_site
from dprbft.site.site import Client
from panas.runtime.errors import BudgetExhausted
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal, open_journal
from panas.runtime.seeds import stream
from panas.tuning.bayesian import tune as tune_settings
from panas.tuning.budgeted import BudgetedSpace, ScheduleConstraint
from panas.tuning.objective import training_objective
from panas.tuning.space import DPSGDSettings
from panas.tuning.trial import TuningResult


def tune(client: Client) -> TuningRecord:
    """Tune a client's DP-SGD settings, or keep those of the configuration."""
    t, found = client.config.training, SearchRecord.read(client.home)
    fixed = DPSGDSettings(
        learning_rate=t.optimizer.learning_rate,
        noise_multiplier=t.noise_multiplier or PLANNED_NOISE,
        clip=t.clip,
        batch_size=t.optimizer.batch_size,
    )
    if not planned_trials(client):
        return TuningRecord(client=client.id, settings=fixed)
    header = {"tune": str(found.genome), "client": client.id}
    with open_journal(tune_log(client.home), header) as journal:
        try:
            result = _tune(client, found, journal)
        except BudgetExhausted as e:
            # Training says so again and stops there, with the warm-started network kept.
            return TuningRecord(client=client.id, settings=fixed, refused=str(e))
    return TuningRecord(
        client=client.id, settings=result.best, predicted=result.predicted, trials=result.trials
    )


def planned_trials(client: Client) -> int:
    """How many settings tuning will try; 0 where it has nothing to learn from, or nothing to do."""
    c = client.config
    tunes = client.budget.private and c.training.noise_multiplier is None
    if not (c.privacy.mode.reads_samples and tunes and rounds_of(c, client.id)):
        return 0
    return c.tuning.config.trials


def _tune(client: Client, found: SearchRecord, journal: Journal) -> TuningResult:
    count_units(client)
    c, schedule = client.config, client.schedule()
    objective = training_objective(
        c.privacy.mode.data(search_site(client), found.histogram),
        client.warm_start(found.genome),
        schedule,
        momentum=c.training.optimizer.momentum,
        seed=c.seed,
        client=client.id,
    )
    return tune_settings(
        objective,
        BudgetedSpace(c.tuning.space, ScheduleConstraint(client.budget, schedule)),
        c.tuning.config,
        rng=stream(c.seed, "client", client.id, "tune"),
        execution=Execution(workers=client.workers, journal=journal),
    )
