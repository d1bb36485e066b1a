"""The settings of DP-FNAS, and what they ask of each round."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from baselines.common.options import options_of
from baselines.networks.darts_space import NONE, OPERATIONS
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Options(Section):
    """Settings of the search, of the network that it leads to, and of both networks' sizes."""

    search_share: Share = 0.4  # of all rounds; in the others the last network is trained
    exchange: Literal["alternate", "together"] = "alternate"  # together: one round an iteration
    order: Literal["first", "second"] = "first"  # second: equations 5 and 7
    difference: Positive = 0.01  # length of the step from W to W+ and W- (order = "second")
    strongest: Count = 2  # edges of a node that are kept
    architecture_share: Share = 0.5  # chance of a training sample to be of the validation part
    batch_size: Count = 64  # B, expected, of each part
    clip: Positive = 1.0  # R_G, norm of a sample's gradient of W
    architecture_clip: Positive = 0.1  # R_H, norm of a sample's gradient of A
    noise_multiplier: Positive | None = None  # sigma and tau; None: the least in the budget
    evaluation: Literal["private", "plain"] = "private"  # plain: the last network without noise
    steps_a_charge: Count = 10  # that the ledger notes, and prices, at once
    learning_rate: Positive = 0.3  # xi, of W
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of both descents of weights
    architecture_rate: Positive = 10.0  # eta, of A
    evaluation_rate: Positive = 0.3  # of the last network
    cells: Count = 2  # of the super-network
    channels: Count = 4  # of its first cell
    nodes: Count = 2  # of a cell
    stem: Count = 3  # channels of the first convolution, as a multiple
    operations: tuple[str, ...] = OPERATIONS
    evaluation_cells: Count = 3  # of the last network
    evaluation_channels: Count = 8  # of its first cell
    measure_every: Count = 5  # rounds

    @model_validator(mode="after")
    def _fits(self) -> "Options":
        unknown = [name for name in self.operations if name not in OPERATIONS]
        if unknown or len({*self.operations} - {NONE}) < 1:
            raise ValueError(f"operations among {', '.join(OPERATIONS)}, at least one but none")
        if len({*self.operations}) < len(self.operations):
            raise ValueError("operations that are named once each")
        if self.order == "second" and self.exchange == "together":
            raise ValueError('exchange = "alternate" with order = "second"')
        return self


def least_search(config: RunConfig) -> int:
    """The rounds of one iteration of the search, which has a step of W and one of A."""
    return 1 if options_of(config, Options).exchange == "together" else 2


def search_rounds(config: RunConfig) -> int:
    """How many of the rounds search; in the others the last network is trained."""
    rounds, o = config.federation.rounds, options_of(config, Options)
    return max(least_search(config), min(rounds - 1, round(o.search_share * rounds)))


def asked(config: RunConfig, round: int) -> str:
    """What sites send in a round: gradients of "W", "A", both, or "E" of the last network."""
    if round > search_rounds(config):
        return "E"
    if options_of(config, Options).exchange == "together":
        return "WA"
    return "W" if round % 2 else "A"


def reads(config: RunConfig, round: int) -> list[str]:
    """The part that each batch of a round is drawn from, as the ledger names it."""
    of_alphas = ["search"]
    if options_of(config, Options).order == "second":
        of_alphas = ["search", "search", "train"]
    both = ["train", "search"]
    return {"W": ["train"], "A": of_alphas, "WA": both, "E": both}[asked(config, round)]
