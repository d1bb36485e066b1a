"""Lets the sites of a hub.toml into its SuperLink, by Flower's command line.

Those that it names no more are let out, and a site with a new key is let in by that alone. A
SuperLink keeps what it knows in memory, so this is done at every start. Which node is which site is
noted in `nodes.json` beside Flower's files, and which key each has in `keys/`.
"""

from dprbft.engines.deploy.settings import NODES, Hub
from dprbft.engines.flower.link import Deployed
from dprbft.secure_sum.identity import ssh_public
from panas.runtime.store import read_bytes, read_json, write_bytes, write_json


def link_of(hub: Hub) -> Deployed:
    """The SuperLink of a hub, as this machine reaches it."""
    return Deployed(hub.home, hub.local_address, hub.ca, hub.keys)


def register(hub: Hub) -> None:
    """Let the SuperLink know the keys of all sites, and no others; PanasError if it refuses one."""
    link, path = link_of(hub), hub.home / NODES
    nodes = {n: str(node) for n, node in read_json(path).items()} if path.is_file() else {}
    files = {name: hub.home / "keys" / f"{name}.pub" for name in (*nodes, *hub.keys)}
    keys = {name: ssh_public(key) for name, key in hub.keys.items()}
    link.open()
    known = {n: read_bytes(files[n]) if files[n].is_file() else b"" for n in nodes}
    for name in [n for n in nodes if known[n] != keys.get(n)]:
        link.flwr("supernode", "unregister", nodes.pop(name), "hub")
        write_json(path, nodes)
    for name in [name for name in keys if name not in nodes]:
        write_bytes(files[name], keys[name])
        answer = link.flwr("supernode", "register", str(files[name]), "hub", "--name", name)
        nodes[name] = str(answer["node-id"])
    write_json(path, nodes)
