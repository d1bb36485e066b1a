"""Flower's connection of a site, through an outgoing proxy that asks for a password."""

import contextlib
from http.server import HTTPServer
from pathlib import Path

import pytest
from proxy import Proxy, hub_of, serving

from dprbft.engines.deploy.certificates import new_authority

pytest.importorskip("flwr")


@pytest.mark.parametrize(("user", "passes"), [("north:secret@", True), ("", False)])
def test_a_connection_goes_through_the_proxy_of_the_environment(
    user: str, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import httpx
    from flwr.supernode.fleet_http_client import FleetHttpClient

    authority = new_authority(9)
    hub = hub_of(authority, tmp_path, "hub.example.org")
    Proxy.asked, proxy = [], HTTPServer(("127.0.0.1", 0), Proxy)
    with serving(hub) as Proxy.hub, serving(proxy) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{user}127.0.0.1:{port}")
        with contextlib.closing(
            FleetHttpClient.from_server_address(
                server_address="hub.example.org:8000",
                insecure=False,
                root_certificates=authority.certificate,
                interceptors=[],
            )
        ) as client:
            if passes:
                assert client._client.get("https://hub.example.org:8000/health").status_code == 204
            else:
                with pytest.raises(httpx.ProxyError, match="407"):
                    client._client.get("https://hub.example.org:8000/health")
    assert Proxy.asked == [("hub.example.org:8000", passes)]
