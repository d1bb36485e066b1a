"""A site's part of a round: algorithm 4.1, lines 34 to 38. Charges come before touches."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from baselines.candidates.progress import GLOBAL
from baselines.candidates.site import BACKWARD, Here, label_counts, right_and_wrong
from baselines.common.orders import are_whole, check_record, check_rows, check_weights
from baselines.common.spending import Planned, after_round, begin
from baselines.common.training import LocalTraining, train_locally
from baselines.networks.cnns import macs_of, weights_of
from baselines.networks.pruning import prunable, with_widths
from dprbft.config.schema import rounds_of
from dprbft.methods.updates.contract import NOTHING, Turn
from dprbft.site.site import Client
from dprbft.updates import Bundle, Order, Update, named
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.training.any_model import accuracy_of, logits_of
from panas.training.sgd import OptimizerConfig

NAME = re.compile(r"gm|[0-9]{1,6}-[0-9]{1,4}")
"""Of the global network, or of a candidate: its iteration and the layer that is pruned."""
STEPS = (
    ("start", "both"),
    ("final", "both"),
    *(("search", step) for step in ("train", "send", "both")),
)
"""Phases with what they ask of sites."""


@dataclass(frozen=True)
class SiteWork:
    """How a site trains, and how it plans."""

    whole: nn.Sequential  # GM_0, whose weights do not matter
    optimizer: OptimizerConfig
    planned: Planned  # of DP-SGD; rounds and releases are set as they are known

    def network(
        self, client: Client, widths: Sequence[int], weights: Mapping[str, Tensor]
    ) -> nn.Sequential:
        """A network of these widths, on the site's device."""
        model = with_widths(self.whole, widths)
        model.load_state_dict(dict(weights))
        return model.to(client.device)


def check_networks(client: Client, order: Order, work: SiteWork) -> None:
    """Refuse an order that holds other than pruned networks of the given one, to train or to send,
    or a result that is not one of these."""
    record, arrays, whole = order.bundle.record, order.bundle.arrays, work.whole
    rounds = client.config.federation.planned_rounds
    if order.round > rounds:
        check_record(record, widths=list, frontier=list)
        check_rows(record["frontier"], rounds + 1)  # of each iteration, and of the network before
        jobs = [{"id": GLOBAL, "widths": record["widths"]}]
    elif record.get("step") == "send":
        check_record(record, phase=str, step=str, report=bool, send=list)
        check_weights(arrays, {})
        if not all(isinstance(id, str) for id in record["send"]):
            raise BadInput("expected names of networks to send in an order, got others")
        jobs = []
    else:
        check_record(record, phase=str, step=str, report=bool, jobs=list)
        jobs = record["jobs"]
        check_rows(jobs, len(prunable(whole)))
    if order.round <= rounds and (record["phase"], record["step"]) not in STEPS:
        raise BadInput("expected a step of the search in an order, got another")
    like = dict[str, Tensor]()
    for job in jobs:
        check_record(job, id=str, widths=list)
        if not (NAME.fullmatch(job["id"]) and are_whole(job["widths"])):
            raise BadInput("expected a network's name and widths in an order, got others")
        model = with_widths(whole, job["widths"])  # BadInput for widths beyond the whole network's
        like |= named(job["id"], model.state_dict())
    if len({job["id"] for job in jobs}) < len(jobs):
        raise BadInput("expected each network once in an order, got one again")
    check_weights(arrays, like)


@dataclass
class _Done:
    """What a site has done in a round so far."""

    here: Here
    kept: dict[str, Tensor]  # weights in its memory
    sent: dict[str, Tensor] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    receipts: list[str] = field(default_factory=list)
    macs: float = 0.0
    local: float | None = None
    shared: float | None = None


