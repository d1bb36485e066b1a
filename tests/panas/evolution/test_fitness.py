"""Training as a fitness: in shares as in one go, and what a child takes over from its parent."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_blocks import OWN
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, Head, NetworkSpec, Norm
from panas.architecture.space import (
    SearchSpace,
    add,
    alter,
    crossover,
    exchange,
    random_genome,
    remove,
)
from panas.data.samples import Samples
from panas.evolution.fitness import DataFreeFitness, TrainingFitness, inherit
from panas.evolution.halving import ResumableFitness, TrainingJob
from panas.runtime.store import pack_tensors, unpack_tensors
from panas.training.sgd import OptimizerConfig, Trainer

SHAPE = (1, 8, 8)
BLUEPRINT = NetworkSpec(shape=SHAPE, classes=3, width=6, unit=False, head_init="random")
HOW = OptimizerConfig(learning_rate=0.02, optimiser="adam", batch_size=8, epochs=5, decay="cosine")
GENOME = Genome.parse("c4k3-max-c6k3")
SPACE = SearchSpace(shape=SHAPE, min_blocks=2, max_blocks=5, widths=(4, 6), blocks=OWN[:1])


def data(n: int, seed: int = 2) -> Samples:
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randint(120, (n, *SHAPE), generator=g) + 60 * y[:, None, None, None]
    return Samples(x.to(torch.uint8), y, 3)


def fitness(norm: Norm = "group", optimizer: OptimizerConfig = HOW, n: int = 20) -> TrainingFitness:
    return TrainingFitness(data(n), data(60, 3), replace(BLUEPRINT, norm=norm), optimizer, 7, 0)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("shares", [(0.5,), (0.1, 0.3, 0.9), (0.2, 0.4, 0.6, 0.8)])
def test_in_shares_as_in_one_go(norm: Norm, shares: tuple[float, ...]) -> None:
    trained = fitness(norm)
    whole = trained.advance(TrainingJob(GENOME, keep=True))
    assert whole.passes == 5 * 20
    assert trained(GENOME) == whole.fitness
    state, passes, scores = None, 0, []
    for share in (*shares, 1.0):
        # A fitness of its own, as another process has it.
        outcome = fitness(norm).advance(TrainingJob(GENOME, share, state, keep=True))
        state, passes = outcome.state, passes + outcome.passes
        assert passes == 20 * max(1, round(share * 5))
        scores.append(outcome.fitness)
    assert state == whole.state
    assert (scores[-1], passes) == (whole.fitness, whole.passes)
    bottom, head = trained.trained(GENOME)
    network = nn.Sequential(bottom, head).state_dict()
    kept = unpacked(whole.state)
    assert all(torch.equal(t, kept[f"model.{name}"]) for name, t in network.items())


def unpacked(state: bytes | None) -> dict[str, Tensor]:
    assert state is not None
    return unpack_tensors(state, Path("state"))[0]


def test_a_share_is_its_epochs_and_no_more() -> None:
    part = fitness().advance(TrainingJob(GENOME, 0.4))
    _, _, fitting = fitness()._begin(GENOME)
    fitting.run(2)
    assert part.state == pack_tensors(fitting.state(), {})
    assert part.state != fitness().advance(TrainingJob(GENOME, 0.6)).state


def test_states_are_kept_where_they_are_wanted() -> None:
    assert isinstance(fitness(), ResumableFitness)
    assert not isinstance(DataFreeFitness(BLUEPRINT, 0), ResumableFitness)
    assert fitness().advance(TrainingJob(GENOME)).state is None
    assert fitness().advance(TrainingJob(GENOME, keep=True)).state is not None
    assert fitness().advance(TrainingJob(GENOME, 0.5)).state is not None


def test_a_genome_fares_the_same_whatever_was_trained_before() -> None:
    other = Genome.parse("c6k5-c4k3")
    first = fitness()
    scores = [first(GENOME), first(other)]
    assert [fitness()(other), fitness()(GENOME)] == scores[::-1]
    states = {
        replace(fitness(), seed=seed, client=client).advance(TrainingJob(GENOME, keep=True)).state
        for seed, client in [(7, 0), (8, 0), (7, 1)]
    }
    assert len(states) == 3


def test_learning_shows() -> None:
    assert fitness(optimizer=replace(HOW, epochs=40))(GENOME) > 0.6  # of chance 1/3


@pytest.mark.parametrize("moving", [True, False], ids=["moving head", "fixed head"])
@pytest.mark.parametrize("rate", [1e30, 1e38])
def test_a_training_that_diverges_is_a_failure(rate: float, moving: bool) -> None:
    optimizer = OptimizerConfig(learning_rate=rate, batch_size=8, epochs=3)
    spec = replace(BLUEPRINT, head_init="random" if moving else "etf", unit=not moving)
    diverging = replace(fitness(optimizer=optimizer), spec=spec)
    outcome = diverging.advance(TrainingJob(GENOME, keep=True))
    assert np.isnan(outcome.fitness)
    assert outcome.error == "its training diverged"
    assert outcome.passes == 60
    assert outcome.state is None


def test_a_head_that_diverges_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Trainer.run

    def overflow(self: Trainer, epochs: int) -> int:
        passes = run(self, epochs)
        with torch.no_grad():
            self._parameters[-1].fill_(torch.inf)
        return passes

    monkeypatch.setattr(Trainer, "run", overflow)
    assert fitness().advance(TrainingJob(GENOME)).error == "its training diverged"


def test_no_validation_samples_leave_no_accuracy() -> None:
    assert np.isnan(replace(fitness(), validation=data(60).take([]))(GENOME))


# What a child takes over: for each of its blocks the parent's block that it is, or None.
CHILDREN = [
    ("the same", "c4k3-max-c6k3", [0, 1, 2], True),
    ("added at the end", "c4k3-max-c6k3-c6k5", [0, 1, 2, None], True),
    ("added within", "c4k3-c4k5-max-c6k3", [0, None, 1, 2], True),
    ("added before", "c6k3-c4k3-max-c6k3", [None, None, 1, 2], True),  # c4k3 sees 6 channels now
    ("removed", "c4k3-c6k3", [0, 2], True),
    ("removed first", "max-c6k3", [1, None], True),  # c6k3 sees 1 channel now
    ("altered width", "c4k3-max-c4k3", [0, 1, None], False),
    ("altered kernel", "c4k3-max-c6k5", [0, 1, None], True),
    ("exchanged", "c6k3-max-c4k3", [None, 1, None], False),
    ("tail of another", "c4k3-c4k5-c4k5", [0, None, None], False),
    ("head of another", "c4k5-max-c6k3", [None, 1, 2], True),
    ("nothing in common", "c4k5-avg-c4k5", [None, None, None], False),
]


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    ("child", "blocks", "adapted"), [c[1:] for c in CHILDREN], ids=[c[0] for c in CHILDREN]
)
def test_a_child_takes_over_what_is_unchanged(
    child: str, blocks: list[int | None], adapted: bool, norm: Norm
) -> None:
    check_inheritance(GENOME, Genome.parse(child), blocks, adapted, norm)


def check_inheritance(
    parent: Genome, child: Genome, blocks: list[int | None], adapted: bool, norm: Norm
) -> None:
    spec = replace(BLUEPRINT, norm=norm)
    old_bottom, old_head, training = replace(fitness(), spec=spec)._begin(parent)
    training.run(2)
    fresh, fresh_head = built(spec, child)
    bottom, head = built(spec, child)
    inherit(bottom, head, child, parent, unpacked(pack_tensors(training.state(), {})))
    assert same(head, old_head)
    assert not same(head, fresh_head)
    assert same(bottom.adapt, old_bottom.adapt if adapted else fresh.adapt)
    assert not same(bottom.adapt, fresh.adapt if adapted else old_bottom.adapt)
    for i, source in enumerate(blocks):
        own = fresh.blocks[i]
        assert same(bottom.blocks[i], own if source is None else old_bottom.blocks[source])
        if source is not None and list(own.parameters()):
            assert not same(bottom.blocks[i], own)


def built(spec: NetworkSpec, genome: Genome) -> tuple[Bottom, Head]:
    generator = torch.Generator().manual_seed(1)
    return spec.bottom(genome, generator), spec.head(generator)


def same(a: nn.Module, b: nn.Module) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(
        t.shape == y[name].shape and torch.equal(t, y[name]) for name, t in x.items()
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["add", "remove", "alter", "exchange", "cross"]))
def test_a_child_has_no_weights_but_its_own_and_its_parents(seed: int, optimizer: str) -> None:
    # Whatever the child, each of its blocks is wholly fresh or wholly one of the parent's, and
    # those taken over stand in the parent's order.
    rng = np.random.default_rng(seed)
    parent = random_genome(SPACE, rng)
    moves = {"add": add, "remove": remove, "alter": alter, "exchange": exchange}
    if optimizer == "cross":
        child = crossover(SPACE, parent, random_genome(SPACE, rng), rng)[0]
    else:
        try:
            child = moves[optimizer](SPACE, parent, rng)
        except ValueError:
            return  # this mutation cannot act on this parent
    old, old_head, training = fitness()._begin(parent)
    training.run(1)
    fresh, _ = built(BLUEPRINT, child)
    bottom, head = built(BLUEPRINT, child)
    inherit(bottom, head, child, parent, unpacked(pack_tensors(training.state(), {})))
    assert same(head, old_head)
    assert same(bottom.adapt, old.adapt) or same(bottom.adapt, fresh.adapt)
    last = -1
    for i, block in enumerate(bottom.blocks):
        if not list(block.parameters()) or same(block, fresh.blocks[i]):
            continue
        places = [
            k
            for k, other in enumerate(old.blocks)
            if k > last and parent.blocks[k] == child.blocks[i] and same(block, other)
        ]
        assert places
        last = places[0]


def test_a_child_starts_from_what_it_inherits() -> None:
    trained = fitness()
    state = trained.advance(TrainingJob(GENOME, keep=True)).state
    assert state is not None
    still = replace(trained, optimizer=replace(HOW, learning_rate=1e-12, batch_size=1, epochs=1))
    child = Genome.parse("c4k3-max-c6k3-max")
    scratch = still.advance(TrainingJob(child, keep=True))
    grown = still.advance(TrainingJob(child, parent=(GENOME, state), keep=True))
    kept, parents = unpacked(grown.state), unpacked(state)
    for name in ("0.blocks.0.pointwise.weight", "0.adapt.weight", "1.linear.weight"):
        torch.testing.assert_close(kept[f"model.{name}"], parents[f"model.{name}"])
    assert grown.state != scratch.state
    # A training that goes on has no use for its parent.
    part = trained.advance(TrainingJob(child, 0.4, parent=(GENOME, state)))
    on = [
        trained.advance(TrainingJob(child, 1.0, part.state, parent, keep=True)).state
        for parent in (None, (GENOME, state))
    ]
    assert on[0] == on[1]
