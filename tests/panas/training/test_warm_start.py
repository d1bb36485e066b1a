"""The network that private training starts from."""

import torch

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples
from panas.training.sgd import OptimizerConfig
from panas.training.warm_start import WarmStart, warm_started

GENOME = Genome.parse("c4k3-max-c4k3")
SPEC = NetworkSpec(shape=(1, 8, 8), classes=4, width=8)
PUBLIC = Samples(
    torch.arange(40).to(torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8),
    torch.arange(40) % 4,
    4,
)


def test_all_clients_deploy_with_the_same_head_but_their_own_bottom():
    def deployed(client: int, warm: OptimizerConfig | None = None, public: Samples = PUBLIC):
        start = WarmStart(genome=GENOME, spec=SPEC, optimizer=warm, device=torch.device("cpu"))
        return warm_started(start, public, seed=0, client=client)

    def weights(module: torch.nn.Module) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    (a, head_a), (b, head_b) = deployed(0), deployed(1)
    assert torch.equal(weights(head_a), weights(head_b))
    assert not torch.equal(weights(a), weights(b))
    assert torch.equal(weights(a), weights(deployed(0)[0]))
    adam = OptimizerConfig(optimiser="adam", learning_rate=0.01, epochs=1)
    warm, head = deployed(0, adam)
    assert not torch.equal(weights(a), weights(warm))
    assert torch.equal(weights(head_a), weights(head))
    cold, _ = deployed(0, adam, PUBLIC.take([]))
    assert torch.equal(weights(a), weights(cold))
