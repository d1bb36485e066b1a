"""Load a data set by name or path, and divide it into a private pool and a public part.

Public samples cost no budget: they warm-start bottoms and stand in for private ones in the search.
They come from a second data set, or are set aside from the first. Of built-in sets, which anybody
can download, a quarter is public by default; of a user's own file nothing is, unless a share is
asked for. No sample is both public and private.

Images or rows without labels come from a file, or as a program holds them, for a network to
classify. Their labels are 0, and mean nothing.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from panas.data.encoder import EncoderFacts
from panas.data.facts import BYTE, Facts, fit, infer
from panas.data.files.archives import as_vectors
from panas.data.files.dialect import dialect_of
from panas.data.files.pictures import DEEP, FINE, USUAL, open_picture, read_picture
from panas.data.files.raw import TRAIN, Raw, row_hashes
from panas.data.files.tables import TableColumns
from panas.data.frames import is_frame, rows_of_frame, rows_of_mappings
from panas.data.remarks import OF_SHARE, of_classes, of_limit, remarks
from panas.data.samples import Samples, value_hashes
from panas.data.sources import Reading, identity, read, reading_of
from panas.data.splits import stratified
from panas.data.torchvision_sets import NAMES
from panas.runtime.errors import BadInput

BUILT_IN_FRACTION = 0.25
MOST_BITS = 16
REPEATED = 0.05  # share of public samples that repeat, up to which an equal one is the same one


UNLABELLED = 2000
"""Most samples that are drawn of an unlabelled data set."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which data set is loaded, and what of it is public."""

    dataset: str = "digits"
    """A name of `panas.data.torchvision_sets.NAMES`, or the path of an .npz archive, a .csv or
    .parquet table, or a folder with a subfolder of pictures for each class. A name wins over a
    folder of the same name (write ./name for the folder)."""
    data_root: str | None = None
    """Folder of torchvision's sets; not needed for `digits` and for paths."""
    label: str | None = None
    """A table's label column, by its number from 1 where there is no header; None looks for the
    usual names. Of a folder of pictures, a column of its `metadata.csv`."""
    group: str | None = None
    """A table's column, an .npz's array, or a column of a folder's `metadata.csv`, that names the
    privacy unit of a sample, as a patient; None: a sample is one."""
    client_column: str | None = None
    """A table's column that names the client of a row, as a hospital."""
    table: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    """How tables are written (`panas.data.files.dialect`): `dates` iso, us or eu, `numbers` 1,234.5
    or 1.234,5, `header` yes or no, `delimiter`; `texts`: columns to read as texts although they
    hold numbers, as codes do."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Lowest and highest value of a table's columns, for their scale; see `panas.data.facts`."""
    public_data: str | None = None
    """A second data set (name or path) that is public, of the same kind, shape and classes, and
    without a sample of the first; None sets `public_fraction` aside instead."""
    public_fraction: float | None = None
    """Share of the data set that becomes public, and so has no protection, in [0, 1); not used with
    `public_data`. None: `BUILT_IN_FRACTION` of a named set, nothing of a file."""
    public_limit: int = 2000
    """Most public samples, >= 0; what is above stays private."""
    public_labels: int | None = None
    """Most public samples with a label, >= 0, drawn by class; others count as unlabelled. None: all
    have one."""
    unlabelled_data: str | None = None
    """A data set (name or path) of public samples whose labels are absent or not read, of the same
    shape or columns, and without a private sample; at most 2,000 are drawn."""
    limit: int | None = None
    """Most samples of the private pool, >= 1, drawn at random; None keeps all."""
    image_size: int | None = None
    """Side of images read from picture files, in pixels, >= 1; None: their own size if it is the
    same for all and at most 64 x 64, else 32, or 64 beside an encoder."""
    bits: int | None = None
    """Depth of pictures of more than 8 bits, 8 to 16; None: what public ones need."""

    def __post_init__(self) -> None:
        for expected, value, least, most in (
            ("a public fraction in [0, 1)", self.public_fraction, 0, math.nextafter(1, 0)),
            ("a public limit from 0 up", self.public_limit, 0, math.inf),
            ("public labels from 0 up", self.public_labels, 0, math.inf),
            ("a limit of at least 1 sample", self.limit, 1, math.inf),
            ("an image size of 1 pixel or more", self.image_size, 1, math.inf),
            ("a depth of 8 to 16 bits", self.bits, 8, MOST_BITS),
        ):
            if value is not None and not least <= value <= most:
                raise BadInput(f"expected {expected}, got {value}; change it")
        dialect_of(self.table)

    @property
    def has_public(self) -> bool:
        """Whether there are public samples."""
        return self.public_limit > 0 and (self.public_data is not None or self.fraction > 0)

    @property
    def has_unlabelled(self) -> bool:
        """Whether there are public samples without labels."""
        if self.public_labels is not None and self.has_public:
            return True
        return self.unlabelled_data is not None

    @property
    def reading(self) -> Reading:
        """How the files are read."""
        dialect, texts = dialect_of(self.table)
        table = TableColumns(
            label=self.label,
            group=self.group,
            client=self.client_column,
            texts=texts,
            dialect=dialect,
        )
        return Reading(data_root=self.data_root, table=table, image_size=self.image_size)

    @property
    def public_reading(self) -> Reading:
        """How public data are read: their rows need neither group nor client."""
        return replace(self.reading, table=replace(self.reading.table, units_needed=False))

    @property
    def built_in(self) -> bool:
        """Whether the data set is one that anybody can download."""
        return self.dataset in NAMES

    @property
    def fraction(self) -> float:
        """Share of the data set that becomes public, if no second one is."""
        if self.public_fraction is not None:
            return self.public_fraction
        return BUILT_IN_FRACTION if self.built_in else 0.0


