"""DICOM pictures: one frame of stored values, grey or in colour.

Stored values are taken as they are: no rescale slope and no window of the header is applied. Signed
ones are raised by half their range, and inverted greys (MONOCHROME1) are turned. pydicom, of the
extra `dicom`, is loaded when a file is opened.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from panas.runtime.errors import INSTALL_DICOM, BadInput

DICOM = (".dcm", ".dicom")
BYTE, DEEPEST = 8, 16  # bits of a value


def open_dicom(path: Path) -> Image.Image:
    """A file's picture, of 8 bits a value ("L", "RGB") or 16 ("I;16").

    ValueError, or an error of pydicom, for another file. BadInput without pydicom.
    """
    try:
        from pydicom import dcmread
    except ImportError as error:
        raise BadInput(
            f"expected the library pydicom to read {path}, got none; {INSTALL_DICOM}, or save the "
            "pictures as .png"
        ) from error
    data = dcmread(path)
    if int(data.get("NumberOfFrames") or 1) != 1:
        raise ValueError("several frames; save each as a file of its own")
    colours, bits = int(data.SamplesPerPixel), int(data.BitsStored)
    values = data.pixel_array
    if colours == 3 and bits == BYTE:
        return Image.fromarray(_rgb(values, str(data.PhotometricInterpretation)), "RGB")
    if colours != 1 or not 1 <= bits <= DEEPEST or values.ndim != 2:
        raise ValueError("neither grey of at most 16 bits nor colours of 8")
    grey = values.astype(np.int64) + (1 << (bits - 1)) * int(data.PixelRepresentation)
    if not ((grey >= 0) & (grey < 1 << bits)).all():
        raise ValueError("values of more bits than the header says")
    if data.PhotometricInterpretation == "MONOCHROME1":
        grey = (1 << bits) - 1 - grey
    if bits <= BYTE:
        return Image.fromarray(grey.astype(np.uint8))
    return Image.fromarray(grey.astype(np.uint16))


def _rgb(values: np.ndarray, form: str) -> np.ndarray:
    """Colours (h, w, 3) as red, green and blue."""
    if form.startswith("YBR"):
        from pydicom.pixels import convert_color_space

        return convert_color_space(values, form, "RGB")
    if form != "RGB":
        raise ValueError("colours of another kind than RGB")
    return values
