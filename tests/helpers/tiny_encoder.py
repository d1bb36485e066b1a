"""A small encoder of pictures of 12 x 12, as a function and as files."""

from pathlib import Path

import torch
from torch import Tensor, nn

from panas.data.encoder import EncoderFacts
from panas.data.samples import Samples
from panas.features.encoders.encoder import Encoder

OUTPUTS, SIDE = 16, 12


def network(channels: int = 3, seed: int = 0) -> nn.Module:
    """Feature maps, averaged: its numbers differ for each seed."""
    generator = torch.Generator().manual_seed(seed)
    result = nn.Sequential(nn.Conv2d(channels, OUTPUTS, 3, stride=2), nn.Tanh())
    with torch.no_grad():
        for p in result.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return result.eval().requires_grad_(False)


class Averaged(nn.Module):
    """Vectors (n, e) of that network."""

    def __init__(self, channels: int = 3, seed: int = 0) -> None:
        super().__init__()
        self.maps = network(channels, seed)

    def forward(self, x: Tensor) -> Tensor:
        return self.maps(x).mean((2, 3))


def encoder_facts(channels: int = 3, *, sha256: str = "a" * 64) -> EncoderFacts:
    return EncoderFacts(
        kind="callable",
        name="tiny",
        sha256=sha256,
        shape=(channels, SIDE, SIDE),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        outputs=OUTPUTS,
    )


def tiny_encoder(channels: int = 3, seed: int = 0) -> Encoder:
    return Encoder(encoder_facts(channels), network(channels, seed))


def embedded(samples: Samples, encoder: Encoder) -> Samples:
    from dataclasses import replace

    return replace(samples, embeddings=encoder.of(samples))


def write_program(path: Path, *, seed: int = 0, channels: int = 3, said: str = "") -> Path:
    """A .pt2 of the network."""
    example = (torch.zeros(1, channels, SIDE, SIDE),)
    program = torch.export.export(Averaged(channels, seed), example)
    torch.export.save(program, path, extra_files={"encoder.json": said} if said else None)
    return path


def write_onnx(
    path: Path, *, seed: int = 0, said: str = "", batch: int = 1, outside: str = ""
) -> Path:
    """The same network in ONNX; its weights in another file beside it, where that is named."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    conv = network(seed=seed)[0]
    weights = {"w": conv.weight.numpy(), "b": conv.bias.numpy()}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], strides=[2, 2]),
        helper.make_node("Tanh", ["c"], ["t"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if said:
        helper.set_model_props(model, {"encoder": said})
    beside = {"location": outside, "size_threshold": 0} if outside else {}
    onnx.save(model, path, save_as_external_data=bool(outside), **beside)
    return path
