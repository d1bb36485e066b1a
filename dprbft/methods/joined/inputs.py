"""What a site's networks learn from, and what they read of it: pictures, or maps of a trunk.

A small network learns little from a few thousand pictures. Where the run has an encoder whose
first layers can be read (`panas.features.encoders.layers`), the networks of all sites begin with
these, its trunk. The search, the students and what they are taught then see its maps alone. The
trunk and its maps of public samples are made once, in the common folder.

Privacy: a trunk is scaled by public samples. Maps of private samples are computed where they are
needed, and kept nowhere.
"""

import hashlib
import json
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median

import torch

from dprbft.config.sections import Search
from dprbft.site.directory import read_site
from dprbft.site.embeddings import encoder_file
from dprbft.site.results.records import TRUNK
from dprbft.site.search import Before
from dprbft.site.site import Site
from panas.architecture.cost import LayerCost
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts
from panas.data.samples import Samples, concat, digest
from panas.features.encoders.layers import BYTES, trunk_of
from panas.features.encoders.trunk import Trunk, restored
from panas.runtime.seeds import one_thread
from panas.runtime.store import exclusive, read_tensors, write_tensors

SHARE = 0.75  # of the limits on a network, that its trunk may take
SETTLED = 500  # public samples that scale the maps, at most
REPEATS = 7  # passes whose median counts as the latency


def learnt_from(site: Site) -> Samples:
    """Public samples, whose labels are not looked at, and those without any."""
    parts = [replace(part, groups=None, part=None) for part in (site.public, site.unlabelled)]
    return concat([part for part in parts if len(part)] or parts[:1])


def without_embeddings(samples: Samples) -> Samples:
    """The samples without what an encoder has made of them."""
    return replace(samples, embeddings=None, files=None)


@dataclass(frozen=True)
class Kept:
    """A trunk as it lies in the common folder."""

    trunk: Trunk
    milliseconds: float  # of one picture on one thread
    key: str  # stands for all that decides it


def trunk_for(site: Site) -> Kept | None:
    """The trunk of the site's networks; None where these read the samples themselves."""
    encoder, public = site.facts.encoder, learnt_from(site)
    if encoder is None or not site.config.has_networks or not len(public):
        return None
    most, search = _most_bytes(site.config.search), site.config.search
    decided = [encoder.to_json(), most, search.max_latency_ms, digest(public)]
    key = hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:32]
    path = site.common / f"trunk-{key}.safetensors"
    with exclusive(path):
        if not path.is_file():
            _make(site, path, public, most)
    return _read(path, key, path.stat().st_mtime_ns, str(site.device))


def _most_bytes(search: Search) -> int:
    """A parameter takes about a byte."""
    limits = [n for n in (search.max_bytes, search.max_parameters) if n is not None]
    return min([BYTES, *(int(SHARE * n) for n in limits)])


def _make(site: Site, path: Path, public: Samples, most: int) -> None:
    folder, encoder = site.paths.folder, site.facts.encoder
    assert encoder is not None
    trunk = trunk_of(encoder_file(folder, read_site(folder)), encoder, most)
    limit = site.config.search.max_latency_ms
    milliseconds = 0.0 if trunk is None else _latency(trunk)
    if trunk is None or (limit is not None and milliseconds > SHARE * limit):
        write_tensors(path, {}, {"trunk": "null"})
        return
    trunk.to(site.device).settle(public.take(range(min(SETTLED, len(public)))))
    about = json.dumps(trunk.to_json())
    weights = {name: t.cpu() for name, t in trunk.state_dict().items()}
    write_tensors(path, weights, {"trunk": about, "milliseconds": repr(milliseconds)})


def _latency(trunk: Trunk) -> float:
    x, times = torch.zeros(1, *trunk.facts.shape), list[float]()
    with one_thread(), torch.inference_mode():
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            trunk(x)
            times.append(time.perf_counter() - began)
    return 1000 * median(times[1:])


@lru_cache(maxsize=2)
def _read(path: Path, key: str, changed: int, device: str) -> Kept | None:
    weights, notes = read_tensors(path)
    about = json.loads(notes["trunk"])
    if about is None:
        return None
    return Kept(restored(about, weights).to(device), float(notes["milliseconds"]), key)


def network_spec(site: Site) -> NetworkSpec:
    """What the site's networks share: of what comes after the trunk, where they have one."""
    kept = trunk_for(site)
    return site.spec if kept is None else replace(site.spec, shape=kept.trunk.shape)


def before(site: Site) -> Before | None:
    """What a search is told of the trunk."""
    kept = trunk_for(site)
    if kept is None:
        return None
    t = kept.trunk
    return Before(
        spec=network_spec(site),
        layer=LayerCost(TRUNK, t.shape, t.parameters_held, t.macs(), t.bytes),
        milliseconds=kept.milliseconds,
    )


def network_facts(site: Site) -> Facts:
    """What is public of the samples, as the site's networks read them."""
    kept = trunk_for(site)
    return site.facts if kept is None else replace(site.facts, shape=kept.trunk.facts.shape)


def as_read(site: Site, public: Samples) -> Samples:
    """Public samples as networks read them, kept for all sites where that takes time."""
    kept = trunk_for(site)
    if kept is None:
        return without_embeddings(public)
    path = site.common / f"maps-{kept.key}-{digest(public)[:32]}.safetensors"
    with exclusive(path):
        if not path.is_file():
            write_tensors(path, {"x": kept.trunk.of(public)}, {})
        return replace(without_embeddings(public), x=read_tensors(path)[0]["x"])


def own_as_read(site: Site, own: Samples) -> Samples:
    """The site's own samples as networks read them; nothing is kept."""
    kept = trunk_for(site)
    without = without_embeddings(own)
    return without if kept is None else replace(without, x=kept.trunk.of(own))
