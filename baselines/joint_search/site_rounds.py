"""A site's round in FEATHERS: what it keeps, charges, trains and measures (algorithms 2 to 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from baselines.common.bandit import Phase, Setting
from baselines.common.halves import Halves, halves
from baselines.common.options import options_of
from baselines.common.orders import check_record, check_rows, check_weights
from baselines.common.spending import Mechanism, Spending, after_round, charged
from baselines.joint_search.alternating import Descent, Steps, alternate
from baselines.joint_search.rewards import balancing, loss_change, weighted_loss
from baselines.joint_search.settings import Options, Stage, network_of, search_rounds
from baselines.networks.cnns import weights_of
from baselines.networks.searched import alphas_of, weights_but_alphas
from dprbft.site.site import Client
from dprbft.updates import Bundle, Order
from panas.privacy.accounting.events import Gaussian
from panas.privacy.calibration import release_multiplier
from panas.privacy.ledger.receipt import Receipt
from panas.privacy.noise import SystemNoise
from panas.privacy.release.histogram import unit_counts
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.seeds import stream
from panas.training.any_model import logits_of
from panas.training.sgd import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class SiteState:
    """What a site keeps beside the network."""

    weights: Spending  # on "train"
    alphas: Spending  # on "search", of the architecture and of rewards
    class_weights: tuple[float, ...]  # of the loss; () for a plain one
    architecture: Mapping[str, Any] | None = None  # that the network is of; None: of all
    trace: Sequence[Mapping[str, Any]] = ()  # of the server, at the end
    passes: int = 0  # samples that the search stage went through, forward and backward

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        spent = {"weights": self.weights.to_json(), "alphas": self.alphas.to_json()}
        return {**asdict(self), **spent}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "SiteState":
        """Read back `to_json`."""
        spent = {name: Spending.from_json(record[name]) for name in ("weights", "alphas")}
        return SiteState(**{**record, **spent, "class_weights": tuple(record["class_weights"])})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a site is to do in a round."""

    stage: Stage
    phase: Phase
    setting: Setting
    architecture: Mapping[str, Any] | None


def check_trial(client: Client, memory: Bundle, order: Order) -> None:
    """Refuse an order that is no setting of its stage, and the network to try it on; and a result
    that is no network with the trace of the settings."""
    record, c = order.bundle.record, client.config
    searches = order.round <= search_rounds(c)
    architecture = type(None) if searches else dict
    if order.round > c.federation.rounds:
        check_record(record, architecture=architecture, trace=list)
        check_rows(record["trace"], c.federation.rounds)
    else:
        check_record(record, architecture=architecture, stage=str, phase=str, setting=dict)
        stage: Stage = "search" if searches else "evaluation"
        known = record["setting"] in options_of(c, Options).settings(stage)
        if record["stage"] != stage or record["phase"] not in ("ho", "train") or not known:
            raise BadInput(f"expected a setting of the {stage} stage in an order, got another")
    like = dict(memory.arrays)
    if record["architecture"] != memory.record["architecture"]:
        like = weights_of(network_of(c, client.facts, record["architecture"]))
    check_weights(order.bundle.arrays, like)


def parts_of(client: Client) -> Halves:
    """A site's training samples, for weights and for the architecture."""
    return halves(client, options_of(client.config, Options).architecture_share)


def balanced(client: Client, o: Options, parts: Halves) -> tuple[float, ...]:
    """Weights of the classes in the loss, by public labels; without any, by noised counts.

    Counts are charged before they are read. No weights, and nothing is read, where that share of
    the budget is too small for any noise.
    """
    if len(client.public):
        return balancing(client.public.histogram().double().tolist())
    event = None
    if client.budget.private:
        try:
            event = Gaussian(release_multiplier(client.budget, 1, o.balance_share))
        except BudgetExhausted:
            return ()
    with charged(client, Mechanism("label-histogram", 1.0, phase="search"), event, 0):
        counts = unit_counts(parts.weights.y, parts.weights.groups, client.spec.classes)
        if event is None:
            return balancing(counts.tolist())
        counts = counts + event.noise_multiplier * SystemNoise().normal(len(counts))
    return balancing(counts.tolist(), event.noise_multiplier)


def charge_round(client: Client, site: SiteState, trial: Trial, round: int) -> list[Receipt] | None:
    """Charge all that a round reads; None, and nothing is charged, where a plan is used up."""
    weights, alphas = site.weights, site.alphas
    searches, measures = trial.stage == "search", trial.phase == "ho"
    if weights.skips or (searches and alphas.skips):
        return None
    if measures and alphas.plan is not None and not alphas.plan.releases:
        return None
    o = options_of(client.config, Options)
    name, clip = ("dp-sgd", o.clip) if client.budget.private else ("sgd", None)
    plans = [weights] * (2 if searches and o.lookahead else 1) + [alphas] * searches
    found = [
        charged(
            client,
            Mechanism(name, clip, subset=s.subset),
            s.plan.training_event if s.plan else None,
            round,
        )
        for s in plans
    ]
    if measures:
        event = alphas.plan.release_event if alphas.plan else None
        mechanism = Mechanism("reward", o.reward_clip, phase="release", subset="search")
        found.append(charged(client, mechanism, event, round))
    return found


def after_charges(client: Client, site: SiteState, trial: Trial) -> SiteState:
    """The plans after a round's charges, and the samples that it went through."""
    o, parts = options_of(client.config, Options), parts_of(client)
    times = 2 if trial.stage == "search" and o.lookahead else 1
    weights, passes = site.weights, times * len(parts.weights) + len(parts.architecture)
    for _ in range(times):
        weights = after_round(client, weights)
    alphas = after_round(client, site.alphas, releases=int(trial.phase == "ho"))
    passes = o.epochs * passes if trial.stage == "search" else 0
    return replace(site, weights=weights, alphas=alphas, passes=site.passes + passes)


def train(
    client: Client, model: nn.Module, site: SiteState, trial: Trial, round: int
) -> float | None:
    """Train a model in place, and tell how its loss changed where that is measured."""
    o, parts, loss = (
        options_of(client.config, Options),
        parts_of(client),
        weighted_loss(site.class_weights),
    )

    def steps(purpose: str, moving: list[nn.Parameter], rate: str, spending: Spending) -> Steps:
        momentum = trial.setting["momentum"] if purpose == "weights" else 0.0
        how = Descent(
            samples=parts.architecture if purpose == "alphas" else parts.weights,
            plan=spending.plan,
            optimizer=OptimizerConfig(
                learning_rate=trial.setting[rate],
                momentum=momentum,
                batch_size=o.batch_size,
                epochs=o.epochs,
            ),
            loss=loss,
            rng=stream(client.config.seed, "client", client.id, "round", round, purpose),
        )
        return Steps(model, moving, how)

    def losses() -> Tensor:
        with torch.no_grad():
            return loss(logits_of(model, parts.architecture), parts.architecture.y)

    before = losses() if trial.phase == "ho" else None
    own, alphas, ahead = weights_but_alphas(model), None, None
    if trial.stage == "search":
        alphas = steps("alphas", alphas_of(model), "architecture_rate", site.alphas)
        ahead = steps("ahead", own, "learning_rate", site.weights) if o.lookahead else None
    alternate(steps("weights", own, "learning_rate", site.weights), alphas, ahead)
    if before is None:
        return None
    plan = site.alphas.plan
    noise = (plan.release_event.noise_multiplier, SystemNoise()) if plan else None
    n = plan.samples if plan else None
    return loss_change(before, losses(), parts.architecture, o.reward_clip, noise, n)