@dataclass(frozen=True)
class Source:
    """A loaded data set: what the clients share out, and what everyone may look at."""

    name: str  # the set's name, or the name of its file or folder
    private: Samples  # the pool that is spread over the clients; disjoint from `public`
    public: Samples  # samples that cost no budget; may be empty
    facts: Facts
    """With the number of samples, all that counts as public of the pool."""
    clients: np.ndarray | None = None
    """Name of the client that has each private sample (n,), where a column says so."""
    unprotected: int = 0  # samples of a user's own data set that are public, without protection

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name a class."""
        return self.facts.class_names


def load(
    settings: DataSettings,
    rng: np.random.Generator,
    classes: Sequence[str] = (),
    encoder: EncoderFacts | None = None,
) -> Source:
    """Load a data set and divide it into a private pool and a public part.

    What is public of a built-in set is drawn by class. Of a user's own set it is drawn by a hash of
    each sample's values: no class and no other sample plays a part, but where the limit cuts.

    Images are uint8 where their files are. A table of f features has shape (1, s, s), s =
    ceil(sqrt(f)), float32 in [-1, 1], padded with zeros; `panas.data.files.columns` says how.

    Args:
        settings: which data set, and how much of it is public.
        rng: decides what is public and what the limits keep.
        classes: names of all classes; (): those of the public data, or of the data set.
        encoder: that is to make a vector of each picture, from its own file; None: none.

    Privacy: `private` influences nothing in `public`, and no scale: statistics of private rows
    would leave with every release. Without public data, the names of the classes are those of the
    data set, and so taken as public.
    """
    s = settings
    name = Path(identity(s.dataset)).name  # without the folders of this machine
    raw, shared = _read(s, USUAL if encoder is None else FINE)
    if unknown := sorted({*s.reading.table.texts, *s.ranges} - set(raw.columns)):
        where = "data.table.texts and data.ranges"
        raise BadInput(f"expected columns of {name} in {where}, got {unknown}")
    private, public = _divided(raw, shared, s, rng)
    if s.limit is not None and s.limit < len(private):
        private = np.sort(rng.choice(private, s.limit, replace=False))
    open_part = shared.take(public)
    facts = infer(shared, public=open_part, classes=classes, ranges=s.ranges, bits=s.bits)
    facts, pool = replace(facts, encoder=encoder), raw.take(private)
    left_out = of_limit(len(shared.y), s.public_limit) if shared is not raw else ()
    for note in (*raw.notes, *remarks(open_part), *_of_names(facts.class_names), *left_out):
        warnings.warn(f"{name}: {note}", stacklevel=2)
    own, seen = fit(pool, facts, name), fit(open_part, facts, "the public data")
    if shared is not raw:
        check_disjoint(own, seen, name)
    return Source(
        name=name,
        private=own,
        public=seen,
        facts=facts,
        clients=pool.clients,
        unprotected=len(public) if shared is raw and not s.built_in else 0,
    )


def _of_names(names: Sequence[str]) -> tuple[str, ...]:
    """What an owner should know of classes, by their names."""
    one_class = ("one class only, so that every accuracy will be 1",) * (len(names) == 1)
    return (*of_classes(names), *one_class)


def check_disjoint(
    private: Samples, public: Samples, called: str, which: str = "public data"
) -> None:
    """Refuse private data of which a sample is among the public ones.

    Where more than a twentieth of the public samples repeat, as rows of few columns do, equal ones
    may belong to different people: nothing can be told, and a warning says so.

    Args:
        private: n samples, compared by the values of x alone.
        public: any number of samples of the same shape and range.
        called: name of the private data in the message.
        which: name of the public data in it.
    """
    known = value_hashes(public)
    if len(known) - len(np.unique(known)) > REPEATED * len(known):
        warnings.warn(
            "public samples repeat, so that it is not checked whether any of them is one of "
            f"{called}",
            stacklevel=2,
        )
    elif np.isin(value_hashes(private), known).any():
        raise BadInput(
            f"expected {which} without any sample of {called}, got some of its samples among "
            "them, which would have no protection; take them out of one of the two"
        )


def _divided(
    raw: Raw, shared: Raw, s: DataSettings, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted positions of private samples in `raw`, and of public ones in `shared`."""
    everyone = np.arange(len(raw.y))
    if shared is not raw:
        return everyone, stratified(shared.y, min(len(shared.y), s.public_limit), rng)
    if s.built_in:
        size = min(round(s.fraction * len(raw.y)), s.public_limit, len(raw.y) - 1)
        public = stratified(raw.y, size, rng)
        return np.delete(everyone, public), public
    if not s.has_public:
        return everyone, everyone[:0]
    # By its own values (or its group): no class and no other sample says what becomes public.
    key = rng.bytes(16)
    groups = raw.groups
    number = raw.hashes(key) if groups is None else row_hashes((g.tobytes() for g in groups), key)
    chosen = number < np.uint64(s.fraction * 2.0**64)
    if raw.part is not None:
        chosen &= raw.part == TRAIN
    if chosen.sum() > s.public_limit:
        warnings.warn(OF_SHARE.format(s.public_limit), stacklevel=3)
        chosen &= number < np.sort(number[chosen])[s.public_limit]
    public = np.flatnonzero(chosen)
    return np.delete(everyone, public), public


