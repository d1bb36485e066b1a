"""`panas plan`: what a run will find, do, cost and send, before it is made.

The run is made in a folder of its own, with copies of owners' sites, which goes again. Nothing is
charged. Only an encoder's vectors of public samples are kept, for the run (`run.sites.vectors`).
"""

import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dprbft.config.schema import RunConfig
from dprbft.config.toml import read_toml
from dprbft.methods import spending_planner
from dprbft.methods.price import span
from dprbft.run.directory import OpenRun
from dprbft.run.hub import answer_caps
from dprbft.run.progress.forecast import Encoding, forecast
from dprbft.run.sites.vectors import PLANNED, keep_planned
from dprbft.run.stages import begin, planned_spending, stages_of
from panas.privacy.ledger.charge import Phase
from panas.runtime.errors import BadInput, PanasError
from panas.runtime.state import state_folder
from panas_cli.commands.job import MOST_PRICED, Job, start
from panas_cli.commands.run import data_found, opened
from panas_cli.options import Reach, Request
from panas_cli.progress import TITLES, Display
from panas_cli.text.joining import span_text
from panas_cli.text.printing import counted, print_json, print_table, print_words, size_text

WRITTEN = (".toml", ".json", ".jsonl", ".head", ".log", "")
"""Endings of a site's files that a run may write to."""

STEPS: dict[Phase, str] = {
    "search": "class frequencies, or search",
    "training": "training",
    "release": "releases",
}
"""What is charged, by the ledger's phases."""


def plan(request: Request) -> None:
    """Show what a run of these settings would do."""
    began = time.perf_counter() - time.process_time()  # what was loaded before
    state = state_folder()  # before it is copied
    if request.resume or request.out:
        raise BadInput("expected no --out and no --resume with a plan, got one; leave it out")
    with (
        tempfile.TemporaryDirectory() as name,
        _copied_state((folder := Path(name)) / "state"),
        _named_as_given(_sites_of(request), folder),
    ):
        job = start(_apart(replace(request, out=folder / "plan"), folder))
        with Display() as display, opened(job, display, Reach()) as run:
            sites, view = begin(run, job.ground), run.view
            record = planned(job, run, sites, time.perf_counter() - began)
            if record["encoding"]:
                made = keep_planned(job.run, (view.public, view.unlabelled), state)
                record = _without_encoded(record, made)
            if job.json:
                print_json(_with_words(record))
                return
            for line in data_found(run):
                print_words(line)
            _show(record)


def _without_encoded(record: dict[str, Any], made: int) -> dict[str, Any]:
    """The record without the seconds of vectors that the run will not compute again."""
    spared = min(made * record["encoding"]["seconds_a_picture"], record["start_seconds"])
    without = {key: record[key] - spared for key in ("start_seconds", "seconds")}
    return record | without | {"seconds_range": [s - spared for s in record["seconds_range"]]}


@contextmanager
def _copied_state(copy: Path) -> Iterator[None]:
    """Let what a plan looks up in the user's state folder be a copy: a first look makes a key."""
    own, name = state_folder(), "PANAS_STATE"
    if own.is_dir():
        shutil.copytree(own, copy, ignore=shutil.ignore_patterns("*.lock", PLANNED))
        if (own / PLANNED).is_dir():  # which is only read
            (copy / PLANNED).symlink_to((own / PLANNED).resolve())
    given = os.environ.get(name)
    os.environ[name] = str(copy)
    try:
        yield
    finally:
        os.environ.pop(name)
        if given is not None:
            os.environ[name] = given


