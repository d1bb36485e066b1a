"""A site's own samples: loaded where they are, and divided by a keyed hash of each.

Which split a sample is in depends on the sample and the site's key alone: one sample more or less
moves no other. Search and training samples are disjoint parts, whose charges compose in parallel.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from dprbft.config.schema import RunConfig
from dprbft.paths import SitePaths, declared_file, key_file
from dprbft.site.directory import STORED, SiteSettings, data_path, read_site
from dprbft.site.embeddings import check_encoder, embedded, encoder_file
from panas.data.facts import Facts, fit, infer
from panas.data.files.pictures import FINE, USUAL
from panas.data.files.raw import TRAIN, Raw
from panas.data.load import check_disjoint
from panas.data.remarks import of_classes, remarks
from panas.data.samples import Samples, concat
from panas.data.sources import Reading, read, read_rows, reading_of
from panas.data.splits import hashed_split
from panas.features.encoders.files import load_encoder
from panas.privacy.ledger.fingerprints import Tags, tags_of
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, read_json, read_tensors, write_tensors

NAMED_AT_ONCE = 6
"""Sites that a warning names, at most."""

FEW_ROWS = 20
"""So many rows may each have a class of their own."""


@dataclass(frozen=True)
class SiteData:
    """One site's samples; they never leave it. A sample is in exactly one split."""

    id: int  # of the site in its run
    search: Samples
    train: Samples
    validation: Samples
    test: Samples
    tags: Tags | None = None  # of all of them, as they were loaded; None of those that anybody has

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def parts(self) -> tuple[Samples, ...]:
        """The splits, in one order."""
        return self.search, self.train, self.validation, self.test


_ROWS_READ: ContextVar[bool] = ContextVar("rows_read", default=False)


@contextmanager
def watching_rows() -> Iterator[Callable[[], bool]]:
    """Tell, within the block, whether private samples were read in it."""
    token = _ROWS_READ.set(False)
    try:
        yield _ROWS_READ.get
    finally:
        _ROWS_READ.reset(token)


def note_rows_read() -> None:
    """Note for `watching_rows` that what follows may depend on private samples."""
    _ROWS_READ.set(True)


def load_data(
    paths: SitePaths, config: RunConfig, facts: Facts, public: Sequence[Samples] = ()
) -> SiteData:
    """Load and divide a site's samples.

    BadInput if they do not fit what the owner declares, and, in a run of this machine, if there are
    too few of them or one is public, too. A hub elsewhere could find out by refusals how many
    samples a site has, and which: there the owner alone is told.

    Args:
        paths: of the site and its run.
        config: of the run: splits and seed.
        facts: of the federation.
        public: sets of the run, none of whose samples may be the site's.
    """
    settings = read_site(paths.folder)
    samples, values = samples_and_values(paths.folder, settings, facts)
    if data_path(paths.folder, settings).suffix != STORED:
        for known in public:
            try:
                check_disjoint(samples, known, settings.name)
            except BadInput as e:
                if not config.federation.remote:
                    raise
                warnings.warn(str(e), stacklevel=2)
    data = divided(paths.index, settings.name, samples, key_of(paths), config)
    return data if is_built_in(paths, config) else replace(data, tags=tags_of(values))


def encoded(paths: SitePaths, data: SiteData, facts: Facts, device: str = "cpu") -> SiteData:
    """A site's samples with their embeddings, where the run has an encoder; kept in its folder.

    Args:
        paths: of the site and its run.
        data: its samples.
        facts: of the federation.
        device: that the encoder computes on.
    """
    if facts.encoder is None:
        return data
    names = ("search", "train", "validation", "test")
    parts = [getattr(data, name) for name in names]
    settings = read_site(paths.folder)
    whole = embedded(paths.folder, settings, concat(parts), facts, device=device).embeddings
    assert whole is not None
    each = whole.split([len(part) for part in parts])
    found = {
        name: replace(part, embeddings=vectors)
        for name, part, vectors in zip(names, parts, each, strict=True)
    }
    return replace(data, **found)


def load_samples(folder: Path, settings: SiteSettings, facts: Facts) -> Samples:
    """All samples of a site, as the federation's facts say.

    Args:
        folder: the site's; paths in the settings start there.
        settings: the owner's.
        facts: of the federation.
    """
    return samples_and_values(folder, settings, facts)[0]


