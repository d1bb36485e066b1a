"""Which device computes: decided here, and handed on as an argument.

torch is loaded where a device is looked for, and not for a word of the command line.
"""

from panas.runtime.errors import BadInput

WORDS = ("auto", "cpu", "cuda")


def check_word(word: str) -> None:
    """Refuse a word of the command line that names no device."""
    if word not in WORDS:
        raise BadInput(f"expected --device auto, cpu or cuda, got {word!r}; use auto")


def device_named(word: str) -> str:
    """The device that a word of the command line means; BadInput if it is not there.

    "auto" is a GPU where one is there, else the CPU.
    """
    import torch

    check_word(word)
    if word == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    check_device(word)
    return word


def check_device(device: str) -> None:
    """Refuse a device that is neither "cpu" nor "cuda", or is not there."""
    import torch

    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise BadInput(f"expected device as cpu or cuda, got {device!r}; give one of them")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput("expected a CUDA device for device cuda, found none; use device cpu")
