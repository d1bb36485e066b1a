"""Lets the sites of a hub.toml, and no others, into its SuperLink.

A SuperLink keeps what it knows in memory, so this is done at every start. That it was done is noted
in `nodes.json` beside Flower's files.
"""

from dprbft.engines.deploy.settings import NODES, Hub
from dprbft.engines.flower.door import control
from dprbft.engines.flower.link import Deployed
from panas.runtime.store import write_json


def link_of(hub: Hub) -> Deployed:
    """The SuperLink of a hub, as this machine reaches it."""
    return Deployed(hub.home, hub.local_address, hub.ca, hub.keys)


def register(hub: Hub) -> None:
    """Let the SuperLink know the keys of all sites, and no others; PanasError if it refuses one."""
    control.register(hub.home, hub.keys)
    write_json(hub.home / NODES, {"sites": sorted(hub.keys)})
