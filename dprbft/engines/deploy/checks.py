"""What must hold before a site or a hub starts, looked at one by one.

Nothing is charged and nothing written. A line says what holds, or what to do; none tells a value
of the data. What cannot be seen because of an earlier fault is left out, and said to be. What reads
data or a ledger is loaded where it is needed: a hub has none.
"""

import importlib.metadata
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dprbft.engines.deploy.accept import differences, look_at
from dprbft.engines.deploy.certificates import fits, look, vouches
from dprbft.engines.deploy.log import HEAD, LOG, read_log
from dprbft.engines.deploy.probe import (
    ask_control,
    ask_key,
    check_clock,
    greet,
    reach,
)
from dprbft.engines.deploy.settings import (
    CA,
    FEDERATION,
    NODE_KEY,
    Federation,
    Hub,
    flower_hub,
    read_federation,
)
from dprbft.engines.flower.door.control import SOCKET as CONTROL
from dprbft.engines.flower.door.control import state
from dprbft.engines.flower.link import check_flower
from dprbft.engines.node.call import SOCKET, connected
from dprbft.engines.outward import PATIENCE, parted
from dprbft.paths import declared_file
from dprbft.site.federations import memberships
from panas.runtime.errors import BadInput, PanasError
from panas.runtime.store import read_bytes, read_json

SOON = 30
"""Days before its end from which a certificate is told to be renewed."""
LEAST = 0.05
"""Share of its epsilon that a site must have left; less buys no release that says anything."""
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Check:
    """One look: what it was at, whether that holds (None: it could not be seen), and a line."""

    what: str
    holds: bool | None
    line: str


def check_site(folder: Path) -> Iterator[Check]:
    """Look at all that a site needs."""
    check = _look("folder", lambda: f"site {read_federation(folder).site}")
    yield check
    yield _look("versions", _versions)
    federation = read_federation(folder) if check.holds else None
    if federation:
        yield from _at_hub(folder, federation)
    data = _look("data", lambda: _data(folder, federation))
    yield data
    yield _look("budget", lambda: _budget(folder))
    yield check_node(folder)
    if data.holds:
        from dprbft.site.directory import read_site

        for each in memberships(folder, read_site(folder).federation)[1:]:
            yield from _elsewhere(each.name, each.folder)


def _elsewhere(name: str, folder: Path) -> Iterator[Check]:
    """Look at a further federation of a site."""
    check = _look(f"folder {name}", lambda: f"site {read_federation(folder).site}, {folder}")
    yield check
    for each in _at_hub(folder, read_federation(folder)) if check.holds else ():
        yield replace(each, what=f"{name}: {each.what}")
    yield replace(check_node(folder), what=f"{name}: node")


def _at_hub(folder: Path, federation: Federation) -> Iterator[Check]:
    """Look at a site's key, its hub, and what the two know of each other."""
    yield _look("key", lambda: _own_key(folder, federation))
    outside = list(_outside(federation.hub, folder / CA))
    yield from outside
    key, hub, why = folder / NODE_KEY, federation.hub, "the hub, or the clock, does not hold"
    if all_hold(outside):
        known = _look("key at the hub", lambda: ask_key(hub, folder / CA, read_bytes(key)))
        yield known
        if known.holds:
            yield _look("federation's log", lambda: _log(folder))
            return
        why = "the hub does not know the key"
    else:
        yield Check("key at the hub", None, f"not seen: {why}")
    yield Check("federation's log", None, f"not seen: {why}")


def check_hub(folder: Path) -> Iterator[Check]:
    """Look at all that a hub needs."""
    check = _look("folder", lambda: _sites_of(folder))
    yield check
    yield _look("versions", _versions)
    if not check.holds:
        return
    hub = flower_hub(folder)
    key, own = hub.path(hub.flower.key), hub.path(hub.flower.certificate)
    yield _look("key", lambda: _pair(own, key))
    yield _look("authority", lambda: _authority(folder))
    yield _look("federation's log", lambda: _log_of(hub))
    yield _look("certificate", lambda: _dates(read_bytes(own), read_bytes(hub.ca), hub.flower.host))
    outside = list(_outside(hub.local_address, hub.ca))
    yield from outside
    if outside[1].holds:
        yield _look("control", lambda: _control(hub))
        yield _connected(hub)
    else:
        yield Check("control", None, "not seen: the hub does not answer as it should")


