"""A malicious head against DPRBFT: the server's only channel, used to learn how clients see.

A server of split learning sends gradients (`attacks.hijacking.fsha`). DPRBFT's sends a head and
nothing else, and clients train their bottom under it by cross-entropy. So the server makes a head
that draws bottoms towards one that it knows: on public samples it trains a pilot bottom, a head
and a decoder together,

    cross-entropy(g(f(x)), y) + reconstruction |d(f(x)) - x|^2 / |x - mean|^2

so that f keeps of x what d needs, and g serves such an f. It broadcasts g. Clients are honest and
train under g; the server inverts what they release with what it learns on the pilot's own
representations: any inverter of `attacks` does, on an `Observation[MaliciousHead]`.

What it can hope for is bounded by what a head can ask for. Cross-entropy looks at z along k - 1
directions alone: all others stay the client's own (read with `Observation.along_head`), and within
a class nothing asks a client to tell samples apart. With small logits (`sharpness` below 1) a head
pulls harder and aligns more of z; what is aligned then holds less of the image.

| symbol | name |
|---|---|
| f, g, d | `pilot`, `head`, `decoder` |
| k | number of classes |

Source: Pasquini et al. 2021 (feature-space hijacking), carried over to where no gradient is sent.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attacks.reconstruction.decoder import Decoder
from attacks.threats.knowledge import MaliciousHead
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, Head, NetworkSpec, initialise
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator


@dataclass(frozen=True, kw_only=True)
class Making:
    """How a malicious head is made.

    Attributes:
        reconstruction: weight of the decoder's relative error beside cross-entropy, 0 or more;
            0 gives the head of an honest training on public samples.
        sharpness: what the weights of the trained head are multiplied with, above 0.
        epochs: passes over the public samples, at least 1.
        learning_rate: of Adam, above 0; lowered to 0 by a cosine.
        batch_size: at least 2.

    """

    reconstruction: float = 1.0
    sharpness: float = 1.0
    epochs: int = 30
    learning_rate: float = 0.005
    batch_size: int = 32


DEFAULT = Making()


def make_malicious_head(
    spec: NetworkSpec,
    genome: Genome,
    public: Samples,
    *,
    rng: np.random.Generator,
    config: Making = DEFAULT,
    start: Bottom | None = None,
    on_epoch: Callable[[int, int], None] | None = None,
) -> tuple[Head, MaliciousHead]:
    """Train the head to broadcast, and the pilot that says what clients will release under it.

    Args:
        spec: what all networks of the federation share.
        genome: the pilot's architecture: the client's, where the server knows it.
        public: at least 2 samples to learn from.
        rng: initial weights and batches.
        config: weights and lengths of the training.
        start: the pilot to begin with, trained in place: one that was warm-started as clients are
            begins where they begin. None draws one.
        on_epoch: told (epochs done, of all).

    Returns:
        The head, which passes every check that clients make of a broadcast, and what the server
        knows: the pilot, in evaluation mode.

    Raises:
        BadInput: for settings out of range, or fewer than 2 public samples.

    Privacy: reads public samples only. What a client releases under such a head is covered by its
    ledger as under any other: heads are the server's to choose in every guarantee of this project.
    Source: see the module.

    """
    _check(config, public)
    generator = torch_generator(rng)
    pilot = spec.bottom(genome, generator) if start is None else start
    head = spec.head(generator)
    decoder = Decoder(spec.width, spec.shape)
    initialise(decoder, generator)
    together = nn.ModuleList([pilot, head, decoder]).train().requires_grad_(True)
    optimiser = torch.optim.Adam(together.parameters(), lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.epochs)
    images = public.inputs()
    spread = (images - images.mean(0)).square().mean().clamp(min=1e-9)
    for epoch in range(config.epochs):
        for batch in torch.from_numpy(rng.permutation(len(public))).split(config.batch_size):
            if len(batch) == 1:
                continue  # BatchNorm cannot normalise it
            x, z = images[batch], pilot(images[batch])
            loss = F.cross_entropy(head(z), public.y[batch])
            loss = loss + config.reconstruction * F.mse_loss(decoder(z), x) / spread
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        schedule.step()
        if on_epoch:
            on_epoch(epoch + 1, config.epochs)
    with torch.no_grad():
        for p in head.parameters():
            p.mul_(config.sharpness)
    return head.requires_grad_(False).eval(), MaliciousHead(pilot.eval())


def _check(config: Making, public: Samples) -> None:
    counts = config.epochs >= 1 and config.batch_size >= 2 and len(public) >= 2
    if not (
        counts and config.learning_rate > 0 and config.reconstruction >= 0 and config.sharpness > 0
    ):
        raise BadInput(
            "expected two or more public samples and a batch, an epoch, a learning rate and a "
            f"sharpness above 0 and a weight of 0 or more, got {len(public)} samples and {config}; "
            "change the settings"
        )
