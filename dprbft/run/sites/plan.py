"""The sites of a run: made by a simulation or for files, or found where their owners keep them.

What is public of their data, the `Facts`, comes from public data, or from what the owners declare.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import UInt64

from dprbft.config.map_width import width_of_map
from dprbft.config.schema import RunConfig
from dprbft.paths import (
    SitePaths,
    declared_file,
    embeddings_folder,
    facts_file,
    map_file,
    public_file,
    settings_file,
    sites_folder,
    unlabelled_file,
    write_remote,
    write_sites,
)
from dprbft.run.sites.vectors import take_planned
from dprbft.simulation.federation import NAME, load_federation, make_sites, one_run_settings
from dprbft.site.data import is_of_one_class, warn_of_one_class, write_samples
from dprbft.site.directory import read_site, write_site
from dprbft.site.embeddings import encoder_file, noted
from panas.data.facts import Facts, fit, given_facts, infer
from panas.data.files.pictures import FINE, USUAL
from panas.data.files.raw import Raw
from panas.data.load import (
    CALLED,
    REPEATED,
    check_disjoint,
    load_unlabelled,
    without_labels,
)
from panas.data.remarks import of_classes, of_limit, of_scale, remarks
from panas.data.samples import Samples, concat, value_hashes
from panas.data.sources import Reading, identity, read, reading_of
from panas.data.splits import stratified
from panas.features.encoders.cache import with_embeddings
from panas.features.encoders.files import deferred, load_encoder
from panas.features.map import common_map, write_map
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.runtime.store import read_json, write_json

SCALE = "take it from public rows (data.public_fraction, data.public_data), or give data.ranges"
SCALE_OF_SITES = "with `panas site declare DIR --public-data FILE` owners take it from public rows"
REMEDY = "bring the data to one form, or leave that site out"


def declared_facts(paths: SitePaths) -> Facts:
    """What a site's owner declares of its data."""
    path = declared_file(paths.folder)
    if not path.is_file():
        raise BadInput(
            f"expected {path.name} at site {paths.name}, found none; `panas site init` writes it"
        )
    return Facts.from_json(read_json(path))


def shared(
    config: RunConfig, declared: Mapping[str, Facts], labels: Collection[str] = ()
) -> tuple[Facts, Samples]:
    """The federation's facts and its public samples.

    What sites declare, by name, makes the facts, and public data are brought to them; without sites
    that declare any, all public data make the facts. Those that are kept are the public samples.

    Args:
        config: of the run.
        declared: the facts of sites that declare them, by name.
        labels: what these call their label column; so public rows may call theirs.
    """
    facts, public = _declared(config, declared, labels) if declared else _of_public(config)
    remedy = SCALE_OF_SITES if config.federation.sites else SCALE
    for note in (*of_classes(facts.class_names), *of_scale(facts, remedy)):
        warnings.warn(note, stacklevel=2)
    return facts, public


def _of_public(config: RunConfig) -> tuple[Facts, Samples]:
    """Facts and public samples of sites that declare none."""
    source, classes = config.data.source, config.federation.classes
    assert source.public_data is not None
    usual = FINE if config.network.encoder else USUAL
    raw = _public(config, replace(source.public_reading, usual=usual))
    facts = infer(raw, public=raw, classes=classes, ranges=source.ranges, bits=source.bits)
    facts = encoded_facts(config, facts)
    return facts, _kept_public(raw, facts, config)


def _declared(
    config: RunConfig, declared: Mapping[str, Facts], labels: Collection[str]
) -> tuple[Facts, Samples]:
    """The same of sites that declare their facts; a site is asked nothing that it does not."""
    source, classes = config.data.source, config.federation.classes
    (of, first), *others = declared.items()
    for name, facts in others:
        if different := first.differs_from(facts):
            raise BadInput(f"expected facts of {name} as of {of}, got {different}; {REMEDY}")
    _check_classes(declared)
    if source.public_data is None:
        whole = replace(first, class_names=classes or _union(declared.values()))
        whole = encoded_facts(config, whole)
        return whole, whole.no_samples()
    table = source.public_reading.table
    table = replace(table, usual=tuple(dict.fromkeys((*table.usual, *labels))))
    raw = _public(config, reading_of(first, table))
    names = [*raw.class_names, *_union(declared.values())]
    whole = replace(first, class_names=classes or tuple(dict.fromkeys(names)))
    whole = encoded_facts(config, whole)
    return whole, _kept_public(raw, whole, config)