def site_round(client: Client, memory: Bundle, order: Order, work: SiteWork) -> Turn:
    """Train and test what was sent, or send what was trained before; counts what that costs."""
    asked, here = order.bundle.record, Here.from_json(memory.record)
    done = _Done(here=here, kept=named(GLOBAL, memory.part(GLOBAL)))
    if asked["step"] == "send":
        _send(done, memory, asked["send"])
    else:
        if asked["phase"] == "final" and not here.final:
            done.here = _replanned(client, here, order.round, work.planned)
        for job in asked["jobs"]:
            _train(client, done, order, work, job)
    update, up = NOTHING, 0
    if done.receipts:
        update = Bundle(done.sent, {"samples": client.units, **done.told})
        message = Update(client.id, order.round, update, tuple(done.receipts))
        up = len(message.to_bytes())
    here = done.here.paid(asked["phase"], done.macs, (len(order.to_bytes()), up))
    return Turn(
        memory=Bundle(done.kept, here.to_json()),
        update=update,
        receipts=tuple(done.receipts),
        local=done.local,
        shared=done.shared,
    )


def _train(
    client: Client, done: _Done, order: Order, work: SiteWork, job: Mapping[str, Any]
) -> None:
    """Train one network, and test it where that decides something; the first time, the label
    counts leave too. Weights of networks that may be dropped wait for the next order."""
    asked, id, here = order.bundle.record, job["id"], done.here
    model = work.network(client, job["widths"], order.bundle.part(id))
    shared = accuracy_of(logits_of(model, client.data.test), client.data.test)
    how = LocalTraining(optimizer=work.optimizer, round=order.round)
    spending, receipt = train_locally(client, model, client.data.train, here.spending, how)
    if receipt is None:  # the budget pays for no more
        done.here = replace(here, spending=spending)
        return
    if not here.told:
        noise = spending.plan.release_noise if spending.plan else None
        done.told["labels"], charge = label_counts(client, noise, order.round)
        done.receipts.append(charge)
    spending = after_round(client, spending, releases=int(not here.told))
    done.here = replace(here, spending=spending, told=True)
    macs = macs_of(model, client.spec.shape)
    done.macs += BACKWARD * macs * work.optimizer.epochs * len(client.data.train)
    weights = weights_of(model)
    if asked["step"] == "both":
        done.sent |= named(id, weights)
        done.receipts.append(receipt)
    else:
        done.kept |= named(id, weights)
        done.here = replace(done.here, waiting={**done.here.waiting, id: receipt})
    if asked["report"] and (here.counting is not None or not client.budget.private):
        done.macs += macs * len(client.data.validation)
        _report(client, done, order, id, model)
    if done.local is None:
        done.shared = shared
        done.local = accuracy_of(logits_of(model, client.data.test), client.data.test)
        others = {k: a for k, a in done.kept.items() if not k.startswith(f"{GLOBAL}.")}
        done.kept = others | named(GLOBAL, weights)
        done.here = replace(done.here, widths=tuple(job["widths"]))


def _report(client: Client, done: _Done, order: Order, id: str, model: nn.Module) -> None:
    """Right and wrong answers of a network; nothing where processes that died have spent it."""
    try:
        counts, charge = right_and_wrong(client, model, done.here.counting, order.round)
    except BudgetExhausted:
        return
    done.told["counts"] = {**done.told.get("counts", {}), id: counts}
    done.receipts.append(charge)


def _send(done: _Done, memory: Bundle, ids: Sequence[str]) -> None:
    """The weights of what was trained and not dropped; nothing waits any more."""
    waiting = done.here.waiting
    for id in ids:
        if id in waiting:
            done.sent |= named(id, memory.part(id))
            done.receipts.append(waiting[id])
    done.here = replace(done.here, waiting={})


def _replanned(client: Client, here: Here, round: int, planned: Planned) -> Here:
    """What the search has not spent is shared among the last rounds."""
    left = sum(r >= round for r in rounds_of(client.config, client.id))
    plan, here = here.spending.plan, replace(here, final=True)
    if plan is None or (plan.rounds == left and here.told):
        return here
    try:
        again = replace(planned, rounds=left, releases=int(not here.told))
        return replace(here, spending=begin(client, again))
    except BudgetExhausted:
        return here