def samples_and_values(
    folder: Path, settings: SiteSettings, facts: Facts
) -> tuple[Samples, Samples | Raw]:
    """All samples of a site as the facts say, and by their own values, before any scaling.

    Where the owner declares facts, these decide about each row by itself, whatever classes a run
    has besides. What does not fit is left out or changed, which a warning tells the owner.

    Args:
        folder: the site's; paths in the settings start there.
        settings: the owner's.
        facts: of the federation; those that the owner declares go before.
    """
    note_rows_read()
    path = data_path(folder, settings)
    if path.suffix == STORED:
        samples = read_samples(path, facts.classes)
        return samples, samples
    own, known = facts, declared_file(folder)
    if known.is_file():
        names = Facts.from_json(read_json(known)).class_names
        if set(names) <= set(facts.class_names):
            own = replace(facts, class_names=names)
        raw = read_rows(path, own, settings.table)
        for note in raw.notes:
            warnings.warn(f"{settings.name}: {note}", stacklevel=2)
    else:  # a row that misfits is refused: only `panas site init` judges rows together
        raw = read(str(path), reading_of(own, settings.table))
    samples = fit(raw, own, settings.name)
    if own.class_names == facts.class_names:
        return samples, raw
    number = torch.tensor([facts.class_names.index(name) for name in own.class_names])
    return replace(samples, y=number[samples.y], classes=facts.classes), raw


def is_built_in(paths: SitePaths, config: RunConfig) -> bool:
    """Whether a simulation shares out samples that anybody can download: they are no secret.

    The site's own file must be one that a simulation makes: a run's settings are but a claim.
    """
    shared_out = data_path(paths.folder, read_site(paths.folder)).suffix == STORED
    return shared_out and config.data.source.built_in and not config.federation.comes_split


def declared(
    folder: Path, settings: SiteSettings, *, public: str | None = None, facts: Facts | None = None
) -> tuple[Facts, Samples]:
    """What an owner declares of the data, by what they look like, and the samples themselves.

    BadInput if the samples do not fit the facts, or if most classes that nobody declares have one
    row. It is told on the owner's screen, before any run.

    Args:
        folder: the site's; paths in the settings start there.
        settings: the owner's.
        public: a data set that anybody may see, which gives scale and categories of columns; None:
            the samples do.
        facts: a federation's, which the owner takes over; None: inferred.
    """
    path, table = str(data_path(folder, settings)), settings.table
    usual = FINE if settings.encoder else USUAL
    how = reading_of(facts, table) if facts else Reading(table=table, usual=usual)
    known = None
    if public is not None and facts is None:
        known = read(public, replace(how, table=replace(table, units_needed=False)))
        how = reading_of(infer(known, public=known, bits=settings.bits), table)
    raw = read(path, how)
    for note in (*raw.notes, *(() if known is None else remarks(known))):  # on the owner's screen
        warnings.warn(f"{settings.name}: {note}", stacklevel=2)
    if facts is None and not settings.classes:
        _check_classes(raw)
    both = [] if known is None else [*known.class_names, *raw.class_names]
    result = facts or infer(
        raw,
        public=known,
        classes=settings.classes or tuple(dict.fromkeys(both)),
        ranges=settings.ranges,
        bits=settings.bits,
    )
    for note in of_classes(result.class_names):
        warnings.warn(f"{settings.name}: {note}", stacklevel=2)
    if facts is None and settings.encoder is not None:
        encoder = load_encoder(encoder_file(folder, settings))
        result = replace(result, encoder=encoder.facts)
    check_encoder(folder, settings, result)
    return result, fit(raw, result, settings.name)


def _check_classes(raw: Raw) -> None:
    """Refuse labels of which most name one row each: their names would become public."""
    rows, classes = len(raw.y), len(raw.class_names)
    if rows > FEW_ROWS and classes * 2 > rows:
        raise BadInput(
            f"expected labels that rows share, since names of classes are public, got {classes:,} "
            f"classes in {rows:,} rows; give the column of classes as --label, or declare all "
            "names as --classes"
        )


