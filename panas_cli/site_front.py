"""Every command of a site's owner: its options, its help, and nothing else."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from panas.runtime.errors import BadInput
from panas_cli import commands
from panas_cli.front import Json
from panas_cli.options import declared_by, ranges_of

site = typer.Typer(help="A site: your data, their budget for life, their ledger.")
Site = Annotated[Path, Argument(metavar="DIR", help="The site's directory.")]

Ranges = Annotated[
    list[str] | None,
    Option("--range", metavar="COLUMN=LOW:HIGH", help="Values of a table's column; repeat."),
]
PublicData = Annotated[
    str | None, Option(help="Samples anybody may see: they give scale and categories of columns.")
]
TheirFacts = Annotated[
    Path | None, Option("--facts", help="The facts.json of a federation, to declare the same.")
]


@site.command("init")
def site_init(
    folder: Site,
    data: Annotated[str, Option(help="Your data: a .npz, a .csv or a folder of pictures.")],
    epsilon: Annotated[float, Option(help="Budget for the data's whole life, above 0.")],
    delta: Annotated[float, Option(help="Of that budget, below 1/n.")],
    name: Annotated[str | None, Option(help="What runs call the site.")] = None,
    label: Annotated[str | None, Option(help="Label column of a .csv.")] = None,
    group: Annotated[
        str | None, Option(help="Column or array of the privacy unit, as patient_id: all its rows.")
    ] = None,
    bits: Annotated[int | None, Option(help="Depth of pictures above 8 bits, as 12 or 16.")] = None,
    classes: Annotated[
        str | None,
        Option(help="All classes, between commas, to declare; default: those of the data."),
    ] = None,
    methods: Annotated[
        str | None,
        Option(help="Methods that may run, between commas; default: whose releases may."),
    ] = None,
    releases: Annotated[
        str | None, Option(help="What may leave, between commas; default: what a ledger can bound.")
    ] = None,
    epsilon_per_run: Annotated[
        float | None, Option(help="The most that one run may ask for; default: what is left.")
    ] = None,
    samples: Annotated[
        int | None, Option(help="How many samples or groups there are, if that may be public.")
    ] = None,
    trust: Annotated[
        Literal["server", "secure-sum"],
        Option(help="secure-sum: only runs whose server learns no more than a sum."),
    ] = "server",
    strict: Annotated[bool, Option("--strict", help="Refuse samples of other ledgers.")] = False,
    versions: Annotated[
        str | None,
        Option(help="Versions of panas that may lead a run, between commas; default: any."),
    ] = None,
    ranges: Ranges = None,
    public_data: PublicData = None,
    facts: TheirFacts = None,
    json: Json = False,
) -> None:
    """Make a site's directory: its settings, and what it declares of its data."""
    source = Path(data).expanduser().resolve()
    if not source.exists():
        raise BadInput(f"expected data at {data}, found none; check --data")
    settings = {
        "name": name or folder.resolve().name,
        "data": str(source),
        "epsilon": epsilon,
        "delta": delta,
        "trust": trust,
        "strict": strict,
    }
    lists = {"classes": classes, "methods": methods, "releases": releases, "versions": versions}
    for key, text in lists.items():
        if text:
            settings[key] = [part.strip() for part in text.split(",")]
    optional = {
        "label": label,
        "group": group,
        "bits": bits,
        "epsilon_per_run": epsilon_per_run,
        "ranges": ranges_of(ranges),
        "samples": samples,
    }
    settings |= {key: value for key, value in optional.items() if value is not None}
    commands.sites.site.init(folder, settings, declared_by(public_data, facts), json=json)


@site.command("declare")
def site_declare(
    folder: Site,
    public_data: PublicData = None,
    facts: TheirFacts = None,
    json: Json = False,
) -> None:
    """Declare a site's data anew: scale and categories of columns, names of classes."""
    _check_site(folder)
    commands.sites.site.declare(folder, declared_by(public_data, facts), json=json)


@site.command("show")
def site_show(folder: Site, json: Json = False) -> None:
    """Show what a site holds, what its runs have spent, and what is left."""
    _check_site(folder)
    commands.sites.site.show(folder, json=json)


@site.command("accept")
def site_accept(
    folder: Site,
    restored: Annotated[
        bool, Option("--restored", help="A backup was put back: charge what its ledger lacks.")
    ] = False,
    json: Json = False,
) -> None:
    """Take a site's ledger as it was put back, with all that it was charged since."""
    if not restored:
        raise BadInput("expected --restored, got nothing to accept; say what happened")
    commands.sites.site.accept(folder, json=json)


def _check_site(folder: Path) -> None:
    if not (folder / "site.toml").is_file():
        raise BadInput(f"expected a site with a site.toml at {folder}, found none; panas site init")


def node(
    site: Annotated[Path, Option("--site", metavar="DIR", help="The site's directory.")],
    socket: Annotated[Path | None, Option(help="Unix socket (default: DIR/node.sock).")] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int, Option(min=1, help="Worker processes of a search or of tuning.")] = 1,
    parent: Annotated[int | None, Option(hidden=True, help="Process to end with.")] = None,
) -> None:
    """Serve a site to federations: the one process that touches its data."""
    if device not in ("auto", "cpu", "cuda"):
        raise BadInput(f"expected --device auto, cpu or cuda, got {device!r}; use auto")
    _check_site(site)
    if parent is not None:
        from dprbft.engines.flower.hub import end_with_parent

        end_with_parent(parent)
    commands.sites.node.serve(site, socket, device, workers)
