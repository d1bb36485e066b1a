"""Teach the adaptation layer of a network alone, on maps that are computed once.

A network that many sites share has the same maps of public samples at each of them. What a site
changes behind these maps costs hardly anything.

| symbol | meaning |
|---|---|
| f | averaged maps of a sample, behind the last block, shape (n, c) |
| A, a | weight and bias of the adaptation layer, which move |

    logits = head(normalise(relu(A f + a)))
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.runtime.seeds import one_thread
from panas.training.sgd import OptimizerConfig, batches_of, make_optimizer, set_rate, steps_of

BATCH = 128  # samples at a time


@torch.no_grad()
def averaged_maps(bottom: Bottom, samples: Samples) -> Float[Tensor, "n c"]:
    """What the adaptation layer is given of samples, at least one, on the CPU."""
    bottom.eval()
    device = bottom.adapt.weight.device
    parts = torch.arange(len(samples)).split(BATCH)
    with one_thread():
        maps = [bottom.blocks(samples.inputs(at).to(device)).mean(dim=(2, 3)) for at in parts]
    return torch.cat(maps).cpu()


def teach_last_layer(
    bottom: Bottom,
    head: Head,
    maps: Float[Tensor, "n c"],
    targets: Float[Tensor, "n classes"],
    *,
    config: OptimizerConfig,
    rng: np.random.Generator,
) -> None:
    """Move the adaptation layer in place, by cross-entropy to the targets; all else stays.

    Args:
        bottom: whose blocks gave the maps.
        head: stays as it is.
        maps: of n >= 1 samples.
        targets: probabilities of their classes.
        config: how the layer moves.
        rng: orders the samples.
    """
    device = bottom.adapt.weight.device
    maps, targets = maps.to(device), targets.to(device)
    head.requires_grad_(False)
    optimizer = make_optimizer(list(bottom.adapt.parameters()), config)
    step, steps = 0, steps_of(config, len(maps))
    with one_thread():
        for _ in range(config.epochs):
            order = torch.from_numpy(rng.permutation(len(maps)))
            for at in batches_of(order, config.batch_size):
                set_rate(optimizer, config, step, steps)
                z = F.relu(bottom.adapt(maps[at]))
                logits = head(F.normalize(z, dim=1) if bottom.unit else z)
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(logits, targets[at]).backward()
                optimizer.step()
                step += 1
