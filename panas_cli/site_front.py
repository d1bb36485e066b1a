"""Every command of a site's owner, and `panas deploy`: options and help, and nothing else."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from panas.runtime.device import check_word
from panas.runtime.errors import BadInput
from panas_cli import commands
from panas_cli.front import Json
from panas_cli.options import (
    NoHeader,
    OfDates,
    OfNumbers,
    check_encoder_file,
    declared_by,
    ranges_of,
)

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
    data: Annotated[str, Option(help="Your data: an .npz, a table or a folder of pictures.")],
    epsilon: Annotated[float, Option(help="Budget for the data's whole life, above 0.")],
    delta: Annotated[float, Option(help="Of that budget, below 1/n.")],
    name: Annotated[
        str | None, Option(help="What runs call the site; default: as its federation does.")
    ] = None,
    label: Annotated[str | None, Option(help="Label column of a table.")] = None,
    encoder: Annotated[
        str | None,
        Option(help="Frozen network for pictures: .pt2, .onnx or ARCHITECTURE:WEIGHTS."),
    ] = None,
    group: Annotated[
        str | None, Option(help="Column or array of the privacy unit, as patient_id: all its rows.")
    ] = None,
    texts: Annotated[
        str | None, Option(help="Columns to read as texts, though they hold numbers, as codes.")
    ] = None,
    dates: OfDates = "iso",
    numbers: OfNumbers = None,
    no_header: NoHeader = False,
    delimiter: Annotated[
        str | None, Option(help="Between columns (default: what the header suggests).")
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
        "name": name or commands.sites.site.name_of(folder),
        "data": str(source),
        "epsilon": epsilon,
        "delta": delta,
        "trust": trust,
        "strict": strict,
        "dates": dates,
        "header": not no_header,
    }
    lists = {
        "texts": texts,
        "classes": classes,
        "methods": methods,
        "releases": releases,
        "versions": versions,
    }
    for key, text in lists.items():
        if text:
            settings[key] = [part.strip() for part in text.split(",")]
    optional = {
        "label": label,
        "encoder": _encoder(encoder),
        "group": group,
        "bits": bits,
        "epsilon_per_run": epsilon_per_run,
        "ranges": ranges_of(ranges),
        "samples": samples,
        "numbers": numbers,
        "delimiter": delimiter,
    }
    settings |= {key: value for key, value in optional.items() if value is not None}
    commands.sites.site.init(folder, settings, declared_by(public_data, facts), json=json)


def _encoder(given: str | None) -> str | None:
    """An encoder with its path absolute."""
    check_encoder_file(given)
    if given is None:
        return None
    architecture, colon, path = given.rpartition(":")
    return f"{architecture}{colon}{Path(path).expanduser().resolve()}"


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
    check_word(device)
    _check_site(site)
    if parent is not None:
        from dprbft.engines.flower.hub import end_with_parent

        end_with_parent(parent)
    commands.sites.node.serve(site, socket, device, workers)


deploy = typer.Typer(help="A federation across machines: its folders, checks, start and state.")

SiteFolder = Annotated[Path | None, Option("--site", help="A site's folder.")]
HubFolder = Annotated[Path | None, Option("--hub", help="The hub's folder.")]
Days = Annotated[int, Option(help="For which the hub's certificate holds.")]
Deployment = Annotated[Path, Argument(metavar="DIR", help="What `init` wrote.")]
SiteName = Annotated[str, Argument(metavar="NAME", help="The site's name.")]
PublicKey = Annotated[
    Path | None, Option("--key", help="The site's public key; default: its key is made here.")
]


@deploy.command("init")
def init(
    sites: Annotated[str, Option(help="Names of the sites, between commas.")],
    out: Annotated[Path, Option(help="The new folder.")] = Path("federation"),
    host: Annotated[str, Option(help="How sites reach the hub.")] = "localhost",
    port: Annotated[int, Option(help="Where the hub listens.")] = 8000,
    days: Days = 365,
    keys: Annotated[Path | None, Option(help="Folder of the sites' public keys, NAME.pub.")] = None,
    json: Json = False,
) -> None:
    """Write all that a deployment needs: keys, certificates, one folder a site and the hub's."""
    names = [name.strip() for name in sites.split(",") if name.strip()]
    commands.sites.deploy.init(out, names, (host, port, days), keys=keys, json=json)