def check_node(folder: Path) -> Check:
    """Look whether a site's node answers."""
    return _look("node", lambda: _node(folder))


def _look(what: str, look: Callable[[], str]) -> Check:
    try:
        return Check(what, True, look())
    except PanasError as e:
        return Check(what, False, str(e))
    except OSError as e:
        return Check(
            what, False, f"{e.strerror or e}: {e.filename or 'a file'}; see who may read it"
        )


def _outside(address: str, authority: Path) -> Iterator[Check]:
    """The hub as this machine reaches it: reachable, its certificate, its clock."""
    check = _look("hub", lambda: reach(address))
    yield check
    if not check.holds:
        yield from (
            Check(w, None, "not seen: the hub does not answer")
            for w in ("hub's certificate", "clock")
        )
        return
    try:
        seen = greet(address, authority)
    except BadInput as e:
        yield Check("hub's certificate", False, str(e))
        yield Check("clock", None, "not seen: the hub's certificate does not hold")
        return
    host, _ = parted(address)
    yield _look("hub's certificate", lambda: _dates(seen.certificate, read_bytes(authority), host))
    yield _look("clock", lambda: check_clock(seen))


def _versions() -> str:
    if sys.version_info < OLDEST_PYTHON:
        raise BadInput(f"expected Python 3.11 or later, got {sys.version.split()[0]}; install one")
    check_flower()
    names = ("panas", "flwr", "torch")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def _private(path: Path) -> bytes:
    """The content of a file that nobody else may read."""
    content = read_bytes(path)
    _check_mode(path)
    return content


