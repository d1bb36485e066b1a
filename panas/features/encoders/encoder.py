"""A frozen encoder, and the vectors that it makes of pictures, one at a time.

A network reads one picture at once, on a CPU with one thread: its vector then depends on that
picture alone, bit for bit, as sums of maps ask for (`panas.features.exact`). Libraries choose other
kernels, and so other last bits, for batches of other sizes.

On a GPU it reads one picture at once, too, in whole float32, with kernels that do not vary from
call to call. Its vectors are a CPU's up to float32's rounding, so that a folder of embeddings may
hold some of each. Mixed precision is left out: sites with and without a GPU would differ by more
than rounding, and students spend their time on launching kernels, which it does not shorten.

A vector with a number that is not finite or above `LARGEST` becomes zero, and so does that of a
picture at which the network fails: a refusal would tell of the picture.

A picture is read from its own file at the encoder's size, where it has one; else its array is
brought to that size, bilinearly. Files of more than 8 bits are not read again: their arrays hold
the declared depth.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.data.encoder import EncoderFacts
from panas.data.files.pictures import DEEP, open_picture, read_picture
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread

LARGEST = 1e6  # of a vector's numbers
Network = Callable[[Float[Tensor, "1 c h w"]], Tensor]
"""A vector (1, e), or feature maps (1, e, h, w) that are averaged, of one normalised picture."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """What is public of an encoder, and its network: a script may give any function of its own."""

    facts: EncoderFacts
    network: Network
    device: str = "cpu"  # of the pictures that the network is given

    def __call__(self, pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n e"]:
        """Vectors (n, e), float32, of pictures in [0, 1] of any size and 1 or 3 channels.

        Privacy: a vector depends on its picture alone, bit for bit.
        """
        rows = [torch.empty(0, self.facts.outputs)]
        rows += [self.vector(brought(p, self.facts))[None] for p in pictures.float().cpu()]
        return torch.cat(rows)

    def of(self, samples: Samples) -> Float[Tensor, "n e"]:
        """Vectors (n, e) of samples, each from its own file where it has one."""
        rows = [torch.empty(0, self.facts.outputs)]
        rows += [self.vector(picture)[None] for picture in pictures_of(samples, self.facts)]
        return torch.cat(rows)

    def vector(self, picture: Float[Tensor, "c h w"]) -> Float[Tensor, "e"]:
        """The vector (e,) of one picture in [0, 1] of the encoder's shape.

        What the network raises for every picture is raised here; for this one alone, it is zero.
        """
        try:
            z = self._answer(picture)
        except Exception:  # of a network, of any type
            self._answer(torch.zeros(self.facts.shape))
            return torch.zeros(self.facts.outputs)
        usable = bool((z.abs() <= LARGEST).all())
        return z.clone() if usable else torch.zeros_like(z)

    def _answer(self, picture: Float[Tensor, "c h w"]) -> Float[Tensor, "e"]:
        mean, std = (torch.tensor(v)[:, None, None] for v in (self.facts.mean, self.facts.std))
        with one_thread(), repeatable(), torch.inference_mode():
            z = vector_of(self.network(((picture - mean) / std)[None].to(self.device)))
        if len(z) != self.facts.outputs:
            raise BadInput(
                f"expected {self.facts.outputs} numbers of the encoder {self.facts.name} for each "
                f"picture, got {len(z)}; export it for one picture of a fixed size"
            )
        return z


@contextmanager
def repeatable() -> Iterator[None]:
    """Convolutions on a GPU in whole float32, the same at each call; CPUs are not concerned."""
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False, allow_tf32=False):
        yield


def vector_of(z: object) -> Float[Tensor, "e"]:
    """What a network has answered to one picture as a vector; BadInput if it cannot be one."""
    shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
    if isinstance(z, Tensor) and z.dim() == 4 and len(z) == 1:
        z = z.float().mean((2, 3))
    if not isinstance(z, Tensor) or z.dim() != 2 or len(z) != 1:
        raise BadInput(
            "expected an encoder that makes a vector (1, e) or feature maps (1, e, h, w) of a "
            f"picture, got {shape!r:.80}; export the layer before its classifier"
        )
    return z[0].float().cpu()


def pictures_of(samples: Samples, facts: EncoderFacts) -> Iterator[Float[Tensor, "c h w"]]:
    """Pictures in [0, 1] of an encoder's shape, one after another: memory stays as it is.

    Args:
        samples: with arrays, and files where they have some.
        facts: of the encoder.
    """
    bytes_ = samples.x.dtype == torch.uint8
    for i in range(len(samples)):
        file = file_of(samples, i)
        picture = _from_file(file, facts) if file else None
        if picture is None:
            x = samples.x[i].float()
            picture = brought(x / 255 if bytes_ else (x + 1) / 2, facts)
        yield picture


def file_of(samples: Samples, i: int) -> str:
    """The file that a sample's picture is read from; "" where its array serves."""
    if samples.files is None or samples.x.dtype != torch.uint8:
        return ""
    return str(samples.files[i])


def _from_file(file: str, facts: EncoderFacts) -> Float[Tensor, "c h w"] | None:
    """A picture from its file; None if it is deep, or does not decode: its array serves then."""
    try:
        with open_picture(Path(file)) as image:
            if image.mode in DEEP:
                return None
            pixels = read_picture(image, facts.shape, deep=False)
    except Exception:  # a decoder's error may have any type
        return None
    return torch.from_numpy(pixels.copy()).float() / 255


def brought(picture: Float[Tensor, "c h w"], facts: EncoderFacts) -> Float[Tensor, "d i j"]:
    """A picture of an encoder's channels and size.

    Args:
        picture: of 1 or 3 channels; of others the first three, or the first one.
        facts: of the encoder.
    """
    channels, *size = facts.shape
    if len(picture) != channels:
        if channels == 1:
            picture = picture[:3].mean(0, keepdim=True)
        else:
            picture = picture[:3] if len(picture) > 3 else picture[:1].expand(3, -1, -1)
    if list(picture.shape[1:]) == size:
        return picture
    with one_thread():
        return F.interpolate(picture[None], size, mode="bilinear", antialias=True)[0]
