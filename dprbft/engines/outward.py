"""Connections from this machine to a hub: direct, or through the proxy that HTTPS_PROXY names.

The environment is read as Flower's client reads it (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`), but
this machine itself is always reached directly. Nothing here imports torch.
"""

import base64
import http.client
import ipaddress
import os
import ssl
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from panas.runtime.errors import BadInput

PATIENCE = 10.0
"""Seconds to wait for a hub's answer."""
KEY, LET_IN = "/panas/key", 204
"""What a site asks about its key, and the answer where the hub knows that."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is this machine's loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def parted(address: str) -> tuple[str, int]:
    """Host and port of an address; BadInput if it is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput(f"expected an address as hub.example.org:8000, got {address!r:.80}")
    return host.strip("[]"), int(port)


def connection(
    host: str, port: int, seconds: float, trust: ssl.SSLContext | None = None
) -> http.client.HTTPConnection:
    """A connection that is not open yet; `connect` raises OSError if a proxy refuses it.

    BadInput if the environment names a proxy that is not an HTTP one.

    Args:
        host: name or address, without brackets.
        port: of the hub.
        seconds: to wait for each answer.
        trust: whose certificates TLS accepts; None: no TLS.
    """
    proxy = _proxy(host)
    at = (proxy.hostname or "", proxy.port or 80) if proxy else (host, port)
    link = (
        http.client.HTTPSConnection(*at, timeout=seconds, context=trust)
        if trust
        else http.client.HTTPConnection(*at, timeout=seconds)
    )
    if proxy:
        link.set_tunnel(host, port, headers=_password(proxy))
    return link


def asked(
    address: tuple[str, int],
    authority: Path,
    what: tuple[str, str],
    headers: Mapping[str, str],
    most: int = 1 << 16,
) -> tuple[int, bytes]:
    """Status and content of an answer by TLS; OSError or HTTPException without one.

    Args:
        address: host and port.
        authority: file of the certificate (PEM) that vouches for the hub's.
        what: method and path.
        headers: of the request, which has no content.
        most: bytes of the content that are read.
    """
    trust = ssl.create_default_context(cafile=authority)
    with closing(connection(*address, PATIENCE, trust)) as link:
        link.request(*what, headers={**headers, "Connection": "close"})
        response = link.getresponse()
        return response.status, response.read(most)


def way_to(host: str) -> str:
    """How this machine reaches a host, as the end of a phrase: empty if directly."""
    proxy = _proxy(host)
    return f" through the proxy {proxy.hostname}:{proxy.port or 80}" if proxy else ""


def without_proxy() -> dict[str, str]:
    """Environment in which no program uses a proxy to reach this machine itself."""
    name = "no_proxy" if "no_proxy" in os.environ else "NO_PROXY"
    given = [part for part in os.environ.get(name, "").split(",") if part.strip()]
    if [part.strip() for part in given] == ["*"]:
        return {}
    return {name: ",".join([*given, *(host for host in LOOPBACK if host not in given)])}


def _proxy(host: str) -> SplitResult | None:
    proxies = getproxies_environment()
    text = proxies.get("https") or proxies.get("all")
    if not text or is_loopback(host) or proxy_bypass(host):
        return None
    proxy = urlsplit(text if "://" in text else f"http://{text}")
    try:
        whole = proxy.port != 0 and proxy.path in ("", "/") and not proxy.query + proxy.fragment
    except ValueError:
        whole = False
    if proxy.scheme != "http" or not proxy.hostname or not whole:
        raise BadInput(
            "expected an HTTP proxy as http://user:password@proxy:3128 in HTTPS_PROXY, with the "
            "password percent-encoded, got another address; set that, or name the hub in NO_PROXY"
        )
    if ":" in host:  # whom http.client of Python 3.11 asks a proxy for without brackets
        raise BadInput(
            "expected a hub's name where a proxy leads to it, got an IPv6 address; use a name, or "
            "put the address into NO_PROXY"
        )
    return proxy


def _password(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    given = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(given.encode()).decode()}"}
