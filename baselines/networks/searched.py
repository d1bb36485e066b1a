"""A space of networks that gradients search, for images (`darts`) or tables (`mlp_space`).

What a search needs of either: the super-network, what it chooses, and the chosen network, which may
be larger than its cells in the search.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from baselines.networks.darts import DartsSpace, Discrete, Genotype, SuperNetwork, discretised
from baselines.networks.mlp_space import MixedMLP, MLPSpace, chosen_mlp, discretised_mlp
from panas.architecture.mixture import Mixture

Space = DartsSpace | MLPSpace


@dataclass(frozen=True, kw_only=True)
class SearchedNetworks:
    """One kind of space at two sizes."""

    search: Space
    evaluation: Space

    def super_network(self) -> SuperNetwork | MixedMLP:
        """All architectures at once."""
        if isinstance(self.search, DartsSpace):
            return SuperNetwork(self.search)
        return MixedMLP(self.search)

    def chosen(self, network: nn.Module) -> dict[str, Any]:
        """The architecture of a super-network's largest shares, as plain JSON."""
        if isinstance(network, SuperNetwork):
            return discretised(network).to_json()
        assert isinstance(network, MixedMLP)
        return {"blocks": list(discretised_mlp(network))}

    def network(self, architecture: Mapping[str, Any]) -> nn.Module:
        """The network of an architecture, at the size of the evaluation."""
        if isinstance(self.evaluation, DartsSpace):
            return Discrete(self.evaluation, Genotype.checked(architecture, self.evaluation))
        return chosen_mlp(self.evaluation, architecture)


def alphas_of(network: nn.Module) -> list[nn.Parameter]:
    """The architecture parameters of a super-network; none of any other."""
    return [m.weight for m in network.modules() if isinstance(m, Mixture)]


def weights_but_alphas(network: nn.Module) -> list[nn.Parameter]:
    """All other parameters."""
    known = {id(p) for p in alphas_of(network)}
    return [p for p in network.parameters() if id(p) not in known]