def _apart(request: Request, folder: Path) -> Request:
    """The request with copies of owners' sites in the place of them: greeting opens an account."""
    if not (sites := _sites_of(request)):
        return request
    copies = []
    for number, site in enumerate(sites):
        if not (Path(site) / "site.toml").is_file():
            raise BadInput(f"expected a site at {site}, found none; `panas site init` makes one")
        copy = _copy_of(site, number, folder)
        ignore = shutil.ignore_patterns("runs", "*.lock")
        shutil.copytree(site, copy, ignore=ignore, copy_function=_linked)
        copies.append(str(copy))
    federation = request.settings.get("federation", {}) | {"sites": copies, "clients": len(copies)}
    return replace(request, settings=request.settings | {"federation": federation})


def _sites_of(request: Request) -> list[str]:
    """Owners' sites, as the user names them."""
    given = read_toml(request.config).get("federation", {}) if request.config else {}
    return list(request.settings.get("federation", {}).get("sites") or given.get("sites", []))


def _copy_of(site: str, number: int, folder: Path) -> Path:
    return folder / "sites" / str(number) / Path(site).name


@contextmanager
def _named_as_given(sites: Sequence[str], folder: Path) -> Iterator[None]:
    """Let errors name the user's sites in the place of their copies."""
    try:
        yield
    except PanasError as error:
        text = str(error)
        for number, site in enumerate(sites):
            text = text.replace(str(_copy_of(site, number, folder)), site)
        error.args = (text,)
        raise


def _linked(source: str, target: str) -> None:
    """Copy what a run may write to; link data, which it only reads."""
    if Path(source).suffix in WRITTEN:
        shutil.copy2(source, target)
    else:
        Path(target).symlink_to(Path(source).resolve())


def planned(job: Job, run: OpenRun, sites: Sequence[int], start: float) -> dict[str, Any]:
    """What a run will do: its stages with their seconds, epsilon by step, and bytes a site.

    Args:
        job: processes and device.
        run: greeted, before its first stage.
        sites: numbers of those that take part.
        start: seconds until they were greeted, which a run takes, too.
    """
    config, stages = job.config, stages_of(job.config)
    result = forecast(run, stages, workers=job.workers, device=job.device)
    priced, says = _priced(config, sites), spending_planner(config.federation.method) is not None
    spending = list(planned_spending(run, priced).values())
    totals = [epsilon for s in spending for epsilon in s.total]
    return {
        "sites": len(sites),
        "method": config.federation.method,
        "stages": [
            {"stage": stage, "what": _what(config, stage), "seconds": result.seconds.get(stage)}
            for stage in stages
        ],
        "start_seconds": start,
        "seconds": start + result.total if result.seconds else None,
        "seconds_range": [start + result.least, start + result.most] if result.seconds else None,
        # Of each step by itself: the least and the most, over sites and what tuning may choose.
        "epsilon_by_step": {
            step: list(span(epsilon for s in spending for epsilon in s.phases[step]))
            for step in (STEPS if spending else ())
        },
        "epsilon": max(totals, default=None),
        "epsilon_range": list(span(totals)) if totals else None,
        "epsilon_deltas": sorted({s.delta for s in spending} or {config.privacy.delta}),
        "cannot_pay": len(priced) - len(spending) if says else 0,
        "encoding": _encoding(result.encoding),
        "epsilon_budget": max(config.budget(i).epsilon for i in sites),
        "delta": config.privacy.delta,
        "secure_sum": _secure_sum(config),
        # Updates are as large as networks that are not made yet.
        "most_bytes_up": {"updates": None}.get(
            config.federation.family.sends, sum(answer_caps(job.run, config).values())
        ),
    }


def _encoding(encoding: Encoding | None) -> dict[str, float] | None:
    """What an encoder has to read in the run; None without one."""
    if encoding is None:
        return None
    return {
        "pictures": encoding.pictures,
        "made_pictures": encoding.made,
        "seconds_a_picture": encoding.seconds,
    }


def _secure_sum(config: RunConfig) -> dict[str, float] | None:
    """How many sites may be missing or help the server, and what that costs; None without a sum."""
    if not config.secure_sum:
        return None
    n = config.federation.clients
    t = config.federation.secure_missing_of(n)
    return {"sites": n, "missing": t, "noise_ratio": math.sqrt(n / (n - t))}


