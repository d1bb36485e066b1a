"""FEATHERS's own settings, and what follows from them: stages, sets of settings, networks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from torch import nn

from baselines.common.bandit import (
    Bandit,
    Course,
    Setting,
    begin_phases,
    longest_phase,
    most_measured,
    settings_of,
)
from baselines.common.options import options_of
from baselines.networks.cnns import initialise
from baselines.networks.darts_space import DartsSpace
from baselines.networks.mlp_space import MLPSpace
from baselines.networks.searched import SearchedNetworks
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig
from panas.data.facts import Facts
from panas.runtime.seeds import stream, torch_generator

Stage = Literal["search", "evaluation"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]


class Options(Section):
    """Hyperparameters to choose from, phases, local training, and the sizes of networks."""

    learning_rates: tuple[Positive, ...] = (1.0, 0.5, 0.2)  # of weights
    momenta: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = (0.0,)  # of weights
    architecture_rates: tuple[Positive, ...] = (0.5,)  # learning rates of alphas
    search_share: Share = 0.5  # of the rounds, for the search stage
    phase_rounds: Count = 3  # rounds of a training phase
    estimate_rate: Share = 0.5  # alpha of Eq. 6
    exploration: Annotated[float, Field(ge=0)] = 1.5  # beta: HO rounds for a nat of entropy
    temperature: Positive = 1.0  # of the softmax over estimates
    batch_size: Count = 32  # under DP an expected one
    epochs: Count = 1  # passes a round
    clip: Positive = 1.0  # norm of a sample's gradient under DP, of weights or of alphas
    reward_clip: Positive = 1.0  # of a sample's change of loss under DP
    reward_share: Share = 0.2  # of epsilon on "search", sizes the noise of rewards
    architecture_share: Share = 0.5  # of training samples, for architecture and rewards
    lookahead: bool = False  # alphas see the weights a step ahead; costs another round
    balance: bool = False  # classes count alike in the loss
    balance_share: Share = 0.05  # of epsilon on "train", sizes the noise of its histogram
    cells: Count = 3  # of images' super-network
    channels: Count = 4  # of its first cell
    nodes: Count = 2  # of a cell
    evaluation_cells: Count = 3  # of the chosen network
    evaluation_channels: Count = 8
    blocks: Count = 3  # of tables' networks
    width: Count = 32  # numbers between their blocks

    @field_validator("learning_rates", "momenta", "architecture_rates")
    @classmethod
    def _some(cls, menu: tuple[float, ...]) -> tuple[float, ...]:
        if not menu:
            raise ValueError("to hold a hyperparameter to choose")
        return menu

    def settings(self, stage: Stage) -> tuple[Setting, ...]:
        """The set H of a stage."""
        menus = {"learning_rate": self.learning_rates, "momentum": self.momenta}
        if stage == "search":
            menus["architecture_rate"] = self.architecture_rates
        return settings_of(menus)


def search_rounds(config: RunConfig) -> int:
    """Rounds of the search stage; at least one, and one is left for the evaluation."""
    rounds, o = config.federation.rounds, options_of(config, Options)
    return min(rounds - 1, max(1, round(o.search_share * rounds)))


def most_trials(config: RunConfig) -> int:
    """Rounds that measure, at most: what rewards are planned for."""
    o, last = options_of(config, Options), search_rounds(config)
    stages: tuple[tuple[Stage, int], ...] = (
        ("search", last),
        ("evaluation", config.federation.rounds - last),
    )
    return sum(
        most_measured(n, longest_phase(len(o.settings(s)), o.exploration), o.phase_rounds)
        for s, n in stages
    )


def stage_begun(config: RunConfig, stage: Stage) -> Course:
    """The phases of a stage, from its first HO phase on; no setting is known."""
    o, last = options_of(config, Options), search_rounds(config)
    fresh = Bandit.fresh(
        len(o.settings(stage)),
        rate=o.estimate_rate,
        exploration=o.exploration,
        temperature=o.temperature,
    )
    rounds = last if stage == "search" else config.federation.rounds - last
    return begin_phases(fresh, rounds, o.phase_rounds, stream(config.seed, "feathers", stage))


def space_of(config: RunConfig, facts: Facts) -> SearchedNetworks:
    """The space for images, or for tables."""
    o, shape, classes = options_of(config, Options), facts.shape, facts.classes
    if facts.columns:
        inputs = shape[0] * shape[1] * shape[2]
        table = MLPSpace(inputs=inputs, classes=classes, blocks=o.blocks, width=o.width)
        return SearchedNetworks(search=table, evaluation=table)
    small = DartsSpace(
        shape=shape, classes=classes, cells=o.cells, channels=o.channels, nodes=o.nodes
    )
    large = replace(small, cells=o.evaluation_cells, channels=o.evaluation_channels)
    return SearchedNetworks(search=small, evaluation=large)


def network_of(
    config: RunConfig, facts: Facts, architecture: Mapping[str, Any] | None
) -> nn.Module:
    """The super-network, or that of an architecture, with weights from the run's seed."""
    space = space_of(config, facts)
    model = space.super_network() if architecture is None else space.network(architecture)
    purpose = "super-network" if architecture is None else "network"
    return initialise(model, torch_generator(stream(config.seed, "feathers", purpose)))
