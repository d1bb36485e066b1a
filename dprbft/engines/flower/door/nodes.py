"""The nodes of sites, as the SuperLink of this process knows them: keys, names, who is connected.

Flower's own state is asked and told directly, in the process that holds it: its command line would
start a process a key.
"""

import binascii
import datetime
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from panas.runtime.errors import BadInput


class Nodes:
    """The registered nodes.

    `app` is Flower's, whose state holds them; it is set once it is there.
    """

    def __init__(self) -> None:
        self.app: Any = None
        self.behind = dict[int, float]()  # seconds by which a node's clock was, at its last request

    @property
    def _state(self) -> Any:
        return self.app.state.linkstate_factory.state()

    def node_of(self, headers: Mapping[str, str]) -> int | None:
        """Which registered node has signed a request, by its headers, as Flower itself checks it;
        None for nobody's."""
        from flwr.common.constant import (
            SYSTEM_TIME_TOLERANCE,
            TIMESTAMP_HEADER,
            TIMESTAMP_TOLERANCE,
        )
        from flwr.supercore.constant import (
            FLEET_HTTP_PUBLIC_KEY_HEADER,
            FLEET_HTTP_SIGNATURE_HEADER,
        )
        from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

        with suppress(KeyError, ValueError, TypeError, binascii.Error):
            key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
            signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
            at = headers[TIMESTAMP_HEADER]
            now = datetime.datetime.now(datetime.UTC)
            age = (now - datetime.datetime.fromisoformat(at)).total_seconds()
            node = self._state.get_node_id_by_public_key(key)
            if (
                node is not None
                and -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
                and verify_signature(bytes_to_public_key(key), at.encode("ascii"), signature)
            ):
                self.behind[int(node)] = age
                return int(node)
        return None

    def register(self, keys: Mapping[str, bytes]) -> list[int]:
        """Let the holders of these keys in, and nobody else; returns the nodes that it lets out.

        BadInput for what is no key that Flower takes, or one that it has had before.

        Args:
            keys: public ones (PEM), by the names of their sites.
        """
        from flwr.common.constant import (
            HEARTBEAT_DEFAULT_INTERVAL,
            NOOP_ACCOUNT_NAME,
            NOOP_FLWR_AID,
        )
        from flwr.supercore.primitives.asymmetric import (
            bytes_to_public_key,
            public_key_to_bytes,
            uses_nist_ec_curve,
        )

        wanted = dict[str, bytes]()
        for name, text in keys.items():
            try:
                key = bytes_to_public_key(text)
                if not uses_nist_ec_curve(key):
                    raise ValueError("another curve")
                wanted[name] = public_key_to_bytes(key)
            except (ValueError, TypeError) as e:
                raise _refused(name, e) from e
        known, out = self.infos(), list[int]()
        for name, info in known.items():
            if wanted.get(name) != info.public_key:
                with suppress(TypeError):  # Flower, of a node that was never connected; it is out
                    self._state.delete_node(NOOP_FLWR_AID, info.node_id)
                out.append(int(info.node_id))
            else:
                del wanted[name]
        for name, content in wanted.items():
            try:
                self._state.create_node(
                    owner_aid=NOOP_FLWR_AID,
                    owner_name=NOOP_ACCOUNT_NAME,
                    public_key=content,
                    heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL,
                    name=name,
                )
            except ValueError as e:
                raise _refused(name, e) from e
        return out

    def infos(self) -> dict[str, Any]:
        """What Flower knows of each node that is let in, by the name of its site."""
        nodes = self._state.get_node_info()
        return {info.name: info for info in nodes if info.status != "unregistered"}

    def states(self) -> dict[str, str]:
        """Each site's state as Flower names it, "online" say."""
        return {name: str(info.status) for name, info in self.infos().items()}

    def skews(self) -> dict[str, float]:
        """Seconds by which each site's clock was behind at its last request, with the way of it."""
        ids = {int(info.node_id): name for name, info in self.infos().items()}
        return {ids[node]: age for node, age in dict(self.behind).items() if node in ids}


def _refused(site: str, error: Exception) -> BadInput:
    return BadInput(
        f"expected a key of site {site} that no other has, got one that Flower refuses ({error}); "
        "see hub.toml"
    )
