"""`panas train`: the federation, from what search and tune left in the run directory."""

from pathlib import Path

from dprbft.engines.inprocess import InProcess
from dprbft.paths import read_sites, server_folder
from dprbft.run.bookkeeping import is_done
from dprbft.run.directory import OpenRun, hold
from dprbft.run.stages import event_counts, train_stage
from dprbft.run.summary import summarise
from dprbft.run.view import has_results
from panas.runtime.errors import BadInput, BudgetExhausted
from panas_cli.commands.job import start, tell_time
from panas_cli.progress import Display
from panas_cli.requests import Request
from panas_cli.text.output import show


def train(request: Request) -> None:
    """Train the federation with the architectures and settings found before."""
    if request.out and not request.resume and _trained(request.out):
        raise BadInput(f"expected a run to train, got {request.out}, trained before; give --resume")
    job = start(request, shared=True, after="tune")
    try:
        with (
            hold(job.run),
            Display() as display,
            InProcess(read_sites(job.run), job.workers, job.device) as engine,
        ):
            run = OpenRun(job.run, job.config, engine, display.event)
            tell_time(job, run, display, ["train"])
            display.stage("train", event_counts(job.config, 0)["train"])
            train_stage(run)
    except BudgetExhausted:
        show(job.run, summarise(job.run, job.config), job.json)
        raise
    show(job.run, summarise(job.run, job.config), job.json)


def _trained(run: Path) -> bool:
    """Whether a run has begun to train; sites that join before they search have a server then."""
    if not server_folder(run).exists():
        return False
    return not is_done(run, "join") or any(has_results(paths) for paths in read_sites(run))
