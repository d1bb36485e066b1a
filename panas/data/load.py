"""Load a data set by name or path, and divide it into a private pool and a public part.

Public samples cost no budget: they warm-start bottoms and stand in for private ones in the search.
They come from a second data set, or are set aside from the first, stratified by class. No sample is
both public and private. The number and the names of the classes count as public.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from panas.data.files.raw import Raw
from panas.data.files.tables import squares
from panas.data.samples import Samples, Source
from panas.data.sources import check_alike, identity, read_source, shown
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


def load(settings: DataSettings, rng: np.random.Generator) -> Source:
    """Load a data set and divide it; `rng` decides what is public and what the limits keep.

    Images are uint8. A table of f features has shape (1, s, s), s = ceil(sqrt(f)), float32 in [-1,
    1], padded with zeros: standardised by the public rows and clipped at three deviations; without
    public rows, tanh(sign(v) log(1 + |v|)) of each value v.

    Privacy: `private` influences nothing in `public`, and no scale: statistics of private rows
    would leave with every release.
    """
    s = settings
    raw = read_source(s.dataset, s.data_root, s.label, s.image_size)
    shared = raw if s.public_data is None else _read_public(raw, s)
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
    if len(raw.class_names) == 1:
        warnings.warn(f"{name} has one class only: every accuracy will be 1", stacklevel=2)
    rows = shared.x[public]
    open_samples = _samples(shared, public, rows)
    return Source(name, _samples(raw, private, rows), open_samples, raw.class_names)


def _read_public(raw: Raw, s: DataSettings) -> Raw:
    assert s.public_data is not None
    if identity(s.public_data) == identity(s.dataset):
        raise BadInput(f"expected public data other than {s.dataset}, got the same; drop it")
    shared = read_source(s.public_data, s.data_root, s.label, s.image_size)
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
    x = raw.x[chosen]
    if x.ndim == 2:
        x = squares(x, public_rows)
    return Samples(torch.from_numpy(x), torch.from_numpy(raw.y[chosen]), len(raw.class_names))
