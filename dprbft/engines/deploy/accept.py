"""What a site's owner sees of changes at the hub, and accepts: by no other way does a site's
`federation.json` change, whatever a hub says.

The hub shows the federation's log. It must go on from the log that the site last accepted, every
line signed by the authority. Its sites are compared with those of `federation.json`, by key.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dprbft.engines.deploy.keys import fingerprint, write_federation
from dprbft.engines.deploy.log import HEAD, LOG, Log, parsed, read_log
from dprbft.engines.deploy.probe import ask_log
from dprbft.engines.deploy.settings import CA, NODE_KEY, read_federation
from dprbft.secure_sum.identity import public_of, ssh_public
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, write_bytes


def look_at(folder: Path) -> tuple[Log | None, list[str]]:
    """The hub's log, None where it has none, and what differs in it from a site's federation.json.

    BadInput if it does not go on from the site's own, or the authority has not signed it.
    """
    federation, authority = read_federation(folder), read_bytes(folder / CA)
    known = read_log(folder / LOG, authority)
    content = ask_log(federation.hub, folder / CA, read_bytes(folder / NODE_KEY))
    if content is None:
        if known.lines:
            raise BadInput(
                "expected the hub to show the federation's log, got none; ask its administrator"
            )
        return None, []
    log = parsed(content, authority, federation.hub)
    if not log.continues(known):
        raise BadInput(
            f"expected a log at the hub that goes on from the {len(known.lines)} lines of "
            f"{folder / LOG}, got another; accept nothing, and ask whoever holds ca.key"
        )
    return log, differences(federation.sites, log.sites)


def differences(known: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[str]:
    """What differs between two lists of sites, by name and key (PEM), in words."""
    came = [f"{n} is new ({fingerprint(k)})" for n, k in new.items() if n not in known]
    renewed = [
        f"{n} has a new key ({fingerprint(k)})"
        for n, k in new.items()
        if n in known and ssh_public(k) != ssh_public(known[n])
    ]
    return [*came, *renewed, *(f"{n} is removed" for n in known if n not in new)]


def accept(folder: Path, head: str) -> dict[str, bytes]:
    """Take the sites of the hub's log into a site's federation.json; returns them.

    BadInput, and nothing changed, if the hub shows another log than the one that was looked at, or
    this site has another key there.

    Args:
        folder: the site's.
        head: at least `HEAD` digits of the hash of the last line that the owner has looked at.
    """
    log, _ = look_at(folder)
    if log is None or len(head) < HEAD or not log.head.startswith(head):
        raise BadInput(
            f"expected the log that was looked at ({head:.64}), got another at the hub; `panas "
            f"deploy check --site {folder}` says what is there now"
        )
    federation, own = read_federation(folder), public_of(read_bytes(folder / NODE_KEY))
    named = log.sites.get(federation.site)
    if named is None or ssh_public(named) != ssh_public(own):
        raise BadInput(
            f"expected the key of {federation.site} in the hub's log, got another, or none; ask "
            "its administrator for panas deploy renew --site"
        )
    write_federation(folder, replace(federation, sites=log.sites))
    write_bytes(folder / LOG, b"".join(log.lines))
    return log.sites
