"""The names of the files in a run directory: a contract with whoever reads one."""

from pathlib import Path


def search_file(run: Path, client: int) -> Path:
    """A client's architecture: genome, fitness, cost, logbook."""
    return run / "search" / f"client-{client:03d}" / "best.json"


def search_log(run: Path, client: int) -> Path:
    """A line for every generation of a client's search that is through."""
    return search_file(run, client).with_name("log.jsonl")


def histogram_file(run: Path, client: int) -> Path:
    """The noised label histogram that a client's search on public samples follows."""
    return search_file(run, client).with_name("histogram.json")


def latency_file(run: Path) -> Path:
    """How long the blocks of the search space take, where latency is limited."""
    return run / "search" / "latency.json"


def tune_log(run: Path, client: int) -> Path:
    """A line for every trial of a client's tuning that is through."""
    return tune_file(run, client).with_name("log.jsonl")


def tune_file(run: Path, client: int) -> Path:
    """A client's DP-SGD settings, and every trial."""
    return run / "tune" / f"client-{client:03d}" / "best.json"


def history_picture(run: Path, client: int) -> Path:
    """How a client's fitness rose (`panas.plots.search.history`)."""
    return search_file(run, client).with_name("history.png")


def network_picture(run: Path, client: int) -> Path:
    """A client's network, block by block (`panas.plots.network.drawing`)."""
    return search_file(run, client).with_name("network.png")


def trials_picture(run: Path, client: int) -> Path:
    """How a client's tuning went (`panas.plots.tuning.trials`)."""
    return tune_file(run, client).with_name("trials.png")


def ledger_file(run: Path) -> Path:
    """What every client has spent."""
    return run / "ledger.jsonl"


def rounds_file(run: Path) -> Path:
    """One line a finished round."""
    return run / "rounds.jsonl"


def summary_file(run: Path) -> Path:
    """The outcome of the run."""
    return run / "summary.json"


def stages_file(run: Path) -> Path:
    """Which stages are done, and the seconds each took."""
    return run / "stages.json"


def checkpoint_folder(run: Path) -> Path:
    """What it takes to resume after the last finished round."""
    return run / "checkpoint"


def release_file(run: Path, client: int) -> Path:
    """The bytes of a client's last release, as they crossed the wire."""
    return run / "releases" / f"client-{client:03d}.safetensors"


def model_file(run: Path, client: int) -> Path:
    """The network that a client keeps: the round and head that its validation split selected."""
    return run / "models" / f"client-{client:03d}.safetensors"


def last_model_file(run: Path, client: int) -> Path:
    """The network of the last round, whose bottom computed the last release."""
    return run / "models" / f"client-{client:03d}-last.safetensors"


def audit_file(run: Path) -> Path:
    """What attacks on the releases have found."""
    return run / "audit.json"


def audit_pictures(run: Path) -> Path:
    """The folder of what reconstructions look like, beside private samples."""
    return run / "audit"


def audit_unfinished(run: Path) -> Path:
    """The folder of an audit that is not through yet."""
    return audit_pictures(run) / "unfinished"
