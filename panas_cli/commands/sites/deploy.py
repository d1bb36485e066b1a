"""`panas deploy`: what it writes, checks and shows."""

from pathlib import Path

from panas_cli.text.printing import counted, print_json, print_text, print_words


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


def key(folder: Path, *, json: bool) -> None:
    """Make a site's key, or show the one that it has, beside those of its federation."""
    from dprbft.engines.deploy.keys import PUBLIC_KEY, fingerprint, own_key
    from dprbft.engines.deploy.settings import FEDERATION, read_federation

    own = fingerprint(own_key(folder))
    known = read_federation(folder).sites if (folder / FEDERATION).exists() else {}
    others = {name: fingerprint(public) for name, public in known.items()}
    if json:
        print_json({"public": str(folder / PUBLIC_KEY), "fingerprint": own, "sites": others})
        return
    print_words(f"this site's key: {own}", indent=4)
    if others:
        print_text("keys in federation.json; compare them with these sites, by telephone say:")
        width = max(map(len, others))
        for name, result in others.items():
            print_words(f"  {name:{width}}  {result}", indent=width + 4)
    else:
        told = f"{folder / PUBLIC_KEY} goes, as NAME.pub, to whoever runs panas deploy init --keys"
        print_words(f"{told}; {folder / 'node.key'} stays here", indent=4)


def renew(folder: Path, days: int) -> None:
    """Make the hub's certificate anew."""
    from dprbft.engines.deploy.folders import renew as work

    hub = work(folder, days)
    print_text(f"a new certificate of {hub.address}, for {counted(days, 'day')}")
    files = hub.path(hub.flower.certificate), hub.path(hub.flower.key)
    print_text(f"copy {files[0]} and {files[1]} to the hub, and start it again")


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