def _priced(config: RunConfig, sites: Sequence[int]) -> list[int]:
    """Sites whose price is told: at least one of each budget."""
    budgets = {config.budget(i): i for i in reversed(sites)}
    first = sorted(budgets.values())
    others = [i for i in sites if i not in first]
    return [*first, *others[: max(0, MOST_PRICED - len(first))]]


def _with_words(value: Any) -> Any:
    """A record whose infinite numbers are words, as JSON has none."""
    if isinstance(value, dict):
        return {key: _with_words(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_with_words(v) for v in value]
    return "infinity" if value == math.inf else value


def _what(config: RunConfig, stage: str) -> str:
    search, tuning = config.search.evolution, config.tuning.config
    return {
        "search": f"{search.first + search.generations * search.children} networks at most",
        "tune": f"{tuning.trials} trials at most",
        "join": "one histogram and one release a site at most",
    }.get(stage, TITLES[stage])


def _show(record: dict[str, Any]) -> None:
    def minutes(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds / 60:.1f}"

    rows = [[s["stage"], s["what"], minutes(s["seconds"])] for s in record["stages"]]
    if record["seconds"] is not None:
        rows.insert(0, ["start", "libraries, data, greetings", minutes(record["start_seconds"])])
    rows.append(["in all", "", minutes(record["seconds"])])
    print_table(("stage", "what", "minutes"), rows, left=2)
    if record["seconds_range"]:
        least, most = map(minutes, record["seconds_range"])
        print_words(f"{least} to {most} minutes, by the size of the networks that are found")
    if read := record["encoding"]:
        print_words(_encoding_words(**read))
    steps = record["epsilon_by_step"]
    spent = [
        [STEPS[step], span_text(epsilons)] for step, epsilons in steps.items() if any(epsilons)
    ]
    if record["epsilon_range"]:
        print_table(
            ("charged for", "epsilon"),
            [*spent, ["in all", span_text(record["epsilon_range"], ".3f")]],
            left=1,
        )
        if record["epsilon_deltas"] != [record["delta"]]:
            deltas = ", ".join(f"{delta:g}" for delta in record["epsilon_deltas"])
            print_words(f"epsilons are at each owner's own delta: {deltas}")
    elif not record["cannot_pay"]:
        print_words("epsilon: at most the budget; the method does not say more before it runs")
    if record["cannot_pay"]:
        print_words(
            f"warning: {counted(record['cannot_pay'], 'site')} cannot pay for this run within "
            "their budget; give more epsilon, or more noise"
        )
    print_words(
        f"budget: epsilon {record['epsilon_budget']:g} at delta {record['delta']:g} a site; each "
        "step's epsilon is by itself, the last line composes them"
    )
    if summed := record["secure_sum"]:
        more = f"{summed['noise_ratio'] - 1:.1%}"
        print_words(
            f"secure sum: the server sees the sum alone; {summed['missing']} of {summed['sites']} "
            f"sites may be missing or help it, for {more} more noise than with none "
            "(federation.secure_missing)"
        )
    if record["most_bytes_up"] is not None:
        print_words(f"a site sends at most {size_text(record['most_bytes_up'])}")
    kept = "vectors of public samples alone are kept for it" if read else "nothing is kept"
    print_words(f"nothing was charged, and {kept}; `panas run` with the same options runs it")


def _encoding_words(pictures: int, made_pictures: int, seconds_a_picture: float) -> str:
    made = f" and {counted(made_pictures, 'made one')}" if made_pictures else ""
    minutes = (pictures + made_pictures) * seconds_a_picture / 60
    return (
        f"the encoder has to read {counted(pictures, 'picture')} of sites{made}, "
        f"{1000 * seconds_a_picture:.0f} ms each: {minutes:.1f} minutes of one process, which are "
        "among those above"
    )