def _public(config: RunConfig, how: Reading) -> Raw:
    """Public data as they are, with remarks on them for whoever runs."""
    assert config.data.source.public_data is not None
    raw = read(config.data.source.public_data, how)
    for note in (*raw.notes, *remarks(raw)):
        warnings.warn(f"public data: {note}", stacklevel=2)
    return raw


def _kept_public(raw: Raw, facts: Facts, config: RunConfig) -> Samples:
    """The samples of public data that a run keeps: at most `data.public_limit`, drawn by class.

    The draw is that of a simulation with the same public data (`panas.data.load.load`).
    """
    samples, most = fit(raw, facts, "public data"), config.data.source.public_limit
    for note in of_limit(len(samples), most):
        warnings.warn(note, stacklevel=2)
    if len(samples) <= most:
        return samples
    return samples.take(stratified(raw.y, most, stream(config.seed, "data")))


def _union(declared: Iterable[Facts]) -> tuple[str, ...]:
    """All classes that are declared, in order."""
    return tuple(sorted({c for facts in declared for c in facts.class_names}))


def _check_classes(declared: Mapping[str, Facts]) -> None:
    """Refuse a site that shares no class with any other."""
    for name, facts in declared.items():
        others = {c for other, f in declared.items() if other != name for c in f.class_names}
        if others and not others & set(facts.class_names):
            raise BadInput(
                f"expected classes of {name} that another site has too, got none; name them alike, "
                "leave that site out, or declare all in federation.classes"
            )


def tell_of_overlap(values: Mapping[str, UInt64[np.ndarray, "_"]], *, strict: bool) -> None:
    """Warn where a site has samples of an earlier one; with `strict`, BadInput.

    `values` are the numbers of each site's samples by their values (`panas.data.samples`), by the
    site's name. Where more than a twentieth of a site's own samples repeat, as rows of few columns
    do, equal ones may belong to different people, and the site is left out.
    """
    first: dict[int, str] = {}
    for name, own in values.items():
        numbers = own.tolist()
        if len(own) - len(set(numbers)) > REPEATED * len(own):
            continue
        repeated = Counter(first[number] for number in numbers if number in first)
        for other, count in repeated.items():
            if strict:
                raise BadInput(
                    f"expected samples that one site alone has, as privacy.strict asks, got "
                    f"{count} of {name} that {other} has too; take them out of one of the two"
                )
            be = "sample is" if count == 1 else "samples are"
            warnings.warn(
                f"{count} of {name}'s {be} also {other}'s: what is promised for them is both "
                "sites' budgets together",
                stacklevel=2,
            )
        first = dict.fromkeys(numbers, name) | first


@dataclass(frozen=True)
class SitesPlan:
    """The sites of a new run, of which nothing is written yet."""

    config: RunConfig
    facts: Facts
    public: Samples
    unlabelled: Samples  # public ones without labels
    make: Callable[[], tuple[SitePaths, ...]]  # where there are some already, keeps them
    samples: int | None = None  # training samples of a site, about, where they are public
    encoder: str | None = None  # file that encodes public samples, where the facts have one

    def write(self, run: Path, device: str = "cpu") -> None:
        """Make the sites, and note where they are; that comes last, so that a kill is made good.

        Args:
            run: the run's directory.
            device: that public samples are encoded on.
        """
        sites, parts = self.make(), (self.public, self.unlabelled)
        if self.facts.encoder is not None:
            take_planned(run, parts)
        public, unlabelled = (self._encoded(part, run, device) for part in parts)
        if len(public):
            write_samples(public_file(run), public)
        if len(unlabelled):
            write_samples(unlabelled_file(run), unlabelled)
        if self.config.federation.family.has_map:
            width = width_of_map(self.config, self.facts, len(self.public), self.samples)
            feature_map = common_map(self.facts, public, unlabelled, width)
            write_map(map_file(run), feature_map)
        write_json(facts_file(run), self.facts.to_json())
        if self.config.federation.remote:
            write_remote(run, self.config.federation.remote)
        else:
            write_sites(run, sites)

    def _encoded(self, samples: Samples, run: Path, device: str) -> Samples:
        """Public samples with their vectors, where the run has an encoder."""
        if self.facts.encoder is None or not len(samples):
            return samples
        if self.encoder is None:
            raise BadInput(
                f"expected the file of the encoder {self.facts.encoder.name} for public samples, "
                "got none; give network.encoder (--encoder FILE)"
            )
        place = embeddings_folder(run)
        encoder = deferred(self.encoder, self.facts.encoder, device)
        with noted(place) as note:
            return replace(with_embeddings(samples, encoder, place, note), files=None)


