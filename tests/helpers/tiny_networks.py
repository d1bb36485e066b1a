"""A small network, its samples, and its weights as one vector."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.architecture.head import Head, build_head
from panas.architecture.network import Bottom, Norm, build_bottom
from panas.data.samples import Samples
from panas.runtime.store import pack_tensors, unpack_tensors
from panas.training.sgd import OptimizerConfig, Trainer

SHAPE = (1, 6, 7)
SGD = OptimizerConfig(learning_rate=0.5)
FIXED_HEAD = replace(SGD, train_head=False)


def networks(norm: Norm = "group") -> tuple[Bottom, Head]:
    g = torch.Generator().manual_seed(5)
    bottom = build_bottom(
        Genome.parse("c6k3-max-c4k5"), shape=SHAPE, width=5, norm=norm, generator=g
    )
    return bottom, build_head(5, 3, init="random", generator=g)


def data(n: int, seed: int = 2) -> Samples:
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(256, (n, *SHAPE), generator=g, dtype=torch.uint8)
    return Samples(x, torch.randint(3, (n,), generator=g), 3)


def packed(training: Trainer) -> bytes:
    return pack_tensors(training.state(), {})


def unpacked(content: bytes) -> dict[str, Tensor]:
    return unpack_tensors(content, Path("state"))[0]


def flat(*modules: nn.Module) -> Tensor:
    return torch.cat([p.detach().double().flatten() for m in modules for p in m.parameters()])
