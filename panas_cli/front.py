"""Every command of whoever leads or simulates a run: its options, its help, and nothing else.

What a command does is loaded when it is called: help, and a mistake in the options, take no second.
`panas_cli/site_front.py` has those of a site's owner.
"""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from panas.data.files.dialect import Dialect
from panas_cli import commands
from panas_cli.options import (
    Chosen,
    CompareRequest,
    FailOn,
    Leaving,
    NoHeader,
    OfDates,
    OfNumbers,
    Reach,
    ReportRequest,
    Request,
    check_claim,
    check_encoder_file,
    checked_audited,
    checked_export,
    checked_folder,
    checked_input,
    checked_reach,
    checked_results,
    checked_source,
    checked_workers,
    numbers,
    planned_request,
    refuse_used,
    with_common,
    with_compared,
)

Json = Annotated[bool, Option("--json", help="One JSON object on stdout.")]
Run = Annotated[Path, Argument(help="A run directory.")]
Models = Annotated[
    Path,
    Argument(metavar="RUN", help="A run directory, or a file of a network or predictor."),
]
Site = Annotated[str | None, Option("--site", help="Whose, by name; not needed for a file.")]
Clients = Annotated[
    list[str] | None,
    Option("--client", help="A site by name or number (default 0). May be repeated."),
]
Shadows = Annotated[int, Option(help="Networks that LiRA and RMIA train; 0: without.")]
Workers = Annotated[int | None, Option(help="Processes; none: one a core.")]
FailOnOption = Annotated[
    FailOn | None, Option(help="Exit with 1 on such a verdict, or a worse one.")
]


@with_common
def run(
    request: Request,
    engine: Annotated[
        Literal["inprocess", "flower"] | None,
        Option(help="What carries messages (default: inprocess; a hub's: its hub.toml)."),
    ] = None,
    hub: Annotated[
        Path | None, Option(help="A hub's folder, with its hub.toml: the sites are elsewhere.")
    ] = None,
    facts: Annotated[
        Path | None,
        Option(help="With --hub: what a site declares (facts.json), if no public data do."),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the plan of it, as `panas plan`, and do nothing.")
    ] = False,
) -> None:
    """Join, search, tune, train, audit and report: all stages that the method has, in one go."""
    refuse_used(request)
    reach = checked_reach(request, Reach(engine, hub, facts))
    if dry_run:
        commands.plan.plan(planned_request(request, reach))
    else:
        commands.run.run(request, reach)


@with_common
def plan(request: Request) -> None:
    """Show what a run would do, cost and send: minutes, bytes and epsilon; nothing is charged."""
    commands.plan.plan(request)


@with_common
def search(request: Request, site: Clients = None) -> None:
    """Search one site's architecture; writes search/best.json in its folder."""
    commands.stages.search(request, site)


@with_common
def tune(request: Request, site: Clients = None) -> None:
    """Tune one site's DP-SGD settings; writes tune/best.json in its folder."""
    commands.stages.tune(request, site)


@with_common
def train(request: Request) -> None:
    """Train the federation with the architectures and settings found before."""
    commands.stages.train(request)


@with_compared
def compare(
    request: Request,
    experiment: Annotated[
        Path | None,
        Argument(metavar="[EXPERIMENT.toml]", help="What to compare; options go over it."),
    ] = None,
    methods: Annotated[
        str | None, Option(help="Names between commas, or all; the first is the reference.")
    ] = None,
    seeds: Annotated[int | None, Option(help="Number of seeds, from --seed (0) on.")] = None,
    size: Annotated[
        str | None, Option(help="smoke (default: seconds), cpu (minutes), full.")
    ] = None,
    columns: Annotated[
        str | None, Option(help="sound (default), paper (as published), both.")
    ] = None,
) -> None:
    """Compare methods on the same sites and seeds; writes one table and its pictures."""
    commands.compare.compare(request, CompareRequest(experiment, methods, seeds, size, columns))