@deploy.command("key")
def key(
    site: Annotated[Path, Option(help="The site's folder; made if it is not there.")],
    new: Annotated[
        bool, Option("--new", help="Make another, in place of the one that is there.")
    ] = False,
    json: Json = False,
) -> None:
    """Make this site's key where it stays; show its fingerprint, and those of the other sites."""
    commands.sites.deploy.key(site, new=new, json=json)


@deploy.command("add")
def add(folder: Deployment, name: SiteName, key: PublicKey = None) -> None:
    """Let a new site in; a running hub does so within seconds."""
    commands.sites.deploy.add(folder, name, key)


@deploy.command("remove")
def remove(folder: Deployment, name: SiteName) -> None:
    """Revoke a site; a running hub closes its connection within seconds."""
    commands.sites.deploy.remove(folder, name)


@deploy.command("renew")
def renew(
    folder: Deployment,
    site: Annotated[str | None, Option("--site", help="Site that gets a new key.")] = None,
    key: PublicKey = None,
    days: Days = 365,
) -> None:
    """Give the hub a new certificate, or with --site a site a new key."""
    if site is not None:
        commands.sites.deploy.renew_key(folder, site, key)
    elif key is not None:
        raise BadInput("expected --site NAME with --key, got none; name the site whose key it is")
    else:
        commands.sites.deploy.renew(folder, days)


@deploy.command("start")
def start(site: SiteFolder = None, hub: HubFolder = None) -> None:
    """Run a hub, or a site's node and its connection to the hub, until Ctrl-C."""
    from dprbft.engines.deploy.start import start_hub, start_site

    folder = one_of(site, hub)
    (start_site if site else start_hub)(folder)


@deploy.command("check")
def check(site: SiteFolder = None, hub: HubFolder = None, json: Json = False) -> None:
    """Check all that a site or the hub needs, before anyone starts; nothing is charged."""
    folder = one_of(site, hub)
    raise typer.Exit(commands.sites.deploy.check(folder, of_site=site is not None, json=json))


@deploy.command("accept")
def accept(
    site: Annotated[Path, Option("--site", help="The site's folder.")],
    log: Annotated[str, Option(help="The log that was looked at, as `check` names it.")],
    json: Json = False,
) -> None:
    """Take the sites that the hub's log names, once you have compared their keys."""
    commands.sites.deploy.accept(site, log, json=json)


@deploy.command("status")
def status(
    site: SiteFolder = None,
    hub: HubFolder = None,
    run: Annotated[Path | None, Option(help="A run directory of this hub.")] = None,
    live: Annotated[bool, Option("--live", help="Refresh every few seconds; q ends it.")] = False,
    json: Json = False,
) -> None:
    """Show who is connected, the round, and what releases cost; at a site, its own ledger."""
    folder = one_of(site, hub)
    if live and json:
        raise BadInput("expected --live or --json, got both; give one")
    if live:
        commands.sites.live.live(folder, run, of_site=site is not None)
    elif site:
        commands.sites.status.of_site(folder, json=json)
    else:
        commands.sites.status.of_hub(folder, run, json=json)


@deploy.command("demo")
def demo() -> None:
    """Show a hub and three sites at work on this machine, with processes of their own."""
    commands.sites.demo.demo()


def one_of(site: Path | None, hub: Path | None) -> Path:
    """The one folder that was given; BadInput for none, or both."""
    folders = [folder for folder in (site, hub) if folder is not None]
    if len(folders) != 1:
        raise BadInput("expected either --site DIR or --hub DIR, got none or both; give one")
    if not folders[0].is_dir():
        raise BadInput(f"expected a folder, got {folders[0]}, which is none; check the path")
    return folders[0]
