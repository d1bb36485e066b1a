"""Connections from a site to its hub: through a proxy with a password, by IPv6, and directly."""

import contextlib
import re
from http.server import HTTPServer
from pathlib import Path

import pytest
from proxy import Proxy, hub_of, serving

from dprbft.engines.deploy.certificates import new_authority
from dprbft.engines.deploy.probe import greet, reach
from dprbft.engines.flower.hub import Unreachable, check_hub
from dprbft.engines.outward import without_proxy
from panas.runtime.errors import BadInput

NAME = "hub.example.org"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "all_proxy"])
def test_checks_go_through_the_proxy_of_the_environment(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    Proxy.asked = []
    with (
        serving(hub_of(new_authority(9), tmp_path, NAME)) as Proxy.hub,
        serving(HTTPServer(("127.0.0.1", 0), Proxy)) as port,
    ):
        monkeypatch.setenv(variable, f"http://north:secret@127.0.0.1:{port}")
        said = reach(f"{NAME}:8000")
        assert said == f"{NAME}:8000 answers through the proxy 127.0.0.1:{port}"
        assert greet(f"{NAME}:8000", tmp_path / "ca.crt").ahead is not None
        check_hub(f"{NAME}:8000", tmp_path / "ca.crt")
        # A middleman with a certificate of its own is none of the federation's.
        (tmp_path / "other.crt").write_bytes(new_authority(9).certificate)
        with pytest.raises(BadInput, match="does not hold here"):
            greet(f"{NAME}:8000", tmp_path / "other.crt")
    assert Proxy.asked == [(f"{NAME}:8000", True)] * 4


def test_a_proxy_that_refuses_is_named_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "ca.crt").write_bytes(new_authority(9).certificate)
    with serving(HTTPServer(("127.0.0.1", 0), Proxy)) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://north:wrong@127.0.0.1:{port}")
        with pytest.raises(BadInput, match=f"through the proxy 127.0.0.1:{port}, got .* 407") as e:
            reach(f"{NAME}:8000")
        assert "wrong" not in str(e.value)
        with pytest.raises(Unreachable, match="407") as e:
            check_hub(f"{NAME}:8000", tmp_path / "ca.crt")
        assert "wrong" not in str(e.value)


def test_this_machine_and_those_of_no_proxy_are_reached_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with serving(hub_of(new_authority(9), tmp_path, "localhost")) as port:
        check_hub(f"localhost:{port}", tmp_path / "ca.crt")
        with pytest.raises(BadInput, match=r"through the proxy 127\.0\.0\.1:1"):
            reach(f"{NAME}:{port}")
        monkeypatch.setenv("NO_PROXY", ".example.org, 10.0.0.1")
        with pytest.raises(BadInput) as e:
            reach(f"{NAME}:{port}")
        assert "proxy 127" not in str(e.value)
    assert without_proxy() == {"NO_PROXY": ".example.org, 10.0.0.1,localhost,127.0.0.1,::1"}


@pytest.mark.parametrize(
    "proxy",
    ["socks5://127.0.0.1:1", "http://north:secret/1@proxy:3128", "http://north:1234/s@proxy:3128"],
)
def test_a_proxy_that_is_none_is_one_line_without_its_password(
    proxy: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(BadInput, match="expected an HTTP proxy") as e:
        reach(f"{NAME}:8000")
    assert not re.search("secret|1234", str(e.value))


def test_an_ipv6_address_needs_no_proxy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(BadInput, match="IPv6"):
        reach("[2001:db8::1]:8000")


def test_no_proxy_for_all_stays_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_PROXY", "*")
    assert without_proxy() == {}


def test_a_hub_at_an_address_of_ipv6(tmp_path: Path):
    authority = new_authority(9)
    try:
        hub = hub_of(authority, tmp_path, "::1", at="::1")
    except OSError as e:
        pytest.skip(f"needs IPv6 on this machine: {e}")
    with serving(hub) as port:
        address = f"[::1]:{port}"
        assert reach(address) == f"{address} answers"
        assert greet(address, tmp_path / "ca.crt").certificate
        check_hub(address, tmp_path / "ca.crt")
        flwr = pytest.importorskip("flwr.supernode.fleet_http_client")
        made = flwr.FleetHttpClient.from_server_address(
            server_address=address,
            insecure=False,
            root_certificates=authority.certificate,
            interceptors=[],
        )
        with contextlib.closing(made) as client:
            assert client._client.get(f"https://{address}/health").status_code == 204
