"""Load a data set by name or path, and divide it into a private pool and a public part.

Public samples cost no budget: they warm-start bottoms and stand in for private ones in the search.
They come from a second data set, or are set aside from the first, stratified by class. Either way
no sample is both public and private. The number and the names of the classes count as public.

Tables become square one-channel images. Their values are standardised with the mean and standard
deviation of the *public* rows: statistics of private rows would leave with every release.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from panas.data.files.raw import Raw
from panas.data.files.tables import squares
from panas.data.samples import Samples, Source
from panas.data.sources import check_alike, identity, read_source, shown, title
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
        if not 0 <= self.public_fraction < 1:
            raise BadInput(
                f"expected a public fraction in [0, 1), got {self.public_fraction}; change it"
            )
        if self.public_limit < 0:
            raise BadInput(f"expected a public limit from 0 up, got {self.public_limit}; raise it")
        if self.limit is not None and self.limit < 1:
            raise BadInput(
                f"expected a limit of at least 1 sample, got {self.limit}; leave it out for all"
            )
        if self.image_size < 1:
            raise BadInput(
                f"expected an image size of at least 1 pixel, got {self.image_size}; raise it"
            )

    @property
    def has_public(self) -> bool:
        """Whether there are public samples."""
        return self.public_limit > 0 and (self.public_data is not None or self.public_fraction > 0)


def load(settings: DataSettings, rng: np.random.Generator) -> Source:
    """Load a data set and divide it into private pool and public part.

    Args:
        settings: what is loaded.
        rng: decides what is public and what the limits keep.

    Returns:
        The source. Images are uint8. A table of f features has shape (1, s, s), s = ceil(sqrt(f)),
        float32 in [-1, 1], padded with zeros: standardised by the public rows and clipped at three
        deviations; without public rows, tanh(sign(v) log(1 + |v|)) of each value v.

    Raises:
        BadInput: if a data set is unknown, missing, damaged or empty, or the public one does not
            match.

    Privacy: `private` influences nothing in `public`, and no scale.

    """
    raw = _read(settings.dataset, settings)
    shared = raw if settings.public_data is None else _read_public(raw, settings)
    size = min(len(shared.y), settings.public_limit)
    if shared is raw:
        size = min(round(settings.public_fraction * len(raw.y)), size, len(raw.y) - 1)
    public = stratified(shared.y, size, rng)
    private = np.arange(len(raw.y))
    if shared is raw:
        private = np.delete(private, public)
    if settings.limit is not None and settings.limit < len(private):
        private = np.sort(rng.choice(private, settings.limit, replace=False))
    name = title(settings.dataset)
    if len(raw.class_names) == 1:
        warnings.warn(f"{name} has one class only: every accuracy will be 1", stacklevel=2)
    rows = shared.x[public]
    return Source(
        name=name,
        private=_samples(raw, private, rows),
        public=_samples(shared, public, rows),
        class_names=raw.class_names,
    )


def _read(dataset: str, settings: DataSettings) -> Raw:
    root = Path(settings.data_root) if settings.data_root else None
    return read_source(dataset, root, settings.label, settings.image_size)


def _read_public(raw: Raw, settings: DataSettings) -> Raw:
    """The second data set, if a network for the private pool can read it."""
    assert settings.public_data is not None
    if identity(settings.public_data) == identity(settings.dataset):
        raise BadInput(f"expected public data other than {settings.dataset}, got the same; drop it")
    shared = _read(settings.public_data, settings)
    check_alike(raw, shared, "public data", "the data set")
    if len(raw.class_names) != len(shared.class_names):
        raise BadInput(
            f"expected public data with class count {len(raw.class_names)} as in the data set, "
            f"got {len(shared.class_names)}"
        )
    # Files name their classes: the same number of other classes would be learnt as these.
    if raw.from_file and shared.from_file and raw.class_names != shared.class_names:
        raise BadInput(
            f"expected public data with the classes {shown(raw.class_names)}, "
            f"got {shown(shared.class_names)}; name them alike"
        )
    return shared


def _samples(raw: Raw, chosen: np.ndarray, public_rows: np.ndarray) -> Samples:
    """The chosen samples as images."""
    x = raw.x[chosen]
    if x.ndim == 2:
        x = squares(x, public_rows)
    return Samples(torch.from_numpy(x), torch.from_numpy(raw.y[chosen]), len(raw.class_names))
