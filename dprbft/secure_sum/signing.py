"""A site's signatures in a secure sum: by its node key, which all other sites know."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from dprbft.messages import Hello, digest_of
from dprbft.secure_sum.identity import public_of, sign, ssh_public, verify
from dprbft.secure_sum.keys import Signing
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes

NODE_KEY, FEDERATION = "node.key", "federation.json"


def signing_of(folder: Path, names: Sequence[str], site: int, run: str, summed: str) -> Signing:
    """How a site of a run signs, and knows the signatures of the others.

    What is signed names `run`, `names` and `summed`: a hub could ask for a sum in several runs, or
    give all sites but one a map that is zero everywhere, so that the sum is the one's. Sites that
    were told different things refuse each other's keys, before anything of the data has left.

    BadInput if the site's folder has no keys, or the run calls it by another name.

    Args:
        folder: the site's, with its key and its own copy of `federation.json`, which has one key of
            each site, so that no hub can put in another.
        names: of all sites by number, as the hub has them.
        site: number of this one.
        run: name of the run.
        summed: digest of all else that decides what a summand is of (`summed_of`).
    """
    if not (folder / NODE_KEY).is_file() or not (folder / FEDERATION).is_file():
        raise BadInput(
            f"expected {NODE_KEY} and {FEDERATION} in {folder} for a secure sum between machines, "
            "found none; `panas deploy init` makes them, or set privacy.trust to server"
        )
    own, public = _known_sites(folder / FEDERATION)
    key = read_bytes(folder / NODE_KEY)
    if len(set(names)) < len(names) or not 0 <= site < len(names):
        raise BadInput("expected a name for each site of a secure sum, got others; ask the hub")
    if names[site] != own:
        raise BadInput(
            f"expected a run that knows this site as {own}, got {names[site]}; ask the "
            "hub's administrator"
        )

    context = hashlib.sha256(json.dumps([run, summed, *names]).encode()).digest()

    def known(number: int, content: bytes, signature: bytes) -> bool:
        name = names[number] if 0 <= number < len(names) else ""
        return name in public and verify(public[name], context + content, signature)

    return Signing(lambda content: sign(key, context + content), known)


def summed_of(hello: Hello) -> str:
    """Digest of what a run told a site that decides its summand: settings, facts and the map.

    The noise, its grid and who takes part are in the plan, which names the sum's session.
    """
    parts = [hello.config, hello.facts, digest_of(read_bytes(Path(hello.map))) if hello.map else ""]
    return digest_of(json.dumps(parts).encode())


def check_own_key(folder: Path) -> None:
    """Refuse a site's `node.key` that is no key, or not the one in its `federation.json`."""
    own = public_of(read_bytes(folder / NODE_KEY))
    if (folder / FEDERATION).is_file():
        name, public = _known_sites(folder / FEDERATION)
        if name not in public or ssh_public(public[name]) != ssh_public(own):
            raise BadInput(
                f"expected {NODE_KEY} to be the key of {name} in {FEDERATION}, got another; copy "
                "both anew from where they were made"
            )


def _known_sites(path: Path) -> tuple[str, dict[str, bytes]]:
    """This site's name, and the public keys of all by name; BadInput where two share a key."""
    try:
        record = json.loads(read_bytes(path))
        own, sites = str(record["site"]), record["sites"]
        public = {str(name): str(key).encode() for name, key in sites.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise BadInput(
            f"expected names and keys of sites in {path}, got others; copy it anew"
        ) from e
    if len({ssh_public(key) for key in public.values()}) < len(public):
        raise BadInput(f"{path}: expected a key for each site, got one twice; make new ones")
    return own, public
