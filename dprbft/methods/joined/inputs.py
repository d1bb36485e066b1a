"""What a site's networks learn from, and what they read of it: pictures, or maps of a trunk.

A small network learns little from a few thousand pictures. Where the run has an encoder whose
first layers can be read (`panas.features.encoders.layers`), the networks of all sites begin with
these, its trunk. It is as deep as the limits on networks allow: that of milliseconds on the machine
that makes it. The search, the students and what they are taught then see its maps alone. The trunk
and its maps of public samples are made once, in the common folder.

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

from dprbft.config.schema import RunConfig
from dprbft.paths import search_file
from dprbft.site.directory import read_site
from dprbft.site.embeddings import check_encoder, encoder_file
from dprbft.site.results.records import TRUNK, SearchRecord
from dprbft.site.search import Before, search_space
from dprbft.site.site import Site, spec_of
from panas.architecture.cost import LayerCost
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts
from panas.data.samples import Samples, concat, digest
from panas.features.encoders.bits import BITS
from panas.features.encoders.layers import is_small, trunk_of
from panas.features.encoders.trunk import Trunk, restored
from panas.runtime.errors import BadInput
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
    key: str  # stands for what decides it, but for the run's data and measured latencies

    def of(self, samples: Samples, *, mirrored: bool = False) -> Samples:
        """Samples with maps in the place of pictures; `mirrored` as for `Trunk.of`."""
        return replace(without_embeddings(samples), x=self.trunk.of(samples, mirrored=mirrored))


def trunk_for(site: Site) -> Kept | None:
    """The trunk of the site's networks; None where these read the samples themselves."""
    encoder = site.facts.encoder
    if encoder is None or not site.config.has_networks or not _public(site):
        return None
    if search_file(site.home).is_file() and SearchRecord.read(site.home).trunk is None:
        return None  # it was searched without
    search = site.config.search
    decided = [encoder.to_json(), BITS, repr(search)]
    key = hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:32]
    path = site.common / f"trunk-{key}.safetensors"
    with exclusive(path):
        if not path.is_file():
            _make(site, path)
    return _read(path, key, path.stat().st_mtime_ns, str(site.device))


def _is_within(trunk: Trunk, config: RunConfig, facts: Facts) -> bool:
    """Whether a trunk keeps the limits on a network, and leaves room for a genome."""
    parameters = config.search.max_parameters
    if not is_small(trunk) or (parameters and trunk.parameters_held > SHARE * parameters):
        return False
    try:
        search_space(config, facts, None, _before(trunk, spec_of(config, facts), 0.0))
    except BadInput:
        return False
    return True


def _make(site: Site, path: Path) -> None:
    folder, encoder, config = site.paths.folder, site.facts.encoder, site.config
    assert encoder is not None
    settings = read_site(folder)
    check_encoder(folder, settings, site.facts)  # its file may have changed since the site joined
    limit, milliseconds = config.search.max_latency_ms, 0.0

    def is_within(trunk: Trunk) -> bool:
        nonlocal milliseconds
        if not _is_within(trunk, config, site.facts):
            return False
        milliseconds = _latency(trunk)
        return limit is None or milliseconds <= SHARE * limit

    trunk = trunk_of(encoder_file(folder, settings), encoder, is_within)
    if trunk is None:
        write_tensors(path, {}, {"trunk": "null"})
        return
    trunk.to(site.device).settle(learnt_from(site).take(range(min(SETTLED, _public(site)))))
    about = json.dumps(trunk.to_json())
    weights = {name: t.cpu() for name, t in trunk.packed().items()}
    write_tensors(path, weights, {"trunk": about, "milliseconds": repr(milliseconds)})


def _public(site: Site) -> int:
    return len(site.public) + len(site.unlabelled)


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
    """What a search has to know of the trunk."""
    kept = trunk_for(site)
    return None if kept is None else _before(kept.trunk, site.spec, kept.milliseconds)


def foreseen(config: RunConfig, facts: Facts, file: str) -> Before | None:
    """The same of a run that has not begun, for a forecast; latency is not measured.

    Args:
        config: of the run.
        facts: of its data, which have an encoder.
        file: of the encoder.
    """
    if facts.encoder is None or not config.has_networks:
        return None
    trunk = trunk_of(file, facts.encoder, lambda trunk: _is_within(trunk, config, facts))
    return None if trunk is None else _before(trunk, spec_of(config, facts), 0.0)


def _before(trunk: Trunk, spec: NetworkSpec, milliseconds: float) -> Before:
    held, macs = trunk.parameters_held, trunk.macs()
    layer = LayerCost(TRUNK, trunk.shape, held, macs, trunk.bytes)
    return Before(replace(spec, shape=trunk.shape), layer, milliseconds)


def as_read(site: Site, public: Samples, *, mirrored: bool = False) -> Samples:
    """Public samples as networks read them, kept for all sites where that takes time.

    Args:
        site: whose networks read them.
        public: the samples.
        mirrored: left and right change places, where there is a trunk.
    """
    kept = trunk_for(site)
    if kept is None:
        return without_embeddings(public)
    name = f"maps-{kept.key}-{digest(public)[:32]}{'-mirrored' * mirrored}"
    path = site.common / f"{name}.safetensors"
    with exclusive(path):
        if not path.is_file():
            write_tensors(path, {"x": kept.of(public, mirrored=mirrored).x}, {})
        return replace(without_embeddings(public), x=read_tensors(path)[0]["x"])


def own_as_read(site: Site, own: Samples) -> Samples:
    """The site's own samples as networks read them; nothing is kept."""
    kept = trunk_for(site)
    return without_embeddings(own) if kept is None else kept.of(own)
