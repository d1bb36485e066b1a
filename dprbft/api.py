"""`dprbft.simulate`: a federation on this machine, in one call; `dprbft.view_run`: what it made.

What `panas run` does without its screen; the audit is `attacks.audit_run`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprbft.config.files import build_config, load_config, with_paths
from dprbft.engines.inprocess import InProcess
from dprbft.paths import read_sites
from dprbft.run.directory import Ground, OpenRun, hold, prepare
from dprbft.run.events import Listener
from dprbft.run.stages import all_stages, begin
from dprbft.run.summary import summarise
from dprbft.run.view import RunView
from panas.runtime.device import check_device
from panas.runtime.errors import BadInput
from panas.runtime.pool import check_workers
from panas.runtime.typed import checked


@checked
def simulate(
    out: str | Path,
    settings: Mapping[str, Any],
    *,
    workers: int = 1,
    device: str = "cpu",
    progress: Listener = lambda event: None,
) -> dict[str, Any]:
    """Carry out a federation's run, or go on with it, and return what `summary.json` holds.

    Args:
        out: the run's directory; the same call again goes on with what it holds.
        settings: by name, as `panas config` lists them: `{"data.dataset": "mine.npz"}`, and
            `preset`; the rest has its defaults.
        workers: processes; above 1 needs `if __name__ == "__main__":`.
        device: "cpu" or "cuda".
        progress: called with each event (`dprbft.run.events`); `panas_cli.text.sentences.sentence`
            puts one in words.

    Raises:
        BadInput: for settings, data or a directory that do not fit.
        BudgetExhausted: where the budget does not pay for the run.

    Privacy: what leaves each site is charged to its ledger before its samples are read. The
    summary is the simulator's view: it holds accuracies that no site would tell.

    >>> import tempfile
    >>> import dprbft
    >>> settings = {
    ...     "preset": "demo",
    ...     "federation": {"method": "local", "clients": 2, "rounds": 1},
    ...     "search": {"generations": 0, "population": 1, "max_blocks": 3, "widths": [4]},
    ...     "tuning.trials": 0,
    ... }
    >>> with tempfile.TemporaryDirectory() as out:
    ...     summary = dprbft.simulate(out, settings)
    >>> [site["name"] for site in summary["clients"]]
    ['client-000', 'client-001']
    """
    check_device(device)
    check_workers(workers)
    run, config = Path(out), build_config(with_paths(_nested(settings)))
    if config.federation.remote:
        raise BadInput("expected sites on this machine, got those of a hub; use `panas run --hub`")
    ground = Ground.of(run)
    prepare(run, config, resume=True)
    with hold(run), InProcess(read_sites(run), workers, device) as engine:
        opened = OpenRun(run, config, engine, progress)
        begin(opened, ground)
        all_stages(opened)
    return summarise(run, config)


@checked
def view_run(run: str | Path) -> RunView:
    """A run on this machine as its simulator or auditor sees it: sites, samples, releases.

    BadInput if there is no run, or if its sites are elsewhere.

    Privacy: what it shows is private to each site, and covered by nothing.
    """
    read_sites(Path(run))
    return RunView(Path(run), load_config(Path(run)))


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their full names as sections; sections stay as they are."""
    record: dict[str, Any] = {}
    for key, value in settings.items():
        *sections, name = key.split(".")
        below = record
        for section in sections:
            below = below.setdefault(section, {})
            if not isinstance(below, dict):
                raise BadInput(f"expected {key} in a section, got {section} as a value; give one")
        below[name] = {**below.get(name, {}), **value} if isinstance(value, Mapping) else value
    return record