def changed(paths: SitePaths) -> int:
    """When a site's data last changed, in ns; 0 where there are none. What is cached goes by it."""
    path = data_path(paths.folder, read_site(paths.folder))
    return path.stat().st_mtime_ns if path.exists() else 0


def key_of(paths: SitePaths) -> bytes:
    """The key of a site's splits."""
    return read_bytes(key_file(paths.folder))


def divided(id: int, name: str, samples: Samples, key: bytes, config: RunConfig) -> SiteData:
    """A site's samples by split.

    BadInput, in a run of this machine, if one of them is empty, or delta too large for them. In a
    run among machines no refusal depends on how many samples there are: empty splits serve, too.

    Args:
        id: number of the site, from 0.
        name: of the site, for messages.
        samples: all of the site's.
        key: of the hash that divides them, secret.
        config: of the run: shares of the splits.
    """
    data = config.data
    s = hashed_split(
        samples,
        # Where a search looks at no private samples, they all serve training.
        search=data.search_fraction if config.privacy.mode.least_search else 0.0,
        validation=data.validation_fraction,
        test=data.test_fraction,
        key=key,
    )
    search, train, validation, test = (
        samples.take(part) for part in (s.search, s.train, s.validation, s.test)
    )
    site = SiteData(id, search, train, validation, test)
    if not config.federation.remote:
        _check_enough(site, name, config)
    return site


def _check_enough(site: SiteData, name: str, config: RunConfig) -> None:
    """Refuse splits that serve nothing, or a delta too large for them."""
    if not all(len(part) for part in (site.train, site.validation, site.test)):
        raise BadInput(
            f"expected samples to train, validate and test {name}, got {len(site)} in "
            "all; use fewer sites or raise federation.min_samples"
        )
    if len(site.search) < config.privacy.mode.least_search:
        raise BadInput(
            f"expected at least {config.privacy.mode.least_search} search samples for {name}, "
            f"got {len(site.search)}; raise data.search_fraction"
        )
    # Search and training samples are parts of their own; delta must suit the larger one.
    config.budget(site.id).check(max(site.train.units, site.search.units), name)


def warn_of_one_class(found: Sequence[str], facts: Facts) -> None:
    """Say in one line which sites were found to have samples of one of several classes only."""
    if not found or facts.classes == 1:
        return
    more = len(found) - NAMED_AT_ONCE
    named = ", ".join(found[:NAMED_AT_ONCE]) + (f" and {more} others" if more > 0 else "")
    has, its = ("has", "its") if len(found) == 1 else ("have", "their")
    warnings.warn(
        f"{named} {has} samples of one class only; {its} accuracy says little", stacklevel=2
    )


def is_of_one_class(samples: Samples) -> bool:
    """Whether all samples are of one class; private, for their owner alone."""
    return int((samples.histogram() > 0).sum()) == 1


def write_samples(path: Path, samples: Samples) -> None:
    """Keep samples as a site or the public part of a simulation has them."""
    tensors = {"x": samples.x, "y": samples.y}
    optional = {name: getattr(samples, name) for name in ("groups", "part", "embeddings")}
    tensors |= {name: t for name, t in optional.items() if t is not None}
    notes = {"official": " ".join(map(str, samples.official))}
    if samples.files is not None:
        notes["files"] = json.dumps(samples.files.tolist())
    write_tensors(path, tensors, notes)


def read_samples(path: Path, classes: int) -> Samples:
    """Read what `write_samples` wrote."""
    tensors, notes = read_tensors(path)
    part = tensors.get("part")
    # Before official parts were written down, those that had samples counted.
    result = sorted({*part.tolist()} - {TRAIN}) if part is not None else ()
    official = tuple(map(int, notes["official"].split() if "official" in notes else result))
    groups, embeddings = tensors.get("groups"), tensors.get("embeddings")
    files = np.array(json.loads(notes["files"])) if "files" in notes else None
    return Samples(tensors["x"], tensors["y"], classes, groups, part, official, embeddings, files)


@lru_cache(maxsize=2)
def read_public(path: str, changed: int, classes: int) -> Samples:
    """The public samples of a run, labelled or not; kept in memory for the next call.

    Args:
        path: of the file.
        changed: when the file was written, in ns: a newer one is read again.
        classes: of the federation.
    """
    return read_samples(Path(path), classes)