def audit(
    run: Annotated[Path | None, Argument(help="A run directory.")] = None,
    shadows: Shadows = 0,
    beside: Annotated[
        list[Path] | None,
        Option(help="Another run of the same sites, whose noise must be another; may be repeated."),
    ] = None,
    workers: Workers = None,
    fail_on: FailOnOption = None,
    implementation: Annotated[
        bool,
        Option("--implementation", help="Run the code of all mechanisms again, in place of a run."),
    ] = False,
    mechanism: Annotated[
        str | None,
        Option(metavar="FILE.py:NAME", help="With --implementation: yours, too; runs that code."),
    ] = None,
    json: Json = False,
) -> None:
    """Attack what a run released, and test its noise; or test the code that releases."""
    processes = checked_workers(shadows, workers)
    folder = checked_audited(run, implementation, mechanism)
    if folder is None:
        commands.implementation.implementation(mechanism, json)
        return
    others = tuple(checked_folder(other) for other in beside or ())
    commands.audit.audit(folder, shadows, others, processes, fail_on, json)


def audit_model(
    file: Annotated[
        Path,
        Argument(
            help="Its weights: .safetensors of panas, or .pt2 of torch.export, which can run code "
            "when loaded: only files that you trust."
        ),
    ],
    data: Annotated[str, Option(help="Its training data: .npz (train_*, test_*), table, folder.")],
    others: Annotated[str | None, Option(help="Like samples that it was not trained on.")] = None,
    label: Annotated[str | None, Option(help="Label column of a table.")] = None,
    mean: Annotated[str, Option(help="Its preprocessing: (x - mean) / std.")] = "0.5",
    std: Annotated[str, Option(help="x in [0, 1]; one number, or one a channel.")] = "0.5",
    accuracy: Annotated[
        float | None, Option(help="That it is known to have on --data: another one is an error.")
    ] = None,
    epsilon: Annotated[float | None, Option(help="That it was trained with.")] = None,
    delta: Annotated[float, Option(help="Of that epsilon.")] = 1e-5,
    outputs: Annotated[
        bool, Option("--outputs", help="Its answers to private images are seen by others.")
    ] = False,
    shadows: Shadows = 0,
    workers: Workers = None,
    out: Annotated[Path | None, Option(help="Folder for audit.json and pictures.")] = None,
    fail_on: FailOnOption = None,
    json: Json = False,
) -> None:
    """Attack a network that was trained elsewhere: who was it trained on?"""
    means, stds = numbers("--mean", mean), numbers("--std", std, positive=True)
    processes = checked_workers(shadows, workers)
    check_claim(epsilon, delta, accuracy)
    from attacks.audit.external_model import ModelAuditConfig
    from attacks.audit.membership import PrivacyClaim
    from attacks.audit.target import ExternalModel

    model = ExternalModel(
        file=file,
        data=data,
        others=others,
        label=label,
        mean=means,
        std=stds,
        accuracy=accuracy,
        claim=PrivacyClaim(epsilon=epsilon, delta=delta),
    )
    config = ModelAuditConfig(shadows=shadows, outputs=outputs, workers=processes)
    commands.audit.audit_model(model, config, out, fail_on, json)


def predict(
    source: Models,
    input: Annotated[str, Option("--input", help="An .npz, table, picture, or folder; no labels.")],
    site: Site = None,
    dates: OfDates = "iso",
    numbers: OfNumbers = None,
    no_header: NoHeader = False,
    with_: Annotated[
        Literal["predictor", "network"] | None,
        Option("--with", help="What classifies (default: the predictor, if there is one)."),
    ] = None,
    encoder: Annotated[
        str | None, Option(help="The run's encoder (default: that of the site's site.toml).")
    ] = None,
    out: Annotated[Path | None, Option(help="A .csv or .json file (default: stdout).")] = None,
    json: Json = False,
) -> None:
    """Classify new samples: class and probabilities of each, as CSV or JSON."""
    checked_source(source)
    checked_input(input)
    checked_results(out, json)
    check_encoder_file(encoder)
    dialect = Dialect(dates=dates, numbers=numbers, header=not no_header)
    chosen = Chosen(site, with_, encoder)
    commands.predict.predict(source, (input, dialect), chosen, out=out, as_json=json)


