"""Load a data set by name or path, and divide it into a private pool and a public part.

Public samples cost no budget: they warm-start bottoms and stand in for private ones in the search.
They come from a second data set, or are set aside from the first, stratified by class. No sample is
both public and private. The number and the names of the classes count as public.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panas.data.facts import Facts, fit, infer
from panas.data.files.raw import Raw
from panas.data.samples import Samples
from panas.data.sources import identity, read_source
from panas.data.splits import stratified
from panas.runtime.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which data set is loaded, and what of it is public."""

    dataset: str = "digits"
    """A name of `panas.data.torchvision_sets.NAMES`, or the path of an .npz archive, a .csv table
    or a folder with a subfolder of pictures for each class. A name wins over a folder of the same
    name (write ./name for the folder)."""
    data_root: str | None = None
    """Folder of torchvision's sets; not needed for `digits` and for paths."""
    label: str | None = None
    """A table's label column; None looks for the usual names."""
    public_data: str | None = None
    """A second data set (name or path) that is public, of the same kind, shape and classes; None
    sets `public_fraction` aside instead."""
    public_fraction: float = 0.25
    """Share of the data set that becomes public, in [0, 1); not used with `public_data`."""
    public_limit: int = 2000
    """Most public samples, >= 0; what is above stays private."""
    limit: int | None = None
    """Most samples of the private pool, >= 1, drawn at random; None keeps all."""
    image_size: int = 32
    """Side of images read from picture files, in pixels, >= 1."""

    def __post_init__(self) -> None:
        for wanted, got, fits in (
            ("a public fraction in [0, 1)", self.public_fraction, 0 <= self.public_fraction < 1),
            ("a public limit from 0 up", self.public_limit, self.public_limit >= 0),
            ("a limit of at least 1 sample", self.limit, self.limit is None or self.limit >= 1),
            ("an image size of at least 1 pixel", self.image_size, self.image_size >= 1),
        ):
            if not fits:
                raise BadInput(f"expected {wanted}, got {got}; change it")

    @property
    def has_public(self) -> bool:
        """Whether there are public samples."""
        return self.public_limit > 0 and (self.public_data is not None or self.public_fraction > 0)


@dataclass(frozen=True)
class Source:
    """A loaded data set: what the clients share out, and what everyone may look at."""

    name: str  # the set's name, or the name of its file or folder
    private: Samples  # the pool that is spread over the clients; disjoint from `public`
    public: Samples  # samples that cost no budget; may be empty
    facts: Facts
    """With the number of samples, all that counts as public of the pool."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name a class."""
        return self.facts.class_names


def load(settings: DataSettings, rng: np.random.Generator) -> Source:
    """Load a data set and divide it; `rng` decides what is public and what the limits keep.

    Images are uint8 where their files are. A table of f features has shape (1, s, s), s =
    ceil(sqrt(f)), float32 in [-1, 1], padded with zeros; `panas.data.files.columns` says how.

    Privacy: `private` influences nothing in `public`, and no scale: statistics of private rows
    would leave with every release. Without public data, the names of the classes are those of the
    data set, and so taken as public.
    """
    s = settings
    raw = read_source(s.dataset, s.data_root, s.label, s.image_size)
    shared = raw if s.public_data is None else _read_public(s)
    size = min(len(shared.y), settings.public_limit)
    if shared is raw:
        size = min(round(settings.public_fraction * len(raw.y)), size, len(raw.y) - 1)
    public = stratified(shared.y, size, rng)
    private = np.arange(len(raw.y))
    if shared is raw:
        private = np.delete(private, public)
    if settings.limit is not None and settings.limit < len(private):
        private = np.sort(rng.choice(private, settings.limit, replace=False))
    name = Path(identity(settings.dataset)).name  # without the folders of this machine
    open_part = shared.take(public)
    facts = infer(shared, public=open_part)
    if facts.classes == 1:
        warnings.warn(f"{name} has one class only: every accuracy will be 1", stacklevel=2)
    own, seen = fit(raw.take(private), facts, name), fit(open_part, facts, "the public data")
    return Source(name, own, seen, facts)


def _read_public(s: DataSettings) -> Raw:
    assert s.public_data is not None
    if identity(s.public_data) == identity(s.dataset):
        raise BadInput(f"expected public data other than {s.dataset}, got the same; drop it")
    return read_source(s.public_data, s.data_root, s.label, s.image_size)
