"""Opacus takes its per-sample gradients from here."""

import warnings

import torch
from sample_gradients import data, genome_network, loop
from torch import nn

from panas.architecture.genome import Genome
from panas.privacy.gradients.layer_rules import rule_for
from panas.privacy.gradients.per_sample import cross_entropy


def test_opacus_takes_our_gradients() -> None:
    from opacus import GradSampleModule

    from panas.privacy.gradients.opacus import register

    model = genome_network(Genome.parse("c8k3-max-c4k5"), (3, 9, 7), 1)
    x, y = data(5, 3, 9, 7)
    expected = loop(model, x, y)
    before = dict(GradSampleModule.GRAD_SAMPLERS)
    try:
        register()
        register()
        sampler = GradSampleModule.GRAD_SAMPLERS[nn.Conv2d]
        assert sampler is not before[nn.Conv2d]
        wrapped = GradSampleModule(model, loss_reduction="sum")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            cross_entropy(wrapped(x), y).sum().backward()
        for p, g in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(p.grad_sample, g, atol=1e-6)
        reflecting = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
        assert rule_for(reflecting) is None  # left to Opacus's own sampler
        found = sampler(reflecting, [torch.rand(2, 3, 5, 5)], torch.rand(2, 3, 5, 5))
        assert found[reflecting.weight].shape == (2, 3, 3, 3, 3)
    finally:
        GradSampleModule.GRAD_SAMPLERS.update(before)
