"""`federation.log.jsonl`: every change of a deployment, one signed line of JSON each.

A line has its number `n`, from 1, the time `at`, the `event`, the `site`, the `fingerprint` of its
key, the key itself where one comes in (`public`, PEM), the SHA-256 of the line before (`previous`,
64 zeros at first), and the authority's `signature` of all that. So a hub can neither change a line
nor add one; whoever holds `ca.key` can write another log, which a site notices that has seen lines
of this one. Nothing in it is secret, and nothing follows from data.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dprbft.engines.deploy.certificates import Pair, has_signed, signature_of
from dprbft.engines.deploy.keys import fingerprint
from dprbft.secure_sum.identity import ssh_public
from panas.runtime.errors import BadInput
from panas.runtime.store import append_bytes, read_bytes

LOG = "federation.log.jsonl"
FIRST = "0" * 64
HEAD = 32
"""Digits of a line's hash by which an owner names the log that was looked at."""

Event = Literal["added", "removed", "renewed", "certificate"]


@dataclass(frozen=True)
class Change:
    """What a line says. Of a certificate the site is ""."""

    event: Event
    site: str
    fingerprint: str
    public: str = ""  # PEM


@dataclass(frozen=True)
class Log:
    """Changes in order, and the lines that say so."""

    lines: tuple[bytes, ...] = ()  # each with its end
    changes: tuple[Change, ...] = ()

    @property
    def head(self) -> str:
        """SHA-256 of the last line."""
        return hashlib.sha256(self.lines[-1]).hexdigest() if self.lines else FIRST

    @property
    def sites(self) -> dict[str, bytes]:
        """The public key (PEM) of each site after all changes, in the order of their coming."""
        return sites_after(self.changes)

    def continues(self, earlier: "Log") -> bool:
        """Whether it is that log, and perhaps more."""
        return self.lines[: len(earlier.lines)] == earlier.lines

    def check_new(self, public: bytes) -> None:
        """BadInput for a key that any site has had: who held it before may hold it still."""
        for change in self.changes:
            if change.public and ssh_public(change.public.encode()) == ssh_public(public):
                raise BadInput(
                    f"expected a new key, got {change.fingerprint}, which {change.site} has, or "
                    "had; `panas deploy key --site DIR --new` makes another"
                )


def sites_after(changes: Sequence[Change]) -> dict[str, bytes]:
    """The public key (PEM) of each site after these changes; BadInput if they do not fit."""
    sites = dict[str, bytes]()
    for i, change in enumerate(changes, 1):
        if change.event != "certificate" and (change.event == "added") == (change.site in sites):
            raise BadInput(f"expected changes that follow each other, got another in line {i}")
        if change.event == "removed":
            del sites[change.site]
        elif change.public:
            sites[change.site] = change.public.encode()
    return sites


def change_of(event: Event, site: str, public: bytes) -> Change:
    """A change by which a site's key comes in, or goes.

    Args:
        event: what happens.
        site: its name.
        public: its key (PEM).
    """
    return Change(event, site, fingerprint(public), "" if event == "removed" else public.decode())


def read_log(path: Path, authority: bytes) -> Log:
    """The log in a file, without a line that was not written to its end; an empty one if there is
    none."""
    if not path.is_file():
        return Log()
    content = read_bytes(path)
    return parsed(content[: content.rfind(b"\n") + 1], authority, str(path))


def parsed(content: bytes, authority: bytes, origin: str) -> Log:
    """A log, every line of which the authority has signed; BadInput if it is none.

    Args:
        content: untrusted.
        authority: its certificate.
        origin: where it comes from, for the message.
    """
    *lines, rest = content.split(b"\n")
    previous, changes = FIRST, list[Change]()
    for n, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            signature = base64.b64decode(record.pop("signature"), validate=True)
            known = (record["n"], record["previous"]) == (n, previous)
            change = _change(record)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise _broken(origin, n) from e
        if not known or not has_signed(authority, _signed_part(record), signature):
            raise _broken(origin, n)
        changes.append(change)
        previous = hashlib.sha256(line + b"\n").hexdigest()
    if rest:
        raise _broken(origin, len(lines) + 1)
    sites_after(changes)
    return Log(tuple(line + b"\n" for line in lines), tuple(changes))


def extended(log: Log, authority: Pair, changes: Sequence[Change]) -> Log:
    """The log with further changes, now, signed by the authority.

    Args:
        log: so far.
        authority: certificate and key.
        changes: what comes after it.
    """
    sites_after([*log.changes, *changes])
    for change in changes:
        record = {
            "n": len(log.lines) + 1,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "event": change.event,
            "site": change.site,
            "fingerprint": change.fingerprint,
            **({"public": change.public} if change.public else {}),
            "previous": log.head,
        }
        signature = signature_of(authority, _signed_part(record))
        text = json.dumps(record | {"signature": base64.b64encode(signature).decode()})
        log = Log((*log.lines, f"{text}\n".encode()), (*log.changes, change))
    return log


def append(path: Path, log: Log, earlier: Log) -> None:
    """Append what has come to a log.

    Args:
        path: a file of the earlier lines.
        log: continues them.
        earlier: as it was read from there.
    """
    new = b"".join(log.lines[len(earlier.lines) :])
    append_bytes(path, new, at=sum(map(len, earlier.lines)))


def _change(record: Mapping[str, object]) -> Change:
    event, site, seen = record["event"], record["site"], record["fingerprint"]
    public = record.get("public", "")
    if event not in ("added", "removed", "renewed", "certificate"):
        raise ValueError("no event")
    if not (isinstance(site, str) and isinstance(seen, str) and isinstance(public, str)):
        raise TypeError("no text")
    if bool(public) != (event in ("added", "renewed")):
        raise ValueError("a key comes in, or none does")
    if public and fingerprint(public.encode()) != seen:
        raise ValueError("the fingerprint of another key")
    return Change(event, site, seen, public)


def _signed_part(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, sort_keys=True).encode()


def _broken(origin: str, n: int) -> BadInput:
    return BadInput(
        f"expected lines of the federation's log that its authority has signed, each after the one "
        f"before, got another in line {n} of {origin}; ask whoever holds ca.key"
    )