def _check_mode(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BadInput(f"expected {path} for its owner alone, got mode {mode:o}; chmod 600 {path}")


def _own_key(folder: Path, federation: Federation) -> str:
    from dprbft.secure_sum.signing import check_own_key

    _private(folder / NODE_KEY)
    check_own_key(folder)
    return f"{NODE_KEY} is that of {federation.site}"


def _sites_of(folder: Path) -> str:
    hub = flower_hub(folder)
    return f"hub {hub.address} of {', '.join(hub.settings.names)}"


def _pair(certificate: Path, key: Path) -> str:
    if not fits(read_bytes(certificate), _private(key)):
        raise BadInput(
            f"expected {key} to be the key of {certificate}, got another; copy both anew"
        )
    return f"{key.name} is that of {certificate.name}"


def _authority(folder: Path) -> str:
    """Whoever reads the authority's key can pass for the hub."""
    if exposed := [path.name for path in folder.rglob("ca.key")]:
        raise BadInput(f"expected no key of the authority here, got {exposed[0]}; keep it off line")
    beside = folder.resolve().parent / "ca" / "ca.key"
    return f"its key is in {beside.parent}: keep it off line" if beside.exists() else "not here"


def _log(folder: Path) -> str:
    """That the hub's log goes on from that of the site, which knows all sites that it names."""
    log, news = look_at(folder)
    if log is None:
        return "the hub has none: it was made by an older version"
    if news:
        raise BadInput(
            f"expected the sites of {FEDERATION}, got others at the hub: {'; '.join(news)}; "
            "compare these fingerprints with whoever has them, then `panas deploy accept --site "
            f"{folder} --log {log.head[:HEAD]}`"
        )
    return f"{len(log.lines)} changes, which this site knows"


def _log_of(hub: Hub) -> str:
    log = read_log(hub.folder / LOG, read_bytes(hub.ca))
    if not log.lines:
        return "none: this deployment was made by an older version; its next change begins one"
    if different := differences(log.sites, hub.keys):
        raise BadInput(
            f"expected the sites of {LOG} in hub.toml, got others: {'; '.join(different)}; sites "
            "accept none that the log does not name: use panas deploy add, remove and renew"
        )
    return f"{len(log.lines)} changes; hub.toml has its sites"


def _control(hub: Hub) -> str:
    """What starts runs: not the port, and a socket that the hub's user alone can reach."""
    refusal, path = ask_control(hub.local_address, hub.ca), hub.home / CONTROL
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        raise BadInput(
            f"expected the hub's control socket at {path}, found none; start the hub with `panas "
            "deploy start --hub`"
        )
    _check_mode(path)
    return f"{refusal}; {path.name} does, for the hub's user"


def _connected(hub: Hub) -> Check:
    """Who is connected; that nobody is yet is no fault of the hub's."""
    try:
        sites = state(hub.home)["connected"]
    except PanasError:
        return Check("sites", None, "not seen: the hub's control socket does not answer")
    away = [name for name in hub.settings.names if sites.get(name) != "online"]
    there = f"{len(hub.settings.names) - len(away)} of {len(hub.settings.names)} are connected"
    return Check("sites", True, f"{there}; not yet: {', '.join(away)}" if away else there)


def _dates(certificate: bytes, authority: bytes, host: str) -> str:
    seen, now = look(certificate), datetime.now(UTC)
    if not vouches(authority, certificate):
        raise BadInput("expected a certificate of this federation's authority, got another's")
    if host.lower() not in {h.lower() for h in seen.hosts}:  # wildcards are not known here
        raise BadInput(
            f"expected a certificate for {host}, got one for {', '.join(seen.hosts) or 'nobody'}; "
            "panas deploy renew makes one for the host of hub.toml"
        )
    for what, each in (("the hub's certificate", seen), ("the authority's", look(authority))):
        if not each.begins <= now <= each.ends:
            raise BadInput(
                f"expected {what} to hold now, got one from {each.begins:%Y-%m-%d} to "
                f"{each.ends:%Y-%m-%d}; panas deploy renew, and look at the clock"
            )
    days = (seen.ends - now).days
    return f"holds for {days} days" + (
        "; panas deploy renew makes a new one" if days < SOON else ""
    )


def _data(folder: Path, federation: Federation | None) -> str:
    from dprbft.site.data import load_samples
    from dprbft.site.directory import read_site
    from panas.data.facts import Facts

    site = read_site(folder)
    if federation and site.name != federation.site:
        raise BadInput(
            f"expected the name {federation.site} in site.toml, got {site.name}; change it there"
        )
    try:
        facts = Facts.from_json(read_json(declared_file(folder)))
        samples = load_samples(folder, site, facts)
        site.budget.check(samples.units, site.name)
    except (PanasError, OSError, ValueError) as e:
        raise BadInput(
            f"expected the data as facts.json declares them, got others, or none; "
            f"`panas site show {folder}` says why"
        ) from e
    return "readable, and as declared"


def _budget(folder: Path) -> str:
    from dprbft.methods.joined.budget import largest_run
    from dprbft.site.directory import read_site, site_account, site_ledger

    site = read_site(folder)
    site_ledger(folder).check_current()
    if (left := largest_run(site_account(folder, site))) < LEAST * site.epsilon:
        raise BadInput(
            f"expected some of epsilon {site.epsilon:g} to be left, got {left:.3f}; its data "
            "take part in no further run"
        )
    return f"a run may ask for epsilon {left:.3f} of {site.epsilon:g}, at delta {site.delta:g}"


def _node(folder: Path) -> str:
    path = folder / SOCKET
    try:
        with connected(path, time.monotonic() + PATIENCE):
            pass
    except OSError as e:
        raise BadInput(
            f"expected a node at {path}, got none ({e.strerror or e}); start it: {folder}/start.sh"
        ) from e
    _check_mode(path)
    return f"answers at {path}"


def all_hold(checks: Sequence[Check]) -> bool:
    """Whether every look was good."""
    return all(check.holds for check in checks)
