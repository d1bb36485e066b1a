"""How much a hub may leave at a site: runs in its ledger, and bytes below its `runs/`."""

from contextlib import suppress
from pathlib import Path

from dprbft.config.schema import RunConfig
from dprbft.paths import SitePlace, hello_file, settings_file
from dprbft.site.directory import read_site, site_ledger
from panas.runtime.errors import BadInput

FOLDER = "public"  # in the site's folder for a run: the files that came with its hello
GIB = 1 << 30


def check_room(place: SitePlace, config: RunConfig, size: int) -> None:
    """BadInput for a new run of which the owner's limits hold no more; `size` bytes came with it.

    Only what hubs have brought counts: the size of what a site has computed tells of its samples.
    """
    settings, where = read_site(place.folder), settings_file(place.folder).name
    ledger = site_ledger(place.folder)
    shares = ledger.account().shares if ledger.is_open else {}
    if shares.get(place.run) != config.budget(place.index) and ledger.begun >= settings.run_limit:
        raise BadInput(
            f"expected at most {settings.run_limit} beginnings of runs in this ledger (run_limit "
            f"in {where}), got one more; raise it there if these are wanted"
        )
    if _brought(place.home.parent) + size > settings.disk_limit * GIB:
        raise BadInput(
            f"expected runs of at most {settings.disk_limit:g} GiB in {place.home.parent} "
            f"(disk_limit in {where}), got one that makes it more; remove runs that nobody needs, "
            "or raise it there"
        )


def _brought(runs: Path) -> int:
    """Bytes of the hellos and public files of all runs."""
    total = 0
    for home in runs.iterdir() if runs.is_dir() else ():
        for path in (hello_file(home), *(home / FOLDER).glob("*")):
            with suppress(OSError):  # it is not there, or has gone meanwhile
                total += path.lstat().st_size
    return total
