"""What a federation declares of its encoder, a frozen public network from a picture to a vector.

The file itself lies at each site. Its SHA-256 names it: another file is another encoder.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from panas.runtime.errors import BadInput

KINDS = ("program", "onnx", "torchvision", "callable")
MOST_OUTPUTS = 1 << 14  # e
MOST_SIDE = 1 << 12  # pixels
MOST_NAME = 200
FARTHEST = 100.0  # of a channel's mean and deviation
LOWEST = {"mean": -FARTHEST, "std": 1e-6}
SHA256 = re.compile(r"[0-9a-f]{64}")
CHANNELS = (1, 3)

Shape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class EncoderFacts:
    """What everyone in a federation knows of its encoder."""

    kind: str  # of `KINDS`
    name: str  # of its file, or of what it is
    sha256: str  # of its file, 64 hexadecimal digits
    shape: Shape  # (channels, height, width) of the pictures that it reads
    mean: tuple[float, ...]  # of each channel, taken from pixels in [0, 1]
    std: tuple[float, ...]  # of each channel, that they are divided by, above 0
    outputs: int  # e, numbers of a vector

    def __post_init__(self) -> None:
        """Refuse what cannot be: facts may come from anybody."""
        if self.kind not in KINDS:
            raise BadInput(f"expected an encoder of {', '.join(KINDS)}, got {self.kind!r:.40}")
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MOST_NAME:
            raise BadInput(f"expected an encoder's name of 1 to {MOST_NAME} characters, got others")
        if not isinstance(self.sha256, str) or not SHA256.fullmatch(self.sha256):
            raise BadInput("expected the SHA-256 of an encoder's file, got something else")
        sides = len(self.shape) == 3 and all(
            type(n) is int and 1 <= n <= MOST_SIDE for n in self.shape
        )
        if not sides or self.shape[0] not in CHANNELS:
            raise BadInput(
                f"expected an encoder of pictures of 1 or 3 channels and at most {MOST_SIDE} "
                f"pixels a side, got {self.shape!r:.80}"
            )
        for values, low in ((self.mean, LOWEST["mean"]), (self.std, LOWEST["std"])):
            if len(values) != self.shape[0] or not all(
                type(v) is float and math.isfinite(v) and low <= v <= FARTHEST for v in values
            ):
                raise BadInput(
                    "expected a finite mean and deviation of each channel of an encoder's "
                    f"pictures, got {values!r:.80}"
                )
        if type(self.outputs) is not int or not 1 <= self.outputs <= MOST_OUTPUTS:
            raise BadInput(
                f"expected an encoder of 1 to {MOST_OUTPUTS} outputs, got {self.outputs!r:.40}"
            )

    @property
    def digest(self) -> str:
        """The first digits of its file's SHA-256, for people."""
        return self.sha256[:12]

    def differs_from(self, other: "EncoderFacts | None") -> str | None:
        """What another encoder has otherwise, in words; None where its vectors are the same.

        Names are left out.
        """
        if other is None:
            return "no encoder"
        if self.sha256 != other.sha256:
            return f"an encoder whose file has SHA-256 {other.digest}..., not {self.digest}..."
        for what in ("kind", "shape", "mean", "std", "outputs"):
            if getattr(self, what) != getattr(other, what):
                return f"encoder {what} {getattr(other, what)} instead of {getattr(self, what)}"
        return None

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON."""
        lists = {"shape": [*self.shape], "mean": [*self.mean], "std": [*self.std]}
        return asdict(self) | lists

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "EncoderFacts":
        """What `to_json` wrote; BadInput for anything else."""
        try:
            tuples = {name: tuple(record[name]) for name in ("shape", "mean", "std")}
            return EncoderFacts(**{**record, **tuples})
        except (TypeError, KeyError, AttributeError) as e:
            raise BadInput("expected the facts of an encoder, got another record") from e
