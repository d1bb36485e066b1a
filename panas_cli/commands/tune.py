"""`panas tune`: the DP-SGD settings of one site, or of several."""

from dprbft.paths import tune_file
from dprbft.run.stages import tune_stage
from dprbft.site.results.records import TuningRecord
from panas_cli.commands.job import of_sites, tell_time
from panas_cli.requests import Request
from panas_cli.text.joining import NOTHING
from panas_cli.text.printing import print_files, print_json, print_text


def tune(request: Request, site: list[str] | None) -> None:
    """Tune a site's DP-SGD settings; writes tune/best.json in its folder for the run."""
    with of_sites(request, site, after="search") as stage:
        job, ids, display = stage.job, stage.clients, stage.display
        tell_time(job, stage.run, display, ["tune"])
        display.stage("tune", len(ids))
        done = tune_stage(stage.run, ids, display.trials(job.config.tuning.config.trials))
        sites = [stage.run.view.sites[i] for i in done]
    records = [TuningRecord.read(paths.home) for paths in sites]
    if job.json:
        print_json({"run": str(job.run), "clients": [f.to_json() for f in records]})
        return
    for paths, f in zip(sites, records, strict=True):
        s = f.settings
        epochs = f", epochs {s.epochs}" if s.epochs else ""
        if f.nothing:
            print_text(f"{paths.name}: {NOTHING}")
            continue
        print_text(
            f"{paths.name}: learning rate {s.learning_rate:.4g}, noise multiplier "
            f"{_noise(f.noise_multiplier)}, clip {s.clip:.4g}, batch {s.batch_size}"
            f"{epochs}"
        )
        print_files(tune_file(paths.home).parent)


def _noise(multiplier: float | None) -> str:
    return "the least that the budget needs" if multiplier is None else f"{multiplier:.4g}"
