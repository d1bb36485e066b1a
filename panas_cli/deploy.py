"""`panas deploy`: its subcommands and their options; no library is loaded before one is called."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from panas.runtime.errors import BadInput
from panas_cli import commands
from panas_cli.front import Json

deploy = typer.Typer(help="A federation across machines: its folders, checks, start and state.")

SiteFolder = Annotated[Path | None, Option("--site", help="A site's folder.")]
HubFolder = Annotated[Path | None, Option("--hub", help="The hub's folder.")]
Days = Annotated[int, Option(help="For which the hub's certificate holds.")]


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
    json: Json = False,
) -> None:
    """Make this site's key where it stays; show its fingerprint, and those of the other sites."""
    commands.sites.deploy.key(site, json=json)


@deploy.command("renew")
def renew(
    folder: Annotated[Path, Argument(metavar="DIR", help="What `init` wrote.")],
    days: Days = 365,
) -> None:
    """Give the hub a new certificate of the same authority."""
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


@deploy.command("status")
def status(
    site: SiteFolder = None,
    hub: HubFolder = None,
    run: Annotated[Path | None, Option(help="A run directory of this hub.")] = None,
    json: Json = False,
) -> None:
    """Show who is connected, the round, and what releases cost; at a site, its own ledger."""
    folder = one_of(site, hub)
    if site:
        commands.sites.status.of_site(folder, json=json)
    else:
        commands.sites.status.of_hub(folder, run, json=json)


@deploy.command("demo")
def demo() -> None:
    """Show a hub and three sites at work on this machine, with processes of their own."""
    from dprbft.secure_sum.identity import need_library

    need_library()
    commands.sites.demo.demo()


def one_of(site: Path | None, hub: Path | None) -> Path:
    """The one folder that was given; BadInput for none, or both."""
    folders = [folder for folder in (site, hub) if folder is not None]
    if len(folders) != 1:
        raise BadInput("expected either --site DIR or --hub DIR, got none or both; give one")
    if not folders[0].is_dir():
        raise BadInput(f"expected a folder, got {folders[0]}, which is none; check the path")
    return folders[0]
