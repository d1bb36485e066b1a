"""`python -m dprbft.engines.deploy.register DIR`: let the sites of a hub.toml into its SuperLink.

A SuperLink keeps what it knows in memory, so this is done at every start. Which node is which site
is noted in `nodes.json` beside Flower's files.
"""

import sys
from pathlib import Path

from dprbft.engines.deploy.settings import NODES, Hub, flower_hub
from dprbft.engines.flower.link import Deployed
from dprbft.secure_sum.identity import ssh_public
from panas.runtime.errors import PanasError
from panas.runtime.store import write_bytes, write_json


def link_of(hub: Hub) -> Deployed:
    """The SuperLink of a hub, as this machine reaches it."""
    return Deployed(hub.home, hub.local_address, hub.ca, hub.keys)


def register(hub: Hub) -> None:
    """Register the keys of all sites; PanasError if the SuperLink refuses one."""
    link, nodes = link_of(hub), dict[str, str]()
    link.open()
    for name, key in hub.keys.items():
        file = hub.home / "keys" / f"{name}.pub"
        write_bytes(file, ssh_public(key))
        answer = link.flwr("supernode", "register", str(file), "hub", "--name", name)
        nodes[name] = str(answer["node-id"])
    write_json(hub.home / NODES, nodes)


if __name__ == "__main__":
    try:
        register(flower_hub(Path(sys.argv[1])))
    except PanasError as e:
        sys.exit(f"panas: {e}")
