"""The facts of a run's sites and its public samples: from public data, or as the sites declare."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dprbft.config.schema import RunConfig
from dprbft.paths import SitePlace, declared_file
from panas.data.facts import Facts, fit, infer
from panas.data.files.raw import Raw
from panas.data.files.remarks import remarks
from panas.data.samples import Samples
from panas.data.sources import Reading, read, reading_of
from panas.data.splits import stratified
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.runtime.store import read_json

REMEDY = "bring the data to one form, or leave that site out"


def declared_facts(place: SitePlace) -> Facts:
    """What a site's owner declares of its data."""
    path = declared_file(place.folder)
    if not path.is_file():
        raise BadInput(
            f"expected {path.name} at site {place.name}, found none; `panas site init` writes it"
        )
    return Facts.from_json(read_json(path))


def shared(config: RunConfig, declared: Mapping[str, Facts]) -> tuple[Facts, Samples]:
    """The federation's facts and its public samples.

    What sites declare, by name, makes the facts, and public data are brought to them; without sites
    that declare any, all public data make the facts. Those that are kept are the public samples.
    """
    source, classes = config.data.source, config.federation.classes
    if declared:
        return _declared(config, declared)
    assert source.public_data is not None
    raw = _public(config, source.public_reading)
    facts = infer(raw, public=raw, classes=classes, ranges=source.ranges, bits=source.bits)
    return facts, kept_public(raw, facts, config)


def _declared(config: RunConfig, declared: Mapping[str, Facts]) -> tuple[Facts, Samples]:
    """The same of sites that declare their facts; a site is asked nothing that it does not."""
    source, classes = config.data.source, config.federation.classes
    (of, first), *others = declared.items()
    for name, facts in others:
        if different := first.differs_from(facts):
            raise BadInput(f"expected facts of {name} as of {of}, got {different}; {REMEDY}")
    _check_classes(declared)
    if source.public_data is None:
        whole = replace(first, class_names=classes or _union(declared.values()))
        return whole, whole.no_samples()
    raw = _public(config, reading_of(first, source.public_reading.table))
    names = [*raw.class_names, *_union(declared.values())]
    whole = replace(first, class_names=classes or tuple(dict.fromkeys(names)))
    if unscaled := [c.name for c in first.columns if c.kind == "number" and c.reach is None]:
        warnings.warn(
            f"sites declare no scale of {len(unscaled)} columns, as {unscaled[0]!r}; with `panas "
            "site declare DIR --public-data FILE` their owners take it from public rows",
            stacklevel=2,
        )
    return whole, kept_public(raw, whole, config)


def _public(config: RunConfig, how: Reading) -> Raw:
    """Public data as they are, with remarks on them for whoever runs."""
    assert config.data.source.public_data is not None
    raw = read(config.data.source.public_data, how)
    for note in (*raw.notes, *remarks(raw)):
        warnings.warn(f"public data: {note}", stacklevel=2)
    return raw


def kept_public(raw: Raw, facts: Facts, config: RunConfig) -> Samples:
    """The samples of public data that a run keeps: at most `data.public_limit`, drawn by class.

    The draw is that of a simulation with the same public data (`panas.data.load.load`).
    """
    samples, most = fit(raw, facts, "public data"), config.data.source.public_limit
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
