"""What can go wrong, as types: the command line turns each into one line and an exit code."""

import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

INSTALL_FLOWER = "install panas with its extra flower (in the checkout: pip install '.[flower]')"
"""The end of a message where the libraries of several machines, or of a secure sum, are missing."""

INSTALL_EXPORT = "install panas with its extra export (in the checkout: pip install '.[export]')"
"""The end of a message where the libraries of ONNX are missing."""

INSTALL_TENSORBOARD = (
    "install panas with its extra tensorboard (in the checkout: pip install '.[tensorboard]')"
)
"""The end of a message where TensorBoard's library is missing."""

INSTALL_PARQUET = "install panas with its extra parquet (in the checkout: pip install '.[parquet]')"
"""The end of a message where the library of Parquet tables is missing."""

INSTALL_DICOM = "install panas with its extra dicom (in the checkout: pip install '.[dicom]')"
"""The end of a message where the library of DICOM pictures is missing."""


class PanasError(Exception):
    """An error that the user can act on; its text is one line."""

    exit_code = 1


class BadInput(PanasError, ValueError):
    """The input is not usable; nothing was done. The text says what to do."""

    exit_code = 2


class BudgetExhausted(PanasError):
    """The privacy budget cannot pay for the next step; nothing was spent on it."""

    exit_code = 3


@contextmanager
def quiet(*loggers: str, level: int = logging.ERROR) -> Iterator[None]:
    """Within it, loggers of other libraries tell of nothing below a level."""
    before = {logger: logger.level for logger in map(logging.getLogger, loggers)}
    try:
        for logger in before:
            logger.setLevel(level)
        yield
    finally:
        for logger, own in before.items():
            logger.setLevel(own)


def trail(error: BaseException) -> list[str]:
    """Where an error came from and its type; its text may hold data, and is left out."""
    lines = []
    for cause in (error.__cause__, error):
        if cause is not None:
            frames = traceback.extract_tb(cause.__traceback__)
            lines += [f"{os.path.relpath(f.filename)}:{f.lineno} {f.name}" for f in frames]
            lines.append(type(cause).__name__)
    return lines