def export(
    source: Models,
    site: Site = None,
    format: Annotated[
        Literal["onnx", "torch", "safetensors"], Option(help="Of the file: .onnx, .pt2, ...")
    ] = "onnx",
    out: Annotated[
        Path | None, Option(help="The file (default: the site's name, in this folder).")
    ] = None,
    although_it_must_stay: Annotated[
        bool,
        Option("--although-it-must-stay", help="Export what nothing protects; its card says so."),
    ] = False,
    with_accuracy: Annotated[
        bool,
        Option("--with-accuracy", help="Tell its test accuracy, which no epsilon covers."),
    ] = False,
    json: Json = False,
) -> None:
    """Export a site's network as a program, with a model card, if it may leave."""
    checked_source(source)
    checked_export(out, format)
    leaving = Leaving(although_it_must_stay, with_accuracy)
    commands.export.export(source, site, format, out, leaving, json)


def ledger(
    folder: Annotated[Path, Argument(help="A run directory, or a site's folder.")],
    group: Annotated[int, Option("--group", help="Epsilon of a user with so many samples.")] = 1,
    json: Json = False,
    moved: Annotated[bool, Option("--moved", hidden=True, help="Not needed any more.")] = False,
) -> None:
    """Show what every site, or one site, has spent, on what, and what is not covered."""
    checked_folder(folder)
    commands.ledger.ledger(folder, group, json)


def epsilon(
    q: Annotated[float, Option("--q", help="Sampling rate, in (0, 1].")],
    sigma: Annotated[float, Option("--sigma", help="Noise multiplier, above 0.")],
    steps: Annotated[int, Option("--steps", help="Optimiser steps, at least 1.")],
    delta: Annotated[float, Option("--delta", help="In (0, 1).")],
    group: Annotated[int, Option("--group", help="Samples that one user holds.")] = 1,
    relation: Annotated[
        Literal["add-or-remove-one", "replace-one"],
        Option("--relation", help="Which data sets are neighbours."),
    ] = "add-or-remove-one",
    json: Json = False,
) -> None:
    """Show epsilon of DP-SGD by four accountants beside each other."""
    commands.epsilon.epsilon(q, sigma, steps, delta, group, relation, json)


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run directories.")],
    out: Annotated[
        Path | None, Option(help="File of the page (default: report.html in the run).")
    ] = None,
    details: Annotated[
        bool, Option("--details", help="All tables, not one screen; draw the sites' pictures.")
    ] = False,
    watch: Annotated[
        bool, Option("--watch", help="Write the page every few seconds until the run is done.")
    ] = False,
    tensorboard: Annotated[
        Path | None, Option(help="Empty folder for event files of TensorBoard.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a run's results, and write them as one HTML file; several runs are compared."""
    folders = [checked_folder(run) for run in runs]
    commands.report.report(folders, ReportRequest(out, details, json, watch, tensorboard))


@with_common
def config(request: Request) -> None:
    """Show every setting: value, default, unit and range; those that are not set as comments."""
    commands.config.config(request)


def doctor(
    out: Annotated[Path, Option(help="The folder that runs are to be in.")] = Path(),
    json: Json = False,
) -> int:
    """Check this machine: versions, cores, GPU, disk, extras; exit code 1 if panas cannot run."""
    return commands.doctor.doctor(checked_folder(out), json)


COMMANDS = (
    *(run, plan, search, tune, train, compare, predict, export),
    *(audit, audit_model, ledger, epsilon, report, config, doctor),
)
"""In the order of the help."""
