"""The stages of a run, each resumable: search, tune, train. (The audit is `attacks.audit.run`.)

A stage writes each client's result as it comes and skips the clients that have one, so that a
killed run loses at most what was in the air. Seconds add up over interruptions.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dprbft.config.files import load_config, save_config
from dprbft.config.participation import participants
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.events import Listener
from dprbft.paths import (
    histogram_file,
    history_picture,
    ledger_file,
    network_picture,
    search_file,
    search_log,
    stages_file,
    trials_picture,
    tune_file,
    tune_log,
)
from dprbft.run.progress import Progress, watch_logs
from dprbft.server.checkpoint import check_since_round
from dprbft.server.rounds import train_federation
from dprbft.simulation.federation import load_federation
from dprbft.site import search as search_work
from dprbft.site.search_modes import search_price
from dprbft.site.site import build_client, spec_of
from dprbft.site.task import Task
from panas.architecture.genome import Genome
from panas.evolution.halving import Evaluation
from panas.evolution.records import GenerationRecord
from panas.plots.network import drawing
from panas.plots.search import history
from panas.plots.tuning import trials
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput
from panas.runtime.store import exclusive, read_json, write_bytes, write_json
from panas.tuning.trial import TuningResult

Report = Callable[[str], None]


def prepare(run: Path, config: RunConfig, *, resume: bool, shared: bool = False) -> RunConfig:
    """Make a run directory, or check that an existing one may be continued.

    Args:
        run: the directory.
        config: what the user asks for.
        resume: continue what is there.
        shared: several commands fill the directory one after the other (search, tune, train).

    Returns:
        The configuration of the run.

    Raises:
        BadInput: if the directory is in use and `resume` was not given, or was made with another
            configuration; or if the data set cannot be loaded, or a stage would refuse the
            settings. Nothing is written then.

    """
    # Looked at before config.toml: several commands may begin at once, and one be ahead.
    used = run.exists() and (not run.is_dir() or any(map(_is_visible, run.iterdir())))
    if (run / "config.toml").exists():
        if not (resume or shared):
            raise BadInput(
                f"expected a new run directory, got {run}, which holds a run; give --resume to "
                "continue it or another --out"
            )
        check_ledger(run)
        _check_settings(run, config)
    elif used:
        raise BadInput(f"expected a new or empty run directory, got {run}; give another --out")
    search_work.check(config, load_federation(config))
    with exclusive(run / "config.toml"):
        if not (run / "config.toml").exists():
            save_config(run, config)
    _check_settings(run, config)
    return config


def _is_visible(path: Path) -> bool:
    """Whether it is more than a lock, or a file that is being written."""
    return not path.name.startswith(".")


def _check_settings(run: Path, config: RunConfig) -> None:
    if load_config(run) != config:
        raise BadInput(
            f"expected the settings that {run} was made with (see its config.toml), got "
            "others; give the same settings or another --out"
        )


@contextlib.contextmanager
def timed(
    run: Path, stage: str, whole: Callable[[], bool] = lambda: True, *, anew: bool = False
) -> Iterator[None]:
    """Add the seconds of the block to the stage's; mark it done if it ends well and is whole.

    With `anew` the stage starts from the top, and so do its seconds.

    Raises:
        BadInput: at once, if the ledger is not the one that the stages before have written to.

    """
    check_ledger(run)  # before this stage's note of it replaces theirs
    began = time.perf_counter()
    done = False
    try:
        yield
        done = whole()
    finally:
        with exclusive(stages_file(run)):
            stages = _stages(run)
            before = 0.0 if anew else stages["seconds"].get(stage, 0.0)
            stages["seconds"][stage] = before + time.perf_counter() - began
            if done and stage not in stages["done"]:
                stages["done"].append(stage)
            with contextlib.suppress(BadInput):  # if it was exchanged, what was noted stands
                check_ledger(run)
                stages["ledger"] = Ledger(ledger_file(run)).head()
            write_json(stages_file(run), stages)


def check_ledger(run: Path) -> None:
    """Refuse a ledger that is not the one that the run's stages and rounds have written to.

    Raises:
        BadInput: naming the line that is not there.

    """
    Ledger(ledger_file(run)).check_holds(*_stages(run)["ledger"])
    check_since_round(run)


def hold(run: Path) -> AbstractContextManager[None]:
    """Keep other processes from training in the same run directory; refuses at once."""
    return exclusive(run / "run", wait=False)


def _stages(run: Path) -> dict:
    if stages_file(run).exists():
        return read_json(stages_file(run))
    return {"seconds": {}, "done": [], "ledger": (0, "")}


def seconds(run: Path) -> dict[str, float]:
    """Seconds of each stage so far."""
    return {s: _stages(run)["seconds"].get(s, 0.0) for s in ("search", "tune", "train", "audit")}


def is_done(run: Path, stage: str) -> bool:
    """Whether a stage ran to its end."""
    return stage in _stages(run)["done"]


def search_prices(run: Path, config: RunConfig, clients: Sequence[int] | None = None) -> list[str]:
    """What the searches still to come will have cost: one line, or one a client if they differ.

    The ledger will show the same epsilon for the search once it, and tuning, are through.
    """
    todo = _missing(config, clients, lambda i: search_file(run, i))

    def price(i: int) -> str:
        client = build_client(config, i, run, "cpu")
        return search_price(client, paid=histogram_file(run, i).exists()).text

    texts = {i: price(i) for i in todo}
    if len(set(texts.values())) == 1:
        return [f"search price: {texts[todo[0]]}"]
    return [f"search price, client {i}: {text}" for i, text in texts.items()]


def search_stage(
    run: Path,
    config: RunConfig,
    engine: InProcess,
    device: str,
    report: Report,
    clients: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> None:
    """Search the architecture of the clients that have none yet (all, by default).

    A search that was interrupted goes on after its last generation. `progress` hears of every
    generation of every client.
    """
    todo = _missing(config, clients, lambda i: search_file(run, i))
    logs = {i: search_log(run, i) for i in todo}
    with (
        timed(run, "search", lambda: not _missing(config, None, lambda i: search_file(run, i))),
        watch_logs(logs, progress) as catch_up,
    ):
        tasks = [Task(config.model_dump_json(), run, i, device, engine.inner) for i in todo]
        for k, found in engine.map(search_work.search, tasks):
            catch_up()
            for path, picture in _pictures(run, config, found).items():
                write_bytes(path, picture)
            write_json(search_file(run, todo[k]), found)
            of = {"data-free": " (on noise)"}.get(found["privacy"], "")
            report(f"client {todo[k]}: {found['genome']}, fitness {found['fitness']:.3f}{of}")


def _pictures(run: Path, config: RunConfig, found: dict[str, Any]) -> dict[Path, bytes]:
    """How a search went, and the network that won it."""
    b = spec_of(config, load_federation(config))
    network = drawing(
        Genome.parse(found["genome"]),
        shape=b.shape,
        width=b.width,
        classes=b.classes,
        norm=b.norm,
        fitness=found["fitness"],
    )
    pictures = {network_picture(run, found["client"]): network}
    if found["logbook"]:
        size = config.search.size
        pictures[history_picture(run, found["client"])] = history(
            [GenerationRecord.from_json(r) for r in found["logbook"]],
            [Evaluation.from_json(e) for e in found["history"]],
            found["front"] if size else None,
            size=size or "parameters",
        )
    return pictures


def tune_stage(
    run: Path,
    config: RunConfig,
    engine: InProcess,
    device: str,
    report: Report,
    clients: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> None:
    """Tune the DP-SGD settings of the clients that have none yet (all, by default).

    A tuning that was interrupted goes on after its last trial. `progress` hears of every trial of
    every client.
    """
    todo = _missing(config, clients, lambda i: tune_file(run, i))
    for i in todo:
        read_json(search_file(run, i))
    logs = {i: tune_log(run, i) for i in todo}
    with (
        timed(run, "tune", lambda: not _missing(config, None, lambda i: tune_file(run, i))),
        watch_logs(logs, progress) as catch_up,
    ):
        tasks = [Task(config.model_dump_json(), run, i, device, engine.inner) for i in todo]
        for k, found in engine.map(search_work.tune, tasks):
            catch_up()
            if found["trials"]:
                result = TuningResult.from_json(found)
                write_bytes(trials_picture(run, todo[k]), trials(result.trials, result.best))
            write_json(tune_file(run, todo[k]), found)
            s = found["setting"]
            sigma = f"sigma {s['noise_multiplier']:.3g}" if s["noise_multiplier"] else "least sigma"
            kept = "" if found["trials"] else "not tuned: "
            report(
                f"client {todo[k]}: {kept}lr {s['learning_rate']:.3g}, {sigma}, "
                f"C {s['clip']:.3g}, B {s['batch_size']}"
            )


def _missing(
    config: RunConfig, clients: Sequence[int] | None, file: Callable[[int], Path]
) -> list[int]:
    everyone = range(config.federation.clients)
    for i in clients or ():
        if i not in everyone:
            raise BadInput(f"expected a client of 0 to {len(everyone) - 1}, got {i}")
    return [i for i in (clients if clients is not None else everyone) if not file(i).exists()]


def train_stage(
    run: Path, config: RunConfig, engine: InProcess, device: str, listener: Listener
) -> None:
    """Train the federation from what search and tuning left."""
    for i in range(config.federation.clients):
        read_json(search_file(run, i))
        read_json(tune_file(run, i))
    with timed(run, "train"):
        train_federation(run, config, engine, device, listener)


def reports(config: RunConfig, clients: int) -> dict[str, int]:
    """How many reports each stage makes for so many clients, for a progress bar."""
    rounds = participants(config)
    return {
        "search": clients,
        "tune": clients,
        "train": config.federation.clients + sum(len(c) + 1 for c in rounds),
    }


def last_generation(config: RunConfig) -> int:
    """Number of the last generation of each search; a random one has the first alone."""
    return config.search.evolution.generations if config.search.algorithm == "genetic" else 0
