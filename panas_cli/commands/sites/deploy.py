"""`panas deploy`: what it writes, checks and shows."""

from pathlib import Path

from dprbft.engines.identity import need_library
from panas_cli.text.printing import counted, print_json, print_text, print_words


def init(out: Path, sites: list[str], where: tuple[str, int, int], *, json: bool) -> None:
    """Write a new deployment, and say who gets what."""
    need_library()
    from dprbft.engines.deploy.folders import Deployment, make_deployment

    host, port, days = where
    make_deployment(out, Deployment(sites=sites, host=host, port=port, days=days))
    folders = {name: str(out / "sites" / name) for name in sites}
    if json:
        print_json({"hub": str(out / "hub"), "sites": folders, "authority": str(out / "ca")})
        return
    print_text(f"a federation of {counted(len(sites), 'site')}: {out}")
    whose = {
        str(out / "ca"): "signs the hub's certificate; keep it off line, for yourself",
        str(out / "hub"): f"for the hub's administrator, on {host}",
        **{
            folders[name]: f"for the administrator of {name}: its key is a secret" for name in sites
        },
    }
    width = max(map(len, whose))
    for folder, what in whose.items():
        print_words(f"  {folder:{width}}  {what}", indent=width + 4)
    print_text("each folder's README.md says what comes next")


def renew(folder: Path, days: int) -> None:
    """Make the hub's certificate anew."""
    need_library()
    from dprbft.engines.deploy.folders import renew as work

    hub = work(folder, days)
    print_text(f"a new certificate of {hub.address}, for {counted(days, 'day')}")
    files = hub.path(hub.flower.certificate), hub.path(hub.flower.key)
    print_text(f"copy {files[0]} and {files[1]} to the hub, and start it again")


def check(folder: Path, *, of_site: bool, json: bool) -> int:
    """Look at all that is needed; a line each as it is seen. Returns the exit code, 0 or 2."""
    need_library()
    from dprbft.engines.deploy.checks import Check, all_hold, check_hub, check_site

    found = list[Check]()
    for each in (check_site if of_site else check_hub)(folder):
        found.append(each)
        if not json:
            print_words(f"{MARKS[each.holds]:5}{each.what:19}{each.line}", indent=24)
    if json:
        lines = [{"what": c.what, "holds": c.holds, "line": c.line} for c in found]
        print_json({"holds": all_hold(found), "checks": lines})
    return 0 if all_hold(found) else 2


MARKS = {True: "OK", False: "DO", None: "-"}
