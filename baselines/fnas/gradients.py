"""What a site of DP-FNAS sends in a round: gradients of W, of A (equations 5 to 7), or both."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from baselines.common.options import options_of
from baselines.fnas.batches import Part, batch_gradient
from baselines.fnas.networks import loaded
from baselines.fnas.schedule import Options, asked
from baselines.networks.darts import Pair, SuperNetwork, is_alpha
from dprbft.site.site import Client
from dprbft.updates import Order
from panas.privacy.gradients.per_sample import cross_entropy
from panas.privacy.noise import NoiseSource, ReproducibleNoise, SystemNoise
from panas.privacy.plan import Plan
from panas.runtime.seeds import stream


def gradients_of(
    client: Client, network: nn.Module, order: Order, parts: Mapping[str, Part]
) -> dict[str, Tensor]:
    """What a round sends, by name of the parameter."""
    o, wanted = options_of(client.config, Options), asked(client.config, order.round)
    noise = _noise(client, order.round, [part.plan for part in parts.values()])
    found = dict[str, Tensor]()
    if wanted == "E":
        return batch_gradient(network, [*parts.values()], noise, clip=o.clip)
    if "W" in wanted:
        _only(network, alphas=False)
        found |= batch_gradient(network, [parts["train"]], noise, clip=o.clip)
    if "A" in wanted:
        _only(network, alphas=True)
        found |= batch_gradient(network, [parts["search"]], noise, clip=o.architecture_clip)
        if o.order == "second":
            for name, extra in _difference(client, network, order, parts, noise).items():
                found[name] -= extra
    return found


def _difference(
    client: Client, network: nn.Module, order: Order, parts: Mapping[str, Part], noise: NoiseSource
) -> dict[str, Tensor]:
    """The second term of equation 7: xi / 2 epsilon times the change of the training gradient of A
    from W- to W+, which lie on the (noised) validation gradient at W' through the W before."""
    o = options_of(client.config, Options)
    _only(network, alphas=False)
    direction = batch_gradient(network, [parts["search"]], noise, clip=o.clip)
    length = float(torch.cat([g.double().flatten() for g in direction.values()]).norm())
    step, before = o.difference / max(length, 1e-12), order.bundle.part("before")
    sides = list[SuperNetwork]()
    for sign in (1.0, -1.0):
        moved = {n: w + sign * step * direction[n] for n, w in before.items()}
        side = loaded(client, order.bundle)
        side.load_state_dict({**side.state_dict(), **moved})
        _only(side, alphas=True)
        assert isinstance(side, SuperNetwork)
        sides.append(side)
    scale = o.learning_rate / (2 * step)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        plus, minus = (cross_entropy(outputs[:, i], y) for i in (0, 1))
        return scale * (plus - minus)

    pair = Pair(sides[0], sides[1])
    found = batch_gradient(pair, [parts["train"]], noise, clip=o.architecture_clip, loss=loss)
    return {name.removeprefix("plus."): g for name, g in found.items()}


def _only(network: nn.Module, *, alphas: bool) -> None:
    """Let A move, or W."""
    for name, p in network.named_parameters():
        p.requires_grad_(is_alpha(name) == alphas)


def _noise(client: Client, round: int, plans: Sequence[Plan | None]) -> NoiseSource:
    """Of batches and mechanisms; without protection it repeats."""
    if any(plan is not None for plan in plans):
        return SystemNoise()
    return ReproducibleNoise(stream(client.config.seed, "client", client.id, "round", round))
