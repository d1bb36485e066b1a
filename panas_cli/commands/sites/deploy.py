"""`panas deploy`: what it writes, checks and shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from panas_cli.text.printing import counted, print_json, print_text, print_words

if TYPE_CHECKING:
    from dprbft.engines.deploy.settings import Hub


def init(
    out: Path, sites: list[str], where: tuple[str, int, int], *, keys: Path | None, json: bool
) -> None:
    """Write a new deployment, and say who gets what.

    Args:
        out: the new folder.
        sites: names of the sites.
        where: the hub's host and port, and days of its certificate.
        keys: folder of the sites' public keys, NAME.pub; None: all keys are made here.
        json: print one JSON object.
    """
    from dprbft.engines.deploy.folders import Deployment, make_deployment
    from dprbft.engines.deploy.keys import given_keys

    host, port, days = where
    public = None if keys is None else given_keys(keys, sites)
    make_deployment(out, Deployment(sites=sites, host=host, port=port, days=days), public)
    folders = {name: str(out / "sites" / name) for name in sites}
    if json:
        print_json({"hub": str(out / "hub"), "sites": folders, "authority": str(out / "ca")})
        return
    print_text(f"a federation of {counted(len(sites), 'site')}: {out}")
    whose = {
        str(out / "ca"): "signs the hub's certificate; keep it off line, for yourself",
        str(out / "hub"): f"for the hub's administrator, on {host}",
        **{
            folders[name]: f"for the administrator of {name}: its key is a secret"
            if public is None
            else f"for the administrator of {name}, who has its key; no secret"
            for name in sites
        },
    }
    width = max(map(len, whose))
    for folder, what in whose.items():
        print_words(f"  {folder:{width}}  {what}", indent=width + 4)
    print_text("each folder's README.md says what comes next")


def key(folder: Path, *, new: bool, json: bool) -> None:
    """Make a site's key, or show the one that it has, beside those of its federation.

    Args:
        folder: the site's.
        new: make another key in place of the one that it has.
        json: print one JSON object.
    """
    from dprbft.engines.deploy.keys import PUBLIC_KEY, fingerprint, own_key, renewed_key
    from dprbft.engines.deploy.settings import FEDERATION, read_federation

    own = fingerprint(renewed_key(folder) if new else own_key(folder))
    known = read_federation(folder).sites if (folder / FEDERATION).exists() else {}
    others = {name: fingerprint(public) for name, public in known.items()}
    if json:
        print_json({"public": str(folder / PUBLIC_KEY), "fingerprint": own, "sites": others})
        return
    print_words(f"this site's key: {own}", indent=4)
    if new:
        print_words(
            f"{folder / PUBLIC_KEY} goes to whoever runs panas deploy renew DIR --site NAME --key "
            "FILE; until then the hub refuses this site",
            indent=4,
        )
    elif others:
        print_text("keys in federation.json; compare them with these sites, by telephone say:")
        width = max(map(len, others))
        for name, result in others.items():
            print_words(f"  {name:{width}}  {result}", indent=width + 4)
    else:
        told = f"{folder / PUBLIC_KEY} goes, as NAME.pub, to whoever runs panas deploy init --keys"
        print_words(f"{told}; {folder / 'node.key'} stays here", indent=4)


def renew(folder: Path, days: int) -> None:
    """Make the hub's certificate anew."""
    from dprbft.engines.deploy.change import renew as work
    from dprbft.engines.deploy.log import LOG

    hub = work(folder, days)
    print_text(f"a new certificate of {hub.address}, for {counted(days, 'day')}")
    files = hub.path(hub.flower.key), hub.path(hub.flower.certificate), hub.folder / LOG
    _print_hub(hub, files)


def add(folder: Path, name: str, key: Path | None) -> None:
    """Let a site in, and say who gets what.

    Args:
        folder: the deployment.
        name: of the site.
        key: file of its public key; None: its key is made here.
    """
    from dprbft.engines.deploy.change import add as work
    from dprbft.engines.deploy.keys import given_key
    from dprbft.engines.deploy.settings import flower_hub

    made = work(folder, name, given_key(key) if key else None)
    _print_folder(name, made, made_here=key is None)
    _print_hub(flower_hub(folder / "hub"))
    _print_accept()


def remove(folder: Path, name: str) -> None:
    """Let a site in no more."""
    from dprbft.engines.deploy.change import remove as work

    hub = work(folder, name)
    print_text(
        f"{name} is removed; {counted(len(hub.keys), 'site')} left, of which a run needs "
        f"{hub.settings.minimum}"
    )
    _print_hub(hub)
    _print_accept()


def renew_key(folder: Path, name: str, key: Path | None) -> None:
    """Give a site a new key, and say who gets what.

    Args:
        folder: the deployment.
        name: of the site.
        key: file of its new public key; None: made here.
    """
    from dprbft.engines.deploy.change import renew_key as work
    from dprbft.engines.deploy.keys import given_key
    from dprbft.engines.deploy.settings import flower_hub

    made = work(folder, name, given_key(key) if key else None)
    if key:
        print_text(f"{name} has a new key")
    else:
        _print_folder(name, made, made_here=True)
    _print_hub(flower_hub(folder / "hub"))
    _print_accept()


def accept(folder: Path, head: str, *, json: bool) -> None:
    """Take the sites of the hub's log.

    Args:
        folder: the site's.
        head: of the log that the owner has looked at.
        json: print one JSON object.
    """
    from dprbft.engines.deploy.accept import accept as work
    from dprbft.engines.deploy.keys import fingerprint

    sites = {name: fingerprint(key) for name, key in work(folder, head).items()}
    if json:
        print_json({"site": str(folder), "sites": sites})
        return
    print_text(f"{folder} now knows {counted(len(sites), 'site')}:")
    for name, seen in sites.items():
        print_words(f"  {name:{max(map(len, sites))}}  {seen}")


def _print_folder(name: str, folder: Path, *, made_here: bool) -> None:
    secret = "its key is a secret" if made_here else "no secret"
    print_words(f"{folder}: for the administrator of {name}; {secret}", indent=4)


def _print_hub(hub: "Hub", files: Sequence[Path] = ()) -> None:
    from dprbft.config.hub import HUB
    from dprbft.engines.deploy.log import LOG

    wanted = ", ".join(str(file) for file in files or (hub.folder / LOG, hub.folder / HUB))
    print_words(
        f"a hub that runs in {hub.folder} takes this in seconds, without a restart; to another "
        f"machine, copy {wanted}, in this order",
        indent=4,
    )


def _print_accept() -> None:
    print_words("each other site: panas deploy check --site DIR, which says what to accept")


def check(folder: Path, *, of_site: bool, json: bool) -> int:
    """Look at all that is needed; a line each as it is seen. Returns the exit code, 0 or 2.

    Args:
        folder: a site's, or the hub's.
        of_site: whether it is a site's.
        json: print one JSON object at the end.
    """
    from dprbft.engines.deploy.checks import Check, all_hold, check_hub, check_site

    checks = list[Check]()
    for each in (check_site if of_site else check_hub)(folder):
        checks.append(each)
        if not json:
            print_words(f"{MARKS[each.holds]:5}{each.what:19}{each.line}", indent=24)
    if json:
        lines = [{"what": c.what, "holds": c.holds, "line": c.line} for c in checks]
        print_json({"holds": all_hold(checks), "checks": lines})
    return 0 if all_hold(checks) else 2


MARKS = {True: "OK", False: "DO", None: "-"}
