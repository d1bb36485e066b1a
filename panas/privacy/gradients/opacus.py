"""The fast per-sample gradients of `panas.privacy.gradients.layer_rules`, for users of Opacus.

    from panas.privacy.gradients.opacus import register
    register()

From then on Opacus's hooks take those of convolutions, linear layers and group norms from here;
clipping, noise and accountants stay Opacus's.
"""

from collections.abc import Callable

from torch import Tensor, nn

from panas.privacy.gradients.layer_rules import rule_for


def register() -> None:
    """Put the samplers into Opacus's registry, for this process; doing it twice changes nothing."""
    from opacus.grad_sample import GradSampleModule, register_grad_sampler

    for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.GroupNorm):
        own_sampler = GradSampleModule.GRAD_SAMPLERS[kind]
        if getattr(own_sampler, "__module__", "") == __name__:
            continue

        def sampler(
            layer: nn.Module,
            activations: list[Tensor],
            backprops: Tensor,
            *,
            otherwise: Callable[..., dict[nn.Parameter, Tensor]] = own_sampler,
        ) -> dict[nn.Parameter, Tensor]:
            rule = rule_for(layer)
            if rule is None:
                return otherwise(layer, activations, backprops)
            _, kept = rule.forward(layer, activations[0])
            _, grads = rule.backward(layer, activations[0], kept, backprops, False)
            named = layer.named_parameters(recurse=False)
            return {p: grads[name].values for name, p in named if p.requires_grad}

        register_grad_sampler(kind)(sampler)