def encoded_facts(config: RunConfig, facts: Facts) -> Facts:
    """Facts with the encoder of the settings; BadInput if sites declare another, or none."""
    if config.network.encoder is None:
        return facts
    encoder = load_encoder(config.network.encoder).facts
    if config.federation.sites or config.federation.facts:
        own = facts.encoder
        if different := encoder.differs_from(own):
            raise BadInput(
                f"expected sites that declare the encoder {encoder.name} (SHA-256 "
                f"{encoder.digest}...), got {different}; `panas site declare` declares it"
            )
    return replace(facts, encoder=encoder)


def plan_sites(run: Path, config: RunConfig) -> SitesPlan:
    """Load what a new run's sites come from, and check it."""
    f = config.federation
    plans = {f.remote: _plan_of_remote, f.sites: _plan_of_sites, f.client_data: _plan_of_files}
    plan = next((plan for names, plan in plans.items() if names), _plan_of_simulation)
    result = plan(run, config)
    return replace(result, encoder=config.network.encoder or result.encoder)


def _plan_of_remote(run: Path, config: RunConfig) -> SitesPlan:
    """Sites elsewhere: what is public comes from public data, or from what they declare."""
    source, path = config.data.source, config.federation.facts
    if path is None:
        if source.public_data is None:
            raise BadInput(
                "expected public data or declared facts of sites elsewhere, got neither; give "
                "--public-data, or --facts with the facts.json of one of them"
            )
        facts, public = shared(config, {})
    else:
        if not Path(path).is_file():
            raise BadInput(f"expected declared facts at {path}, found none; check --facts")
        facts = given_facts(Path(path))
        facts = replace(facts, class_names=config.federation.classes or facts.class_names)
        facts = encoded_facts(config, facts)
        public = facts.no_samples()
        if source.public_data is not None:
            how = reading_of(facts, source.public_reading.table)
            public = _kept_public(read(source.public_data, how), facts, config)
    return SitesPlan(config, facts, *_parts(config, facts, public), tuple)


def _plan_of_sites(run: Path, config: RunConfig) -> SitesPlan:
    sites, source = _sites(run, config.federation.sites), config.data.source
    if source.ranges or source.bits:
        raise BadInput(
            "expected no data.ranges and no data.bits for sites that declare their facts, got "
            "some; their owners give them (panas site init --range, --bits)"
        )
    labels = [label for paths in sites if (label := read_site(paths.folder).label)]
    facts, public = shared(config, {p.name: declared_facts(p) for p in sites}, labels)
    first, settings = sites[0].folder, read_site(sites[0].folder)
    encoder = encoder_file(first, settings) if facts.encoder else None
    return SitesPlan(config, facts, *_parts(config, facts, public), lambda: sites, encoder=encoder)


def _plan_of_files(run: Path, config: RunConfig) -> SitesPlan:
    files = config.federation.client_data
    names, source = names_of(files), config.data.source
    own_paths = [identity(path) for path in files]
    if twice := next((path for path in own_paths if own_paths.count(path) > 1), None):
        raise BadInput(
            f"expected a file or folder of its own for each site, got {twice} twice, whose "
            "samples would be charged to two budgets; name it once"
        )
    if source.public_data is None:
        raws = [read(path, source.reading) for path in files]
        own = [infer(raw, ranges=source.ranges, bits=source.bits) for raw in raws]
        facts, public = shared(config, dict(zip(names, own, strict=True)))
    else:
        facts, public = shared(config, {})
        how = reading_of(facts, source.reading.table)
        raws = [read(path, how) for path in files]
    for note in dict.fromkeys(note for raw in raws for note in raw.notes):
        holders = [name for name, raw in zip(names, raws, strict=True) if note in raw.notes]
        warnings.warn(f"{', '.join(holders)[:200]}: {note}", stacklevel=2)
    public, unlabelled = _parts(config, facts, public)
    of_one, values = [], {}
    for name, raw in zip(names, raws, strict=True):
        samples = fit(raw, facts, name)
        check_disjoint(samples, public, name)
        check_disjoint(samples, unlabelled, name, CALLED)
        of_one += [name] if is_of_one_class(samples) else []
        values[name] = value_hashes(samples)
    warn_of_one_class(of_one, facts)
    tell_of_overlap(values, strict=config.privacy.strict)
    return SitesPlan(
        config, facts, public, unlabelled, partial(_sites_of_files, run, config, files)
    )


