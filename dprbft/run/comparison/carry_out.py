"""One run of a comparison, by the stages of any run but the audit; it goes on where it was."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dprbft.engines.inprocess import InProcess
from dprbft.paths import config_file, read_sites
from dprbft.run.comparison.outcome import Outcome, note_outcome, read_outcome
from dprbft.run.comparison.plan import Plan, Planned
from dprbft.run.directory import Ground, OpenRun, check_settings, hold, prepare
from dprbft.run.events import Listener
from dprbft.run.stages import all_stages, begin
from dprbft.run.view import has_results
from panas.runtime.errors import BadInput, BudgetExhausted, PanasError


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where runs are computed, and who hears of them."""

    workers: int = 1
    device: str = "cpu"
    listener: Listener = lambda event: None


def check_folder(folder: Path, plan: Plan, *, resume: bool) -> None:
    """Refuse a directory in use, or one whose runs have other settings; nothing is written.

    Args:
        folder: of the comparison.
        plan: its runs.
        resume: whether the directory may hold some of them.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadInput(f"expected a folder for --out, got the file {folder}; give another --out")
    # A name with a dot is a lock.
    if not resume and any(p.name[0] != "." for p in folder.iterdir()):
        raise BadInput(
            f"expected a new or empty directory, got {folder}; give --resume to go on with the "
            "comparison in it, or another --out"
        )
    for planned in plan.runs:
        run = folder / planned.folder
        if config_file(run).exists():
            check_settings(run, planned.config)


def _outcome_of(folder: Path, planned: Planned, machine: Machine) -> Outcome:
    """What a run came to, which is carried out if it is not finished.

    One whose budget ends before its rounds do keeps its last valid models, and is told by them.
    PanasError where its budget does not pay for it, or it cannot go on.
    """
    run, config = folder / planned.folder, planned.config
    if (outcome := read_outcome(run)) is not None:
        check_settings(run, config)
        return outcome
    ground, stopped = Ground.of(run), ""
    prepare(run, config, resume=True, device=machine.device)
    with hold(run), InProcess(read_sites(run), machine.workers, machine.device) as engine:
        opened = OpenRun(run, config, engine, machine.listener)
        begin(opened, ground)
        try:
            all_stages(opened)
        except BudgetExhausted as e:
            if not all(has_results(paths) for paths in opened.view.sites):
                raise
            stopped = str(e)
    return note_outcome(run, config, stopped)


@dataclass(frozen=True, kw_only=True)
class Results:
    """What the runs of a plan came to."""

    plan: Plan
    found: dict[Planned, Outcome]
    failed: dict[Planned, PanasError]  # runs without an outcome, and why


def carry_out(
    folder: Path, plan: Plan, machine: Machine, tell: Callable[[Planned, Results], None]
) -> Results:
    """All runs of a plan, one after the other; one that fails does not stop the others.

    Args:
        folder: the directory of the comparison, made if need be.
        plan: which runs, of `dprbft.run.comparison.plan.plan`.
        machine: where runs are computed.
        tell: hears of each run as it ends.

    """
    results = Results(plan=plan, found={}, failed={})
    for planned in plan.runs:
        try:
            results.found[planned] = _outcome_of(folder, planned, machine)
        except PanasError as e:
            results.failed[planned] = e
        tell(planned, results)
    return results
