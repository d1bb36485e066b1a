"""Proxies of accuracy without data: functions of genome, network spec and generator alone."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from custom_blocks import OWN
from torch import nn

from benchmarks.data_free import PROXIES
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.runtime.seeds import stream

GENOME = Genome.parse("c16k3-max-c32k3")
SPEC = NetworkSpec(shape=(1, 8, 8), classes=10, width=16)


def scored(name: str, genome: Genome = GENOME, spec: NetworkSpec = SPEC) -> float:
    return PROXIES[name](genome, spec, stream(0, "test"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROXIES)
def test_a_proxy_is_a_function_of_its_arguments(name: str):
    first = scored(name)
    torch.manual_seed(99)
    np.random.seed(99)
    assert scored(name) == first
    assert PROXIES[name](GENOME, SPEC, stream(1, "test")) != first
    assert scored(name, Genome.parse("c16k3-c32k3")) != first


@pytest.mark.slow
@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize(
    "spec",
    [
        NetworkSpec(shape=(3, 9, 5), classes=2, width=8, norm="batch", unit=False),
        NetworkSpec(shape=(1, 1, 1), classes=1, width=4),
        NetworkSpec(shape=(1, 8, 8), classes=40, width=40, head_init="random"),
        NetworkSpec(shape=(1, 1, 30), classes=2, width=8, norm="group", unit=True),
    ],
)
def test_a_proxy_works_with_every_norm_head_and_shape(name: str, spec: NetworkSpec):
    result = scored(name, Genome.parse("c4k3-c8k5"), spec)
    if spec.shape != (1, 1, 1) or name != "activation agreement":  # a pixel has few patterns
        assert np.isfinite(result)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROXIES)
def test_proxies_can_be_asked_of_custom_blocks(name: str):
    spec = NetworkSpec(shape=(3, 20, 16), classes=3, width=8)
    genome = Genome.parse("c8k3-se2-dil6-double-max-se4", OWN)
    value = scored(name, genome, spec)
    assert value == scored(name, genome, spec)
    assert math.isfinite(value)


class Negative(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -100 * x


@dataclass(frozen=True)
class Negated:
    """A block that lets nothing positive through."""

    def __str__(self) -> str:
        return "negated"

    def build(self, in_channels: int) -> nn.Module:
        return Negative()

    def out_channels(self, in_channels: int) -> int:
        return in_channels

    def out_side(self, side: int) -> int:
        return side


def test_synaptic_flow_has_a_word_for_none():
    spec = NetworkSpec(shape=(3, 8, 8), classes=3, width=8)
    assert scored("synaptic flow", Genome((Negated(),)), spec) == -math.inf