def _plan_of_simulation(run: Path, config: RunConfig) -> SitesPlan:
    federation = load_federation(config)
    facts = federation.facts
    apart = config.data.validation_fraction + config.data.test_fraction
    # How many there are in all is public, as the file's structure is; a site's own number is not.
    pool = sum(part.units for site in federation.clients for part in site.parts)
    samples = max(1, round((1 - apart) * pool / len(federation.clients)))
    for note in of_scale(facts, SCALE):
        warnings.warn(note, stacklevel=2)
    public, unlabelled = _parts(config, facts, federation.public)
    if config.data.source.unlabelled_data is not None:
        name = Path(identity(config.data.source.dataset)).name
        check_disjoint(concat(federation.shares), unlabelled, name, CALLED)
    return SitesPlan(
        config, facts, public, unlabelled, partial(make_sites, run, config, federation), samples
    )


def _parts(config: RunConfig, facts: Facts, public: Samples) -> tuple[Samples, Samples]:
    """The public samples with labels and without: of public data, and of unlabelled data."""
    most, rng = config.data.source.public_labels, stream(config.seed, "public labels")
    labelled, rest = without_labels(public, most, rng)
    more = _unlabelled(config, facts, public)
    return labelled, concat([part for part in (rest, more) if len(part)]) if len(rest) else more


def _unlabelled(config: RunConfig, facts: Facts, public: Samples) -> Samples:
    """The samples of unlabelled data, if the run names some."""
    f, source = config.federation, config.data.source
    if source.unlabelled_data is None:
        return facts.no_samples()
    own = f.client_data or (() if f.comes_split else (source.dataset,))
    if identity(source.unlabelled_data) in map(identity, own):
        raise BadInput(
            f"expected {CALLED} other than those of the sites, got {source.unlabelled_data}, which "
            "is theirs; leave data.unlabelled_data out"
        )
    return load_unlabelled(source, facts, public, stream(config.seed, "unlabelled"))


def _sites(run: Path, folders: Sequence[str]) -> tuple[SitePaths, ...]:
    """Sites that their owners keep."""
    named = [(read_site(Path(folder)).name, Path(folder)) for folder in folders]
    names = [name for name, _ in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"expected sites of different names, got {twice!r} twice; rename one")
    return tuple(SitePaths(i, name, at, run.resolve().name) for i, (name, at) in enumerate(named))


def _sites_of_files(run: Path, config: RunConfig, paths: Sequence[str]) -> tuple[SitePaths, ...]:
    """A site under the run's directory for each file or folder of data."""
    sites, table = [], config.data.source.reading.table
    for i, (name, path) in enumerate(zip(names_of(paths), paths, strict=True)):
        settings = one_run_settings(config, i, name=name, data=path)
        settings = settings.model_copy(
            update=asdict(table.dialect) | {"label": table.label, "texts": table.texts}
        )
        if not settings_file(sites_folder(run) / name).exists():
            write_site(sites_folder(run) / name, settings)
        sites.append(SitePaths(i, name, sites_folder(run) / name, "run"))
    return tuple(sites)


def site_names(config: RunConfig) -> list[str]:
    """What a run calls its sites, by number; no sample is looked at."""
    f = config.federation
    if f.remote:
        return list(f.remote)
    if f.sites:
        return [read_site(Path(folder)).name for folder in f.sites]
    if f.client_data:
        return names_of(f.client_data)
    return [NAME.format(i) for i in range(f.clients)]


def names_of(paths: Sequence[str]) -> list[str]:
    """A site's name for each data file or folder: its own, numbered if others have the same."""
    plain = (re.sub(r"[^A-Za-z0-9._-]", "_", Path(path).stem).lstrip("._-") for path in paths)
    stems = [name or "site" for name in plain]
    return [s if stems.count(s) == 1 else f"{s}-{i}" for i, s in enumerate(stems)]
