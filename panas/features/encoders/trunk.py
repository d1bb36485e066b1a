"""The first layers of a frozen encoder: what a student of pictures may begin with.

A small network learns little from a few thousand pictures. The first layers of a public encoder
have learnt from millions, and the blocks of a genome read their feature maps in a picture's place.
Weights are kept as 7-bit whole numbers, one scale a channel; nothing of them is trained.

| step | value |
|---|---|
| `conv` | a convolution of value i, with padding (left, right, top, bottom) |
| `affine` | value i times a number a channel, plus one: a batch norm at rest |
| `add`, `mul` | of values i and j |
| `relu`, `clip`, `sigmoid`, `silu`, `hard_swish`, `hard_sigmoid` | of value i, number by number |
| `max_pool` | of value i, padded by the lowest numbers |
| `mean` | of value i over its map, which becomes 1 x 1 |

Value 0 is the normalised picture, and value k what step k makes. The last value is scaled by its
mean and three deviations over public pictures, and bounded to [-1, 1]; what is no number is 0.

Privacy: a map depends on its picture alone, and on what is public.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from panas.data.encoder import EncoderFacts, Shape
from panas.data.samples import Samples
from panas.features.encoders.bits import MOST, packed, packed_bytes, unpacked
from panas.features.encoders.encoder import repeatable
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread

HALF = 65_504  # the largest number of 16 bits
REACH = 3.0  # deviations that [-1, 1] stands for


@dataclass(frozen=True)
class Step:
    """One layer. Two numbers are of height and width, in this order."""

    op: str
    of: tuple[int, ...]  # the values that it reads
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # left, right, top, bottom
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    size: tuple[int, int] = (1, 1)  # of a pool
    bounds: tuple[float, float] = (0.0, 0.0)  # of `clip`

    def to_json(self) -> dict[str, Any]:
        """Fields that are not as usual."""
        usual = Step("", ())
        return {k: v for k, v in asdict(self).items() if v != getattr(usual, k)}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Step":
        """What `to_json` made."""
        lists = {k: tuple(v) for k, v in record.items() if isinstance(v, list | tuple)}
        return Step(**{**record, **lists})


OPS: Mapping[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "hard_swish": F.hardswish,
    "hard_sigmoid": F.hardsigmoid,
    "mean": lambda x: x.mean((2, 3), keepdim=True),
}
HELD = ("weight", "bias")
WEIGHED = ("conv", "affine")
KNOWN = {*OPS, *WEIGHED, "clip", "max_pool"}


class Trunk(nn.Module):
    """Pictures in [-1, 1], of any size, to feature maps in [-1, 1].

    It takes one picture at a time: maps then depend on that picture alone, bit for bit, and a CPU
    is up to twice as fast. Its exported program takes all at once.

    Args:
        facts: of the encoder, for size, mean and deviation of the pictures.
        steps: in an order in which each reads what came before.
        shape: of the last value, (channels, height, width).
    """

    mean: Tensor
    std: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, facts: EncoderFacts, steps: Sequence[Step], shape: Shape) -> None:
        super().__init__()
        self.facts, self.steps, self.shape = facts, tuple(steps), shape
        self.last_use = {i: k for k, step in enumerate(steps) for i in step.of}
        for name, values in (("mean", facts.mean), ("std", facts.std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        self.register_buffer("centre", torch.zeros(shape[0]))
        self.register_buffer("spread", torch.ones(shape[0]))

    def hold(self, k: int, weight: Tensor, bias: Tensor) -> None:
        """Keep the weights of step k: of a convolution as whole numbers. ValueError for numbers
        that are not finite, or too large.

        Args:
            k: of a `conv` or an `affine`.
            weight: (outputs, inputs, height, width), or of an affine (channels,).
            bias: (outputs,).
        """
        if not (weight.isfinite().all() and bias.isfinite().all()):
            raise ValueError(f"expected finite weights at layer {k}")
        if self.steps[k].op == "conv":
            scale = (weight.flatten(1).abs().amax(1).clamp(min=1e-6) / MOST).half().clamp(min=1e-7)
            if not scale.isfinite().all() or bias.abs().max() > HALF:
                raise ValueError(f"expected smaller weights at layer {k}")
            rounded = (weight / scale.float()[:, None, None, None]).round()
            self.register_buffer(f"weight{k}", rounded.clamp(-MOST, MOST).to(torch.int8))
            self.register_buffer(f"scale{k}", scale)
            self.register_buffer(f"bias{k}", bias.half())
        else:
            self.register_buffer(f"weight{k}", weight.float())
            self.register_buffer(f"bias{k}", bias.float())
        self.unpack(k)

    def unpack(self, k: int) -> None:
        """Keep step k's weights as it computes with them; they are not saved."""
        self.register_buffer(f"float{k}", self._floats(k), persistent=False)

    def _weight(self, k: int) -> Tensor:
        kept = getattr(self, f"float{k}", None)
        return self._floats(k) if kept is None else cast(Tensor, kept)

    def _bias(self, k: int) -> Tensor:
        return cast(Tensor, getattr(self, f"bias{k}").float())

    def _floats(self, k: int) -> Tensor:
        weight = getattr(self, f"weight{k}").float()
        if self.steps[k].op == "conv":
            weight = weight * getattr(self, f"scale{k}").float()[:, None, None, None]
        return weight

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k i j"]:
        """Maps (n, *shape) of pictures."""
        if not torch.compiler.is_compiling() and len(x) > 1:
            return torch.cat([self(part) for part in x.split(1)])
        z = self.last(x) - self.centre[:, None, None]
        return (z / (REACH * self.spread[:, None, None])).nan_to_num(0.0).clamp(-1, 1)

    def last(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k i j"]:
        """The last value, as the encoder has it."""
        *_, last = self.values(x)
        return last

    def values(self, x: Float[Tensor, "n c h w"]) -> Iterator[Tensor]:
        """The value of each step; memory holds those that are still to be read."""
        values: dict[int, Tensor] = {0: (self._brought((x + 1) / 2) - self.mean) / self.std}
        for k, step in enumerate(self.steps):
            values[k + 1] = self._step(k, step, [values[i] for i in step.of])
            for i in step.of:
                if self.last_use[i] == k:
                    values.pop(i, None)
            yield values[k + 1]

    def _step(self, k: int, step: Step, given: list[Tensor]) -> Tensor:
        x = given[0]
        if step.op == "conv":
            left, right, top, bottom = step.padding
            even = left == right and top == bottom
            if not even:
                x = F.pad(x, step.padding)
            padding = (top, left) if even else (0, 0)
            weight, bias = self._weight(k), self._bias(k)
            return F.conv2d(x, weight, bias, step.stride, padding, step.dilation, step.groups)
        if step.op == "affine":
            return x * self._weight(k)[:, None, None] + self._bias(k)[:, None, None]
        if step.op == "clip":
            return x.clamp(*step.bounds)
        if step.op == "max_pool":
            lowest = F.pad(x, step.padding, value=float("-inf"))
            return F.max_pool2d(lowest, step.size, step.stride)
        return OPS[step.op](*given)

    def _brought(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Pictures of the encoder's channels and size; see `encoder.brought`."""
        channels, *size = self.facts.shape
        if channels == 1:
            x = x[:, :3].mean(1, keepdim=True)
        elif x.shape[1] != channels:
            x = x[:, :3] if x.shape[1] > 3 else x[:, :1].expand(-1, 3, -1, -1)
        if list(x.shape[2:]) == size:
            return x
        return F.interpolate(x, size, mode="bilinear", antialias=True)

    def settle(self, pictures: Samples) -> None:
        """Scale maps by their mean and deviation over public pictures, at least one."""
        with one_thread(), repeatable(), torch.no_grad():
            maps = torch.cat([self.last(x).cpu() for x in self._each(pictures)])
        self.centre.copy_(maps.mean((0, 2, 3)))
        self.spread.copy_(maps.std((0, 2, 3)).clamp(min=1e-6))

    @torch.inference_mode()
    def of(self, samples: Samples, *, mirrored: bool = False) -> UInt8[Tensor, "n k i j"]:
        """Maps of samples as bytes.

        Args:
            samples: whose arrays are read, brought to the encoder's size.
            mirrored: left and right of each picture change places.
        """
        parts = [torch.empty(0, *self.shape, dtype=torch.uint8)]
        with one_thread(), repeatable():
            for x in self._each(samples):
                maps = self(x.flip(3) if mirrored else x)
                parts.append(maps.add(1).mul(127.5).round().to(torch.uint8).cpu())
        return torch.cat(parts)

    def _each(self, samples: Samples) -> Iterator[Float[Tensor, "1 c h w"]]:
        """One picture after the other, on the trunk's device: memory stays as it is."""
        for i in range(len(samples)):
            yield samples.inputs([i]).to(self.mean.device)

    def packed(self) -> dict[str, Tensor]:
        """Its weights as files hold them: those of convolutions without gaps between bits."""
        return {n: packed(t) if _is_whole(t) else t for n, t in self.state_dict().items()}

    def names(self) -> set[str]:
        """Of the weights that its steps need."""
        held = {f"{name}{k}" for k, s in enumerate(self.steps) if s.op in WEIGHED for name in HELD}
        scales = {f"scale{k}" for k, step in enumerate(self.steps) if step.op == "conv"}
        return held | scales | {"centre", "spread"}

    @property
    def bytes(self) -> int:
        """Of its weights, as files hold them."""
        return sum(
            packed_bytes(t.numel()) if _is_whole(t) else t.numel() * t.element_size()
            for t in self.state_dict().values()
        )

    @property
    def parameters_held(self) -> int:
        """Numbers of its weights."""
        return sum(t.numel() for name, t in self.named_buffers() if name.startswith(HELD))

    @torch.inference_mode()
    def macs(self) -> int:
        """Multiply-accumulates of one picture, of convolutions alone."""
        x = torch.zeros(1, *self.facts.shape, device=self.mean.device)
        every = zip(self.steps, self.values(x), strict=True)
        return sum(
            getattr(self, f"float{k}").numel() * value.shape[2] * value.shape[3]
            for k, (step, value) in enumerate(every)
            if step.op == "conv"
        )

    def to_json(self) -> dict[str, Any]:
        """All but the weights; `restored` builds it again."""
        return {
            "encoder": self.facts.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "shape": [*self.shape],
            "kernels": {n: [*t.shape] for n, t in self.state_dict().items() if _is_whole(t)},
        }


def _is_whole(values: Tensor) -> bool:
    return values.dtype == torch.int8


def restored(
    about: Mapping[str, Any], weights: Mapping[str, Tensor], *, whole: bool = False
) -> Trunk:
    """The trunk of a record and its weights; BadInput for anything else.

    Args:
        about: by `Trunk.to_json`.
        weights: by `Trunk.packed`.
        whole: compute from whole numbers each time: a program of it then holds no others.
    """
    try:
        facts, shape = EncoderFacts.from_json(about["encoder"]), tuple(about["shape"])
        trunk = Trunk(facts, [Step.from_json(step) for step in about["steps"]], shape)
        kernels = {name: tuple(kernel) for name, kernel in about["kernels"].items()}
        for name, values in weights.items():
            kernel = kernels.get(name)
            trunk.register_buffer(name, values if kernel is None else unpacked(values, kernel))
        for k, step in enumerate(trunk.steps):
            if step.op not in KNOWN:
                raise BadInput(f"expected layers that panas knows, got {step.op!r:.40}")
            if step.op in WEIGHED and not whole:
                trunk.unpack(k)
        with torch.inference_mode():
            made = trunk.last(torch.zeros(1, *facts.shape)).shape[1:]
        if made != shape or {*weights} != trunk.names():
            raise BadInput(f"expected layers that make maps of {shape}, got other ones")
    except BadInput:
        raise
    except DAMAGED as e:
        raise BadInput("expected the first layers of an encoder, got another record") from e
    return trunk.eval()


DAMAGED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a record raises that is none."""
