"""`panas run`: search, tune, train, audit, report."""

from attacks.audit.run import audit_run
from dprbft.engines.inprocess import InProcess
from dprbft.run.stages import (
    hold,
    is_done,
    last_generation,
    reports,
    search_prices,
    search_stage,
    timed,
    train_stage,
    tune_stage,
)
from dprbft.run.summary import summarise
from panas.runtime.errors import BudgetExhausted
from panas_cli.commands.audit import steps
from panas_cli.options import Job, Request, start, with_common
from panas_cli.output import show
from panas_cli.progress import Display


@with_common
def run(request: Request) -> None:
    """Search, tune, train, audit and report, in one go."""
    job = start(request)
    try:
        with hold(job.run):
            _stages(job)
    except BudgetExhausted:
        if not is_done(job.run, "tune"):  # a search ran out: there is no model to show
            raise
        show(job.run, summarise(job.run, job.config), job.json)
        raise
    show(job.run, summarise(job.run, job.config), job.json)


def _stages(job: Job) -> None:
    config, clients = job.config, job.config.federation.clients
    totals = reports(config, clients)
    with Display() as display:
        display.say(f"run directory: {job.run}")
        for line in search_prices(job.run, config):
            display.say(line)
        with InProcess(job.workers, clients) as engine:
            where = (job.run, config, engine, job.device, display.report)
            if not is_done(job.run, "search"):
                display.stage("search", totals["search"])
                search_stage(*where, progress=display.generations(last_generation(config)))
            if not is_done(job.run, "tune"):
                display.stage("tune", totals["tune"])
                tune_stage(*where, progress=display.trials(config.tuning.config.trials))
            if not is_done(job.run, "train"):
                display.stage("train", totals["train"])
                train_stage(*where[:-1], display.event)
        summarise(job.run, config)
        if not is_done(job.run, "audit"):
            display.stage("audit", steps(clients, job.workers))
            with timed(job.run, "audit", anew=True):
                audit_run(job.run, workers=job.workers, on_progress=display.report)
