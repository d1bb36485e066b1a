"""What a machine sees of a hub from outside: whether it answers, its certificate, its clock.

One connection out, by TLS, that trusts the federation's authority alone; one request without
content. Of a site its public key goes along, where it asks whether the hub knows that, with the
time, signed. Nothing here imports torch.
"""

import http.client
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import cast

from dprbft.engines.outward import KEY, LET_IN, PATIENCE, asked, connection, parted, way_to
from dprbft.secure_sum.identity import flower_headers
from panas.runtime.errors import BadInput

HISTORY, CONTROL = "/panas/log", "/v1/control/list-runs"
TOLD, REFUSED, FORBIDDEN, NONE = 200, 401, 403, 404
LONGEST_LOG = 1 << 26
"""Bytes of a federation's log, at most."""
AHEAD, BEHIND = 4.0, 300.0
"""Seconds by which a site's clock may differ from the hub's: Flower refuses other signatures."""


@dataclass(frozen=True)
class Seen:
    """A hub's certificate (DER), and by how many seconds this clock is ahead of its own; None if
    it does not say."""

    certificate: bytes
    ahead: float | None


def reach(address: str) -> str:
    """That it answers; BadInput if nobody listens there, or the name means no machine."""
    host, port = parted(address)
    try:
        with closing(connection(host, port, PATIENCE)) as link:
            link.connect()
            return f"{address} answers{way_to(host)}"
    except socket.gaierror as e:
        raise BadInput(
            f"expected {host}{way_to(host)} to be known to this machine's name service, got "
            f"{e.strerror}; ask whoever runs the network, or see that the name is right"
        ) from e
    except TimeoutError as e:
        raise BadInput(
            f"expected an answer of {address}{way_to(host)} within {PATIENCE:g} s, got none; let "
            f"connections out to port {port} through the firewall"
        ) from e
    except OSError as e:
        raise BadInput(
            f"expected a hub at {address}{way_to(host)}, got {e.strerror or e}; see with its "
            "administrator that it has been started, and that a proxy lets this machine through"
        ) from e


def greet(address: str, authority: Path) -> Seen:
    """What the hub shows by TLS; BadInput if its certificate is not one of this federation."""
    host, port = parted(address)
    try:
        trust = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as e:
        raise BadInput(f"expected a certificate in {authority}, got none; copy it anew") from e
    link = connection(host, port, PATIENCE, trust)
    try:
        with closing(link):
            link.connect()
            certificate = cast(ssl.SSLSocket, link.sock).getpeercert(binary_form=True) or b""
            return Seen(certificate, _ahead(link))
    except ssl.SSLCertVerificationError as e:
        raise BadInput(
            f"expected a certificate for {host} that {authority.name} vouches for, got one that "
            f"does not hold here ({e.verify_message}); ask the hub's administrator, and look at "
            "this machine's clock"
        ) from e
    except (OSError, http.client.HTTPException) as e:
        raise BadInput(
            f"expected TLS at {address}, got another answer ({type(e).__name__}); see that the "
            "address is that of the hub"
        ) from e


def check_clock(seen: Seen) -> str:
    """How this clock compares to the hub's; BadInput if it is too far off."""
    if seen.ahead is None:
        return "the hub does not tell the time"
    if not -BEHIND < seen.ahead < AHEAD:
        way = "ahead of" if seen.ahead > 0 else "behind"
        raise BadInput(
            f"expected a clock at most {AHEAD:g} s ahead of the hub's and {BEHIND:g} s behind, got "
            f"{abs(seen.ahead):.0f} s {way} it; set this machine's clock by NTP"
        )
    return f"within {abs(seen.ahead) + 1:.0f} s of the hub's"


def ask_key(address: str, authority: Path, private: bytes) -> str:
    """That the hub lets the holder of this key in; BadInput if it does not, or cannot say.

    Args:
        address: of the hub, HOST:PORT.
        authority: file of the federation's certificate (PEM).
        private: the site's private key, which signs the request.
    """
    headers = flower_headers(private, datetime.now(UTC).isoformat())
    status, _ = _ask(address, authority, ("GET", KEY), headers)
    if status == LET_IN:
        return "the hub knows this site's key"
    if status == REFUSED:
        raise BadInput(
            f"expected the hub {address} to know this site's key, got a refusal; ask its "
            "administrator to let it in by panas deploy add, or renew --site"
        )
    raise BadInput(
        f"expected the hub {address} to say whether it knows this site's key, got status {status}; "
        "ask its administrator to install the same version of panas"
    )


def ask_control(address: str, authority: Path) -> str:
    """That runs cannot be started through the port that sites reach, from this machine or by way of
    it; BadInput if they can."""
    headers = {"Content-Type": "application/protobuf"}
    status, _ = _ask(address, authority, ("POST", CONTROL), headers)
    if status != FORBIDDEN:
        raise BadInput(
            f"expected {address} to start no runs, got status {status} where it should refuse "
            f"({FORBIDDEN}); start the hub with `panas deploy start --hub`, not by Flower's command"
        )
    return f"{address} starts no runs, whoever asks"


def ask_log(address: str, authority: Path, private: bytes) -> bytes | None:
    """The federation's log, as the hub has it, not looked at; None where it has none.

    Args:
        address: of the hub, HOST:PORT.
        authority: file of the federation's certificate (PEM).
        private: the site's private key, which signs the request.
    """
    headers = flower_headers(private, datetime.now(UTC).isoformat())
    status, content = _ask(address, authority, ("GET", HISTORY), headers)
    if status not in (TOLD, NONE) or len(content) > LONGEST_LOG:
        raise BadInput(
            f"expected the hub {address} to show the federation's log, got status {status}; see "
            "that it knows this site's key, by panas deploy check"
        )
    return content if status == TOLD else None


def _ask(
    address: str, authority: Path, what: tuple[str, str], headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Status and content of a hub's answer to a request without content; BadInput without one."""
    try:
        return asked(parted(address), authority, what, headers, LONGEST_LOG + 1)
    except (OSError, http.client.HTTPException) as e:
        raise BadInput(
            f"expected an answer of {address}, got none ({type(e).__name__}); see with its "
            "administrator that it has been started"
        ) from e


def _ahead(link: http.client.HTTPConnection) -> float | None:
    before = datetime.now(UTC)
    link.request("HEAD", "/health", headers={"Connection": "close"})
    date = link.getresponse().headers.get("Date")
    after = datetime.now(UTC)
    try:
        then = parsedate_to_datetime(date) if date else None
    except ValueError:
        return None
    # A second is cut off there; half of the way is not known here.
    return (before + (after - before) / 2 - then).total_seconds() - 0.5 if then else None
