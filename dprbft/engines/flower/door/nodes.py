"""The nodes of sites, as the SuperLink of this process knows them: keys, names, who is connected.

Flower's own state is asked and told directly, in the process that holds it: its command line would
start a process a key.
"""

import binascii
import datetime
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from panas.runtime.errors import BadInput


class Nodes:
    """The registered nodes.

    `app` is Flower's, whose state holds them; it is set once it is there.

    Args:
        gone: hears the number of each node that is let in no more, to close its connections.
    """

    def __init__(self, gone: Callable[[int], None] = lambda node: None) -> None:
        self.app: Any = None
        self.gone = gone
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

    def register(self, keys: Mapping[str, bytes]) -> None:
        """Let the holders of keys in, and no others; who is in by this name and key stays.

        BadInput for what is no key that Flower takes, or one that a node has, or has had.

        Args:
            keys: public ones (PEM), by the names of their sites.
        """
        from flwr.common.constant import (
            HEARTBEAT_DEFAULT_INTERVAL,
            NOOP_ACCOUNT_NAME,
            NOOP_FLWR_AID,
        )

        contents = {name: _content(name, key) for name, key in keys.items()}
        for info in self._registered():
            if contents.get(info.name) == info.public_key:
                del contents[info.name]
                continue
            self._state.delete_node(owner_aid=NOOP_FLWR_AID, node_id=info.node_id)
            self.behind.pop(int(info.node_id), None)
            self.gone(int(info.node_id))
        for name, content in contents.items():
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

    def has(self, parts: Iterable[str]) -> bool:
        """Whether all parts of a reply have come."""
        return all(self._state.object_store.get(part) for part in parts)

    def sign_off(self, node: int) -> None:
        """Take a node for gone, as it would say itself, so that it can connect anew."""
        self._state.deactivate_node(node)

    def _registered(self) -> list[Any]:
        """What Flower knows of each node that is let in."""
        from flwr.supercore.constant import NodeStatus

        infos = self._state.get_node_info()
        return [info for info in infos if info.status != NodeStatus.UNREGISTERED]

    def infos(self) -> dict[str, Any]:
        """What Flower knows of each node that is let in, by the name of its site."""
        return {info.name: info for info in self._registered()}

    def states(self) -> dict[str, str]:
        """Each site's state as Flower names it, "online" say."""
        return {name: str(info.status) for name, info in self.infos().items()}

    def skews(self) -> dict[str, float]:
        """Seconds by which each site's clock was behind at its last request, with the way of it."""
        ids = {int(info.node_id): name for name, info in self.infos().items()}
        return {ids[node]: age for node, age in dict(self.behind).items() if node in ids}


def _content(name: str, key: bytes) -> bytes:
    """A site's public key (PEM) in Flower's own form; BadInput if Flower takes none such."""
    from flwr.supercore.primitives.asymmetric import (
        bytes_to_public_key,
        public_key_to_bytes,
        uses_nist_ec_curve,
    )

    try:
        public = bytes_to_public_key(key)
        if not uses_nist_ec_curve(public):
            raise ValueError("another curve")
        return public_key_to_bytes(public)
    except (ValueError, TypeError) as e:
        raise _refused(name, e) from e


def _refused(name: str, error: Exception) -> BadInput:
    return BadInput(
        f"expected a key of site {name} that no other has, or has had, got one that Flower refuses "
        f"({error}); see hub.toml"
    )
