"""The facts of a run's sites and its public samples: from public data, or as the sites declare."""

import warnings
from collections.abc import Mapping
from dataclasses import replace

from dprbft.config.schema import RunConfig
from dprbft.paths import SitePlace, declared_file
from panas.data.facts import Facts, fit, infer
from panas.data.files.raw import Raw
from panas.data.files.remarks import remarks
from panas.data.samples import Samples
from panas.data.sources import read
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
    """The federation's facts and its public samples, from what each site declares, by its name.

    All public data make the facts; those that are kept of them are the public samples.
    """
    source, classes = config.data.source, config.federation.classes
    if source.public_data is not None:
        raw = read(source.public_data, source.public_reading)
        for note in (*raw.notes, *remarks(raw)):
            warnings.warn(f"public data: {note}", stacklevel=2)
        ranges, bits = source.ranges, source.bits
        facts = infer(raw, public=raw, classes=classes, ranges=ranges, bits=bits)
        return facts, kept_public(raw, facts, config)
    (of, first), *others = declared.items()
    for name, facts in others:
        _check_alike(name, facts, of, first)
    whole = replace(first, class_names=classes or _union(declared))
    return whole, whole.no_samples()


def kept_public(raw: Raw, facts: Facts, config: RunConfig) -> Samples:
    """The samples of public data that a run keeps: at most `data.public_limit`, drawn by class.

    The draw is that of a simulation with the same public data (`panas.data.load.load`).
    """
    samples, most = fit(raw, facts, "public data"), config.data.source.public_limit
    if len(samples) <= most:
        return samples
    return samples.take(stratified(raw.y, most, stream(config.seed, "data")))


def _check_alike(name: str, facts: Facts, of: str, first: Facts) -> None:
    """Refuse facts of the site `name` that differ from the first ones, which `of` declares."""
    kinds = ["a table" if f.columns else "images" for f in (first, facts)]
    if kinds[0] != kinds[1]:
        raise BadInput(f"expected {kinds[0]} in {name} as in {of}, got {kinds[1]}; {REMEDY}")
    if first.columns != facts.columns:
        raise BadInput(
            f"expected columns of {name} as of {of}, got {_other_column(facts, first)}; {REMEDY}"
        )
    for what in ("shape", "dtype", "bits"):
        if getattr(first, what) != getattr(facts, what):
            got = getattr(facts, what)
            raise BadInput(f"expected {what} of {name} as of {of}, got {got}; {REMEDY}")


def _other_column(facts: Facts, first: Facts) -> str:
    """What is different about the first column that is."""
    own, wanted = ({column.name: column for column in f.columns} for f in (facts, first))
    if missing := [column for column in wanted if column not in own]:
        return f"none {missing[0]!r}"
    if extra := [column for column in own if column not in wanted]:
        return f"another one, {extra[0]!r}"
    for column, fact in wanted.items():
        if own[column].kind != fact.kind:
            return f"{column!r} as {own[column].kind} instead of {fact.kind}"
        if own[column] != fact:
            return f"{column!r} of another scale or other categories"
    return "them in another order"


def _union(declared: Mapping[str, Facts]) -> tuple[str, ...]:
    """All classes that are declared; a site that shares none with any other is refused."""
    for name, facts in declared.items():
        others = {c for other, f in declared.items() if other != name for c in f.class_names}
        if others and not others & set(facts.class_names):
            raise BadInput(
                f"expected classes of {name} that another site has too, got none; name them alike, "
                "leave that site out, or declare all in federation.classes"
            )
    return tuple(sorted({c for facts in declared.values() for c in facts.class_names}))
