"""`panas tune`: the DP-SGD settings of one client, or of several."""

from dprbft.paths import home, tune_file
from dprbft.run.stages import tune_stage
from dprbft.site.results.records import TuningRecord
from panas_cli.commands.job import of_clients
from panas_cli.options import Request
from panas_cli.text.printing import print_files, print_json, print_text


def tune(request: Request, client: list[int] | None) -> None:
    """Tune one client's DP-SGD settings; writes tune/best.json in its folder."""
    with of_clients(request, client, after="search") as stage:
        job, ids, display = stage.job, stage.clients, stage.display
        display.stage("tune", len(ids))
        ids = tune_stage(stage.run, ids, display.trials(job.config.tuning.config.trials))
    found = [TuningRecord.read(home(job.run, i)) for i in ids]
    if job.json:
        print_json({"run": str(job.run), "clients": [f.to_json() for f in found]})
        return
    for i, f in zip(ids, found, strict=True):
        s = f.settings
        epochs = f", epochs {s.epochs}" if s.epochs else ""
        print_text(
            f"client {i}: learning rate {s.learning_rate:.4g}, noise multiplier "
            f"{_noise(f.noise_multiplier)}, clip {s.clip:.4g}, batch {s.batch_size}"
            f"{epochs}"
        )
        print_files(tune_file(home(job.run, i)).parent)


def _noise(multiplier: float | None) -> str:
    return "the least that the budget needs" if multiplier is None else f"{multiplier:.4g}"
