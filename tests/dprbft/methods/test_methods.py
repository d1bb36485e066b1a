"""The methods: the protocol that all keep, what a site keeps, and where noise comes from."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from site_data import with_data
from tiny_methods import side_of
from tiny_runs import fresh_state

from dprbft.config.families import CORE
from dprbft.config.schema import RunConfig
from dprbft.messages import Broadcast, Release
from dprbft.methods import (
    Method,
    RoundMethod,
    module_of,
    round_method,
)
from dprbft.methods.rounds.dprbft import own_head, site_finish
from dprbft.methods.rounds.heads import to_broadcast
from dprbft.methods.rounds.state import State
from dprbft.methods.rounds.training import keep_best
from dprbft.site.site import Site
from panas.architecture.head import Head
from panas.data.samples import Samples
from panas.privacy.accounting.events import Gaussian
from panas.privacy.noise import SystemNoise
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import stream

METHODS = sorted(CORE)
OF_ROUNDS = [name for name in METHODS if isinstance(module_of(name), RoundMethod)]
Tiny = Callable[..., RunConfig]
MakeSite = Callable[..., Site]


def fresh(site: Site) -> tuple[State, Broadcast]:
    state = fresh_state(site, histogram=(5.0,) * site.spec.classes)
    return state, to_broadcast(state.networks(site)[1], 0)


def untouchable(samples: Samples) -> Samples:
    """As many samples as before, of which nothing can be learnt: reading them gives NaN."""
    return Samples(torch.full(samples.x.shape, torch.nan), samples.y * 0, samples.classes)


def test_there_are_methods_to_test():
    assert {"dprbft", "local"} <= set(OF_ROUNDS)
    assert all(isinstance(module_of(name), Method) for name in METHODS)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_ROUNDS)
def test_a_method_keeps_the_protocol(name: str, tiny: Tiny, make_site: MakeSite, tmp_path: Path):
    site = make_site(tiny(federation__method=name), tmp_path)
    method = round_method(name)
    state, broadcast = fresh(site)
    lines = site.ledger.path.read_bytes()
    trained, message = method.site_round(site, state, broadcast, 1)
    # Only appended to, and everything that was touched is charged.
    assert site.ledger.path.read_bytes().startswith(lines)
    entries = site.ledger.account().entries
    assert [e.charge.phase for e in entries] == [
        "training",  # the noised number of training samples
        "training",
        *["release"] * (message is not None),
    ]
    assert site.ledger.account().spent() <= site.budget.epsilon
    assert trained.charges == len(entries)
    assert trained.plan.rounds == 0
    assert not all(torch.equal(trained.bottom[k], state.bottom[k]) for k in state.bottom)
    releases = []
    if message is not None:
        width, classes = site.spec.width, site.spec.classes
        releases = [Release.from_bytes(message.to_bytes(), width=width, classes=classes)]
    answer = method.server_round(side_of(site), releases, broadcast, 1, stream(0, "server"))
    assert answer.round == 1
    finished = method.site_finish(site, trained, answer, 1)
    assert finished.kept.round == 1
    assert 0 <= finished.scores.shared <= 1
    # What a site makes of the answer costs nothing.
    assert len(site.ledger.account().entries) == len(entries)
    assert state.round == 0


@pytest.mark.slow
def test_the_local_method_sends_nothing_and_spends_all_on_training(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    site = make_site(tiny(federation__method="local"), tmp_path)
    _, message = round_method("local").site_round(site, *fresh(site), 1)
    assert message is None
    account = site.ledger.account()
    assert account.spent("training") > 0.95 * site.budget.epsilon
    assert account.events("release") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_ROUNDS)
def test_nothing_is_read_if_the_ledger_refuses(
    name: str, tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    site = make_site(tiny(federation__method=name, training__noise_multiplier=0.2), tmp_path)
    site = with_data(site, replace(site.data, train=untouchable(site.data.train)))
    state, broadcast = fresh(site)
    before = site.ledger.path.read_bytes()
    with pytest.raises(BudgetExhausted):
        round_method(name).site_round(site, state, broadcast, 1)
    assert site.ledger.path.read_bytes() == before


class Counting:
    """System noise that notes who drew from it."""

    drawn: dict[str, int]

    def __init__(self) -> None:
        self._source = SystemNoise()

    def normal(self, *shape: int) -> torch.Tensor:
        Counting.drawn["normal"] += 1
        return self._source.normal(*shape)

    def uniform(self, size: int) -> torch.Tensor:
        Counting.drawn["uniform"] += 1
        return self._source.uniform(size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"), [("dprbft", {"normal": 3, "uniform": 1}), ("local", {"normal": 1})]
)
def test_private_rounds_draw_their_noise_from_the_system(
    name: str,
    least: dict,
    tiny: Tiny,
    make_site: MakeSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    Counting.drawn = {"normal": 0, "uniform": 0}
    monkeypatch.setattr("dprbft.methods.rounds.dprbft.SystemNoise", Counting)
    monkeypatch.setattr("dprbft.site.training.SystemNoise", Counting)
    site = make_site(tiny(federation__method=name), tmp_path)
    round_method(name).site_round(site, *fresh(site), 1)
    assert all(Counting.drawn[k] >= v for k, v in least.items())


@pytest.mark.slow
def test_two_rounds_from_one_state_differ_by_their_noise(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    results = []
    for run in ("a", "b"):
        site = make_site(tiny(), tmp_path / run)
        results.append(round_method("dprbft").site_round(site, *fresh(site), 1))
    (a, first), (b, second) = results
    assert not torch.equal(a.bottom["adapt.weight"], b.bottom["adapt.weight"])
    assert not torch.equal(first.arrays["B"], second.arrays["B"])


@pytest.mark.slow
def test_the_own_head_reads_only_the_release_and_the_noised_histogram(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    site = make_site(tiny(), tmp_path)
    state, broadcast = fresh(site)
    trained, message = round_method("dprbft").site_round(site, state, broadcast, 1)
    blind = with_data(
        site,
        replace(
            site.data,
            **{p: untouchable(getattr(site.data, p)) for p in ("train", "validation", "test")},
        ),
    )
    seen, unseen = (own_head(c, trained, message, broadcast) for c in (site, blind))
    assert torch.equal(seen.linear.weight, unseen.linear.weight)
    assert torch.equal(seen.linear.bias, unseen.linear.bias)
    assert torch.equal(seen.linear.weight, trained.head["linear.weight"])
    # It does follow both of its sources.
    skewed = replace(trained, histogram=(50.0, *[0.0] * 9))
    assert not torch.equal(seen.linear.bias, own_head(site, skewed, message, broadcast).linear.bias)
    other = replace(message, arrays={k: -v for k, v in message.arrays.items()})
    assert not torch.equal(
        seen.linear.weight, own_head(site, trained, other, broadcast).linear.weight
    )


def scores(monkeypatch: pytest.MonkeyPatch, table: dict[float, tuple[float, float]]) -> None:
    """Let a head score (accuracy, cross-entropy) by the value of its first weight."""
    monkeypatch.setattr(
        "dprbft.methods.rounds.training.head_scores",
        lambda z, samples, head: table[round(head.linear.weight[0, 0].item(), 2)],
    )


def head_of(site: Site, value: float) -> Head:
    head = Head(site.spec.width, site.spec.classes)
    with torch.no_grad():
        head.linear.weight.fill_(value)
    return head


def test_validation_chooses_and_ties_go_to_the_lower_loss(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = make_site(tiny(), tmp_path)
    state, _ = fresh(site)
    bottom, _ = state.networks(site)
    table = {0.1: (0.5, 2.0), 0.2: (0.5, 1.0), 0.3: (0.4, 0.1), 0.4: (0.5, 1.5), 0.5: (0.5, 0.9)}
    scores(monkeypatch, table)

    def keep(state: State, values: tuple[float, ...], round: int) -> State:
        choices = [(v, head_of(site, v)) for v in values]
        return keep_best(site, state, bottom, choices, round)

    first = keep(state, (0.1, 0.2, 0.3), 1)
    assert first.kept.blend == 0.2
    assert first.kept_head["linear.weight"][0, 0] == pytest.approx(0.2)
    worse = keep(first, (0.4,), 2)  # as accurate, but with a higher loss: round 1 stays
    assert (worse.kept.round, worse.scores.blend) == (1, 0.4)
    assert torch.equal(worse.kept_head["linear.weight"], first.kept_head["linear.weight"])
    better = keep(worse, (0.5,), 3)
    assert (better.kept.round, better.kept.blend) == (3, 0.5)
    less = keep(better, (0.3,), 4)  # a lower loss does not make up for accuracy
    assert less.kept.round == 3


def test_nothing_is_chosen_by_the_test_split(tiny: Tiny, make_site: MakeSite, tmp_path: Path):
    site = make_site(tiny(), tmp_path)
    state, broadcast = fresh(site)
    y = (site.data.test.y + 1) % site.spec.classes
    other = replace(site.data, test=Samples(site.data.test.x, y, site.data.test.classes))
    chosen = []
    for c in (site, with_data(site, other)):
        done = site_finish(c, state, replace(broadcast, weight=-broadcast.weight), 1)
        chosen.append((done.kept.blend, done.kept.validation))
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(("head", "shares"), [("shared", {0.0}), ("local", {1.0})])
def test_the_head_that_is_asked_for_is_kept(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path, head: str, shares: set
):
    site = make_site(tiny(federation__head=head), tmp_path)
    state, broadcast = fresh(site)
    answer = replace(broadcast, weight=-broadcast.weight, round=1)
    done = site_finish(site, state, answer, 1)
    assert done.kept.blend in shares
    wanted = answer.weight if head == "shared" else broadcast.weight
    assert torch.equal(done.kept_head["linear.weight"], wanted)
    assert torch.equal(done.head["linear.weight"], answer.weight)


def test_a_round_without_releases_leaves_the_head(tiny: Tiny, make_site: MakeSite, tmp_path: Path):
    site = make_site(tiny(), tmp_path)
    _, broadcast = fresh(site)
    answer = module_of("dprbft").server_round(side_of(site), [], broadcast, 4, stream(0))
    assert answer.round == 4
    assert torch.equal(answer.weight, broadcast.weight)


def test_unprotected_training_is_charged_as_such(tiny: Tiny, make_site: MakeSite, tmp_path: Path):
    config = tiny(privacy__epsilon=float("inf"), privacy__allow_unprotected=True)
    site = make_site(config, tmp_path)
    state, message = round_method("dprbft").site_round(site, *fresh(site), 1)
    account = site.ledger.account()
    assert account.spent() == float("inf")
    assert not any(isinstance(e, Gaussian) for e in account.events())
    assert message.noise_multiplier is None
    assert state.plan is None