def _read(s: DataSettings, usual: int) -> tuple[Raw, Raw]:
    """The data set, and the one that public samples come from, which may be the same; `usual` as
    for `Reading`."""
    if s.public_data is None:
        raw = read(s.dataset, replace(s.reading, usual=usual))
        return raw, raw
    if identity(s.public_data) == identity(s.dataset):
        raise BadInput(f"expected public data other than {s.dataset}, got the same; drop it")
    shared = read(s.public_data, replace(s.public_reading, usual=usual))
    own = reading_of(infer(shared, bits=MOST_BITS), s.reading.table)
    raw = read(s.dataset, replace(own, data_root=s.data_root))
    return raw, shared


def without_labels(
    public: Samples, most: int | None, rng: np.random.Generator
) -> tuple[Samples, Samples]:
    """Public samples that keep their labels, drawn by class, and those that lose them.

    Args:
        public: all of them.
        most: how many keep their labels, 0 or more; None: all.
        rng: draws those.
    """
    if most is None or most >= len(public):
        return public, public.take(np.empty(0, np.int64))
    kept = stratified(public.y.numpy(), most, rng)
    rest = public.take(np.delete(np.arange(len(public)), kept))
    return public.take(kept), replace(rest, y=torch.zeros_like(rest.y))


CALLED = "unlabelled data"


def load_unlabelled(
    settings: DataSettings,
    facts: Facts,
    public: Samples,
    rng: np.random.Generator,
    most: int = UNLABELLED,
) -> Samples:
    """The samples of the unlabelled data set, if the settings name one.

    Labels that the data have are not read; folders of classes are folders like any other. BadInput
    if the data do not fit the facts, or none is left.

    Args:
        settings: `unlabelled_data`, and how files are read.
        facts: of the federation.
        public: labelled samples, none of which comes back.
        rng: draws those to keep.
        most: how many are kept, at least 1.
    """
    if settings.unlabelled_data is None:
        return facts.no_samples()
    raw = _read_unlabelled(settings.unlabelled_data, settings, facts)
    samples = fit(raw, facts, CALLED)
    fresh = np.flatnonzero(~np.isin(value_hashes(samples), value_hashes(public)))
    if not len(fresh):
        raise BadInput(
            f"expected {CALLED} beside the public samples, got the same; leave them out, or lower "
            "data.public_limit"
        )
    if len(fresh) > most:
        fresh = np.sort(rng.choice(fresh, most, replace=False))
    return samples.take(fresh)


