"""The network that private training starts from, warmed up on public samples."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.samples import Samples
from panas.runtime.seeds import stream, torch_generator
from panas.training.sgd import OptimizerConfig, fit


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """Where private training starts."""

    genome: Genome
    spec: NetworkSpec
    optimizer: OptimizerConfig | None  # training on public samples; None for none
    device: torch.device

    def fit(self, bottom: Bottom, head: Head, public: Samples, rng: np.random.Generator) -> None:
        """Train in place on public samples, if there are any and `optimizer` says how.

        Args:
            bottom: moves in place.
            head: moves in place if the spec's `head_moves`.
            public: without any, nothing happens.
            rng: orders the samples.
        """
        if self.optimizer and len(public):
            config = replace(self.optimizer, train_head=self.spec.head_moves)
            fit(bottom, head, public, config=config, rng=rng)


def warm_started(start: WarmStart, public: Samples, *, seed: int, site: int) -> tuple[Bottom, Head]:
    """The network with which a site enters the federation; all clients' heads start the same.

    Args:
        start: genome, spec and training.
        public: samples that anybody may see.
        seed: of the run, 0 or more; alone it decides the head.
        site: number of the site, from 0; with the seed it decides the bottom.

    Privacy: no private sample is read.
    """
    rng = stream(seed, "client", site, "deploy")
    bottom = start.spec.bottom(start.genome, torch_generator(rng)).to(start.device)
    head = start.spec.head(torch_generator(stream(seed, "head"))).to(start.device)
    start.fit(bottom, head, public, rng)
    return bottom, head
