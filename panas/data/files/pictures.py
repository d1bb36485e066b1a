"""Reading a folder with one subfolder of pictures a class, as torchvision's `ImageFolder`."""

from pathlib import Path

import numpy as np
from PIL import Image

from panas.data.files.raw import Raw, one_line
from panas.runtime.errors import BadInput

PICTURES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def read_folder(path: Path, image_size: int) -> Raw:
    """Read a folder with one subfolder of pictures a class, as RGB of side `image_size`."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    files = [sorted(f for f in p.rglob("*") if f.suffix.lower() in PICTURES) for p in folders]
    empty = [p.name for p, found in zip(folders, files, strict=True) if not found]
    if not folders or empty:
        raise BadInput(
            f"expected a subfolder of pictures for each class in {path}, got "
            f"{f'no picture in {empty[0]!r}' if empty else 'no subfolder'}"
        )
    names = [name for found in files for name in found]
    x = np.empty((len(names), 3, image_size, image_size), np.uint8)
    for i, name in enumerate(names):
        try:
            with Image.open(name) as image:
                x[i] = pixels(image, image_size, "RGB")
        except Exception as error:  # a decoder's error may have any type
            raise BadInput(
                f"expected a readable picture at {name}, got: {one_line(error)}; replace or delete"
            ) from error
    y = np.repeat(np.arange(len(files)), [len(found) for found in files])
    return Raw(x, y, tuple(p.name for p in folders))


def pixels(image: Image.Image, side: int, mode: str) -> np.ndarray:
    """A picture as (c, side, side) uint8; mode "L" (c = 1) or "RGB" (c = 3)."""
    small = image.convert(mode).resize((side, side), Image.Resampling.BILINEAR)
    return np.atleast_3d(np.asarray(small)).transpose(2, 0, 1)