def _read_unlabelled(dataset: str, settings: DataSettings, facts: Facts) -> Raw:
    """The data, with labels of 0, read so that they fit the facts if they can."""
    names = tuple(column.name for column in facts.columns)
    table = replace(settings.public_reading.table, labelled=False, features=names)
    how = replace(
        reading_of(facts, table),
        data_root=settings.data_root,
        image_size=facts.shape[1],
        shape=None if facts.columns else facts.shape,
    )
    raw = read(dataset, how)
    for note in raw.notes:
        warnings.warn(f"{CALLED}: {note}", stacklevel=3)
    zeros = np.zeros(len(raw.y), np.int64)
    return replace(raw, y=zeros, class_names=facts.class_names, groups=None, part=None)


def unlabelled(data: Any, facts: Facts) -> Raw:
    """One or many images or rows, as the facts of a network's data describe them.

    `data` is, of images: a path, a PIL image, an array (h, w), (h, w, c) or (n, h, w, c), a tensor
    (c, h, w) or (n, c, h, w), or a list of them (an array that has the shape of the facts with
    channels first alone is read so); of vectors: an array or tensor (e,) or (n, e), or a list of
    them; of a table: a data frame, a mapping from column to cell, or a list of mappings (cells are
    numbers, texts, or None). Pictures, not arrays, are brought to size.
    """
    many: Sequence[Any] = data if isinstance(data, list | tuple) else [data]
    if not many:
        raise BadInput("expected images or rows to classify, got none")
    if facts.columns:
        return rows_of_frame(data, facts) if is_frame(data) else rows_of_mappings(many, facts)
    if facts.vectors:
        x = np.concatenate([_vectors(one, facts) for one in many])
        return Raw(x, np.zeros(len(x), np.int64), facts.class_names, vectors=True)
    x = np.concatenate([_images(one, facts) for one in many])
    paths = all(isinstance(one, str | Path) for one in many)
    files = np.array([str(one) for one in many]) if paths else None
    return Raw(x, np.zeros(len(x), np.int64), facts.class_names, files=files)


def _vectors(one: Any, facts: Facts) -> np.ndarray:
    """Vectors (n, 1, 1, e) from an array or tensor (e,) or (n, e)."""
    x = one.detach().cpu().numpy() if isinstance(one, Tensor) else np.asarray(one)
    e = facts.shape[2]
    if x.ndim not in (1, 2) or x.shape[-1] != e or x.dtype.kind not in "iuf":
        raise BadInput(f"expected vectors of {e} numbers, got {x.dtype} of {x.shape}")
    return as_vectors(np.atleast_2d(x))


def _images(one: Any, facts: Facts) -> np.ndarray:
    """Images (n, c, h, w) from one item."""
    if isinstance(one, str | Path):
        with open_picture(Path(one)) as image:
            return _images(image, facts)
    if isinstance(one, Image.Image):
        return _picture(one, facts)[None]
    if isinstance(one, Tensor):
        x = one.detach().cpu().numpy()
        x = x[None] if x.ndim == 3 else x
    else:
        x = _channels_last(np.asarray(one), facts)
        c, h, w = facts.shape
        is_one = x.ndim == 2 or x.shape == (h, w, c)  # and not many grey ones
        x = x[None] if is_one else x
        x = x[..., None] if x.ndim == 3 else x
        x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    if x.ndim != 4 or x.dtype.kind not in "uf":
        raise BadInput(f"expected images of shape {facts.shape}, got {x.dtype} of {x.shape}")
    if x.dtype.kind == "f" and facts.unit:
        if not (x.min() >= 0 and x.max() <= 1):
            raise BadInput("expected images as bytes or as floats in [0, 1], got other floats")
        x = 2 * x - 1
    return np.ascontiguousarray(x.astype(np.float32) if x.dtype.kind == "f" else x)


def _picture(image: Image.Image, facts: Facts) -> np.ndarray:
    """A picture (c, h, w); of 8 bits as floats in [-1, 1] where the facts are of floats."""
    if facts.dtype == "uint8" or facts.bits > BYTE or image.mode in DEEP:
        return read_picture(image, facts.shape, deep=facts.dtype != "uint8")
    if not facts.unit:
        raise BadInput(
            "expected arrays, as of a network that learnt of floats outside [0, 1], got a picture; "
            "scale it as those were"
        )
    x = read_picture(image, facts.shape, deep=False)
    return (x * np.float32(2 / 255) - 1).astype(np.float32)


def _channels_last(x: np.ndarray, facts: Facts) -> np.ndarray:
    """An array of one or many images, channels last if it had them first."""
    c, h, w = facts.shape
    first = x.ndim >= 3 and x.shape[-3:] == facts.shape and x.shape[-3:] != (h, w, c)
    return np.moveaxis(x, -3, -1) if first else x
