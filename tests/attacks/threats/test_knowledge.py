import numpy as np
import pytest
import torch

from attacks.threats.knowledge import LeakedPairs, Shadow, shadow
from attacks.threats.observation import Observation
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.training.evaluate import represent
from panas.training.sgd import OptimizerConfig

GENOME = Genome.parse("c8k3-max-c8k3")
BLUEPRINT = NetworkSpec(shape=(1, 4, 4), classes=3, width=6)


def _samples(n: int, seed: int = 1) -> Samples:
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randint(100, (n, 1, 4, 4), generator=g), torch.arange(n) % 3
    x[torch.arange(n), 0, y] += 150  # the class is the row that is bright
    return Samples(x.to(torch.uint8), y, 3)


def test_leaked_pairs_are_all_that_is_learnt_from() -> None:
    private, z = _samples(9, 2), torch.rand(9, 6) / 6
    arrays = {"z": torch.rand(1, 6), "y": torch.tensor([0])}
    seen = Observation("north", "raw_rows", arrays, None, LeakedPairs(z, private), _samples(30))
    assert torch.equal(seen.known_z, z)
    assert seen.known is private
    features, images = seen.pairs(np.random.default_rng(0))
    assert len(features) == len(images) == 9
    with pytest.raises(BadInput, match="each leaked sample"):
        LeakedPairs(z[:3], private)


@pytest.mark.slow
def test_a_shadow_is_another_network_that_serves_the_same_head() -> None:
    public, g = _samples(60), torch.Generator().manual_seed(0)
    head = BLUEPRINT.head(g)
    before = [p.clone() for p in head.parameters()]
    bottom = BLUEPRINT.bottom(GENOME, g)
    optimizer = OptimizerConfig(learning_rate=0.01, optimiser="adam", batch_size=16, epochs=60)

    def attempt(seed: int) -> Shadow:
        rng = np.random.default_rng(seed)
        return shadow(GENOME, BLUEPRINT, head, public, rng=rng, optimizer=optimizer)

    first, second = attempt(0), attempt(1)
    assert all(torch.equal(a, b) for a, b in zip(before, head.parameters(), strict=True))
    # What they have in common is the head: two shadows agree with each other more than with an
    # untrained network, because each sends a class where the head wants it.
    a, b, c = (represent(b, public) for b in (first.bottom, second.bottom, bottom))
    assert float((a * b).sum(1).mean()) > float((a * c).sum(1).mean()) + 0.05
