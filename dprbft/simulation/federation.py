"""A simulated federation: one data set, shared out over sites under the run's directory.

Loading is a pure function of the configuration. Once its sites are made, a simulation is a run of
sites like any other: each process loads the samples of its own site.
"""

import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dprbft.config.schema import RunConfig
from dprbft.paths import SitePaths, settings_file, sites_folder
from dprbft.simulation.partition import Partition, partition, partition_whole
from dprbft.site.data import SiteData, divided, is_of_one_class, warn_of_one_class, write_samples
from dprbft.site.directory import SiteSettings, allowed_releases, write_site
from panas.data.facts import Facts
from panas.data.load import Source, load
from panas.data.samples import Samples
from panas.features.encoders.files import absolute, load_encoder
from panas.runtime.seeds import stream

SAMPLES = "samples.safetensors"
NAME = "client-{:03d}"


@dataclass(frozen=True)
class Federation:
    """All sites of a simulated federation, and the public samples that everyone may see."""

    clients: tuple[SiteData, ...]
    public: Samples
    facts: Facts
    shares: tuple[Samples, ...]  # what each site has in all
    keys: tuple[bytes, ...]  # of their splits


def load_federation(config: RunConfig) -> Federation:
    """Load and share out the data set of a configuration; cached for the last configuration."""
    return _load(config.model_dump_json())


@lru_cache(maxsize=1)
def _load(text: str) -> Federation:
    config = RunConfig.model_validate_json(text)
    f = config.federation
    encoder = config.network.encoder
    source = load(
        config.data.source,
        stream(config.seed, "data"),
        f.classes,
        encoder=load_encoder(encoder).facts if encoder else None,
    )
    how = Partition(
        kind="natural" if config.data.source.client_column else f.partition,
        clients=f.clients,
        alpha=f.alpha,
        classes_per_client=f.classes_per_client,
        minimum=f.min_samples,
    )
    shares = _shares(source, how, stream(config.seed, "partition"))
    keys = tuple(stream(config.seed, "client", i, "split").bytes(32) for i in range(f.clients))
    clients = tuple(
        divided(i, NAME.format(i), share, key, config)
        for i, (share, key) in enumerate(zip(shares, keys, strict=True))
    )
    of_one = [NAME.format(i) for i, share in enumerate(shares) if is_of_one_class(share)]
    warn_of_one_class(of_one, source.facts)
    return Federation(clients, source.public, source.facts, shares, keys)


def _shares(source: Source, how: Partition, rng: np.random.Generator) -> tuple[Samples, ...]:
    """What each site has; a privacy unit is at one of them, unless the site column says else.

    Where it does, a warning says so: every site's budget holds by itself.
    """
    pool = source.private
    if pool.groups is None or source.clients is not None:
        parts = partition(pool.y.numpy(), how, rng, source.clients)
    else:
        parts = partition_whole(pool.y.numpy(), pool.groups.numpy(), how, rng)
    shares = tuple(pool.take(part) for part in parts)
    if pool.groups is not None and sum(share.units for share in shares) > pool.units:
        warnings.warn(
            "some groups have samples at more than one site: epsilon holds for each site by "
            "itself, and of such a group the epsilons add up",
            stacklevel=2,
        )
    return shares


def one_run_settings(config: RunConfig, i: int, *, name: str, data: str) -> SiteSettings:
    """Settings of a site that is made for a run: its lifetime budget is that of this run.

    Args:
        config: of the run.
        i: number of the site, from 0.
        name: of the site.
        data: path of its samples, from its folder.
    """
    budget, unprotected = config.budget(i), config.privacy.allow_unprotected
    releases = (*allowed_releases(unprotected=unprotected), *config.leaves)
    return SiteSettings(
        name=name,
        data=data,
        group=config.data.source.group,
        encoder=absolute(encoder, Path()) if (encoder := config.network.encoder) else None,
        epsilon=budget.epsilon,
        delta=budget.delta,
        releases=tuple(dict.fromkeys(releases)),
        allow_unprotected=unprotected,
    )


def make_sites(run: Path, config: RunConfig, federation: Federation) -> tuple[SitePaths, ...]:
    """Write a directory for each site.

    Args:
        run: the run's directory.
        config: of the run.
        federation: the sites' samples, and the keys of their splits.
    """
    sites = []
    for i, (share, key) in enumerate(zip(federation.shares, federation.keys, strict=True)):
        folder = sites_folder(run) / NAME.format(i)
        settings = one_run_settings(config, i, name=folder.name, data=SAMPLES)
        if not settings_file(folder).exists():
            write_samples(folder / SAMPLES, share)
            write_site(folder, settings, key=key)
        sites.append(SitePaths(i, settings.name, folder, "simulated"))
    return tuple(sites)
