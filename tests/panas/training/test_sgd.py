"""Plain training is shuffled mini-batch SGD, and DP training without noise a per-sample loop."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from noises import NoNoise as Zeros
from plans import plan_of
from tiny_networks import FIXED_HEAD, SGD, data, flat, networks, packed, unpacked
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from panas.architecture.head import Head
from panas.architecture.network import Bottom, Norm
from panas.data.samples import Samples
from panas.privacy.noise import ReproducibleNoise, SystemNoise
from panas.privacy.plan import Plan
from panas.runtime.errors import BadInput
from panas.training.any_model import Objective, fit_private, train_model, train_model_private
from panas.training.channels_last import LAST, channels_last
from panas.training.evaluate import accuracy, head_scores, represent
from panas.training.sgd import OptimizerConfig, Trainer, fit, set_rate

RULES = [
    OptimizerConfig(learning_rate=0.3, batch_size=4, epochs=4),
    OptimizerConfig(learning_rate=0.1, momentum=0.9, batch_size=4, epochs=4),
    OptimizerConfig(learning_rate=0.01, optimiser="adam", batch_size=4, epochs=4),
    OptimizerConfig(learning_rate=0.3, batch_size=4, epochs=4, decay="cosine"),
    OptimizerConfig(learning_rate=0.01, optimiser="adam", batch_size=4, epochs=4, decay="cosine"),
    OptimizerConfig(learning_rate=0.3, batch_size=4, epochs=4, decay="one-cycle"),
]
NAMES = ["sgd", "momentum", "adam", "cosine", "adam with cosine", "one-cycle"]


@pytest.mark.parametrize("batch_size", [1, 4, 15, 99])
def test_plain_training_is_shuffled_mini_batch_sgd(batch_size: int) -> None:
    samples = data(15)
    optimizer = OptimizerConfig(learning_rate=0.1, momentum=0.5, batch_size=batch_size, epochs=2)
    bottom, head = networks()
    fit(bottom, head, samples, config=optimizer, rng=np.random.default_rng(4))
    b, h = networks()
    optimiser = torch.optim.SGD([*b.parameters(), *h.parameters()], lr=0.1, momentum=0.5)
    rng = np.random.default_rng(4)
    for _ in range(2):
        order = torch.from_numpy(rng.permutation(15))
        for start in range(0, 15, batch_size):
            at = order[start : start + batch_size]
            optimiser.zero_grad()
            F.cross_entropy(h(b(samples.inputs(at))), samples.y[at]).backward()
            optimiser.step()
    assert not torch.equal(flat(bottom), flat(networks()[0]))
    torch.testing.assert_close(flat(bottom, head), flat(b, h), rtol=1e-5, atol=1e-6)


def test_one_cycle_is_a_linear_rise_and_a_cosine() -> None:
    config = OptimizerConfig(learning_rate=0.3, decay="one-cycle")
    ours, theirs = (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3) for _ in range(2))
    rise = LinearLR(theirs, start_factor=1 / 5, total_iters=4)
    schedule = SequentialLR(theirs, [rise, CosineAnnealingLR(theirs, T_max=16)], milestones=[4])
    for step in range(20):
        set_rate(ours, config, step, 20)
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"])
        theirs.step()
        schedule.step()
    set_rate(ours, config, 0, 1)
    assert ours.param_groups[0]["lr"] == 0.3  # a single step moves something


def test_weights_of_full_convolutions_come_back_as_they_were_laid_out() -> None:
    bottom, head = networks()
    for convolution in (nn.Conv2d(2, 1, 3, padding=1), nn.Conv2d(1, 2, 3, padding=1)):
        bottom.blocks.insert(0, convolution)
    fit(bottom, head, data(6), config=SGD, rng=np.random.default_rng(0))
    assert all(p.is_contiguous() for p in bottom.parameters())


@pytest.mark.slow
def test_adam_learns_and_no_samples_are_refused() -> None:
    samples = data(12)
    bottom, head = networks()
    optimizer = OptimizerConfig(learning_rate=0.02, optimiser="adam", batch_size=6, epochs=60)
    before = head_scores(represent(bottom, samples), samples, head)[1]
    fit(bottom, head, samples, config=optimizer, rng=np.random.default_rng(0))
    assert head_scores(represent(bottom, samples), samples, head)[1] < 0.9 * before
    with pytest.raises(BadInput, match="at least one training sample"):
        fit(bottom, head, data(0), config=optimizer, rng=np.random.default_rng(0))


def fitting(
    norm: Norm, optimizer: OptimizerConfig, train_head: bool = True, n: int = 15
) -> Trainer:
    rng = np.random.default_rng(3)
    return Trainer(
        *networks(norm), data(n), config=replace(optimizer, train_head=train_head), rng=rng
    )


@pytest.mark.thorough
@pytest.mark.parametrize("train_head", [True, False], ids=["moving head", "fixed head"])
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("optimizer", RULES, ids=NAMES)
def test_a_training_that_stopped_goes_on_as_if_it_had_not(
    optimizer: OptimizerConfig, norm: Norm, train_head: bool
) -> None:
    whole = fitting(norm, optimizer, train_head)
    ends = []
    for epoch in range(1, optimizer.epochs + 1):
        whole.run(epoch)
        ends.append(packed(whole))
    assert len(set(ends)) == optimizer.epochs  # every epoch moves something
    for stop in range(1, optimizer.epochs):
        later = fitting(norm, optimizer, train_head)
        later.resume(unpacked(ends[stop - 1]))
        assert packed(later) == ends[stop - 1]
        later.run(optimizer.epochs)
        assert packed(later) == ends[-1]
    again = fitting(norm, optimizer, train_head)  # stopped after every epoch
    for epoch in range(optimizer.epochs):
        other = fitting(norm, optimizer, train_head)
        if epoch:
            other.resume(unpacked(packed(again)))
        other.run(epoch + 1)
        again = other
    assert packed(again) == ends[-1]


@pytest.mark.parametrize("forgotten", ["memory", "step", "order"])
def test_resuming_needs_everything_that_a_state_holds(forgotten: str) -> None:
    # The planted bugs: a resumption that forgets one of them ends elsewhere.
    optimizer = replace(RULES[1], decay="cosine")
    whole = fitting("group", optimizer)
    whole.run(2)
    state = unpacked(packed(whole))
    whole.run(4)
    later = fitting("group", optimizer)
    if forgotten == "memory":
        state = {k: t for k, t in state.items() if not k.startswith("memory.")}
    elif forgotten == "step":
        state["step"] = torch.tensor(0)
    else:
        later.epochs = 2  # as if the order of the samples had been drawn already
    later.resume(state)
    later.run(4)
    assert packed(later) != packed(whole)


@pytest.mark.parametrize(
    ("n", "batch_size", "passes"),
    [(15, 4, 15), (15, 15, 15), (15, 99, 15), (15, 7, 14), (13, 4, 12), (5, 1, 5), (1, 4, 1)],
)
def test_passes_count_every_sample_that_was_trained_on(
    n: int, batch_size: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    descend = Trainer._descend

    def counted(self: Trainer, batch: Tensor) -> None:
        nonlocal seen
        seen += len(batch)
        descend(self, batch)

    monkeypatch.setattr(Trainer, "_descend", counted)
    training = fitting("group", OptimizerConfig(batch_size=batch_size, epochs=3), n=n)
    assert training.run(1) == seen == passes
    assert training.run(1) == 0  # it is there already
    assert training.run(3) == 2 * passes
    assert seen == 3 * passes


def forwards(monkeypatch: pytest.MonkeyPatch, norm: Norm, budget: int) -> tuple[list[int], Tensor]:
    """Sizes of the forward passes of a training, and where it ends."""
    monkeypatch.setattr("panas.training.sgd.CHUNK_BYTES", budget)
    bottom, head = networks(norm)
    sizes: list[int] = []
    bottom.register_forward_pre_hook(lambda _, x: sizes.append(len(x[0])))
    optimizer = OptimizerConfig(learning_rate=0.1, momentum=0.5, batch_size=7, epochs=2)
    fit(bottom, head, data(14), config=optimizer, rng=np.random.default_rng(0))
    return sizes, flat(bottom, head)


def test_chunks_change_nothing_but_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, expected = forwards(monkeypatch, "group", 1 << 30)
    assert whole == [1, 7, 7, 7, 7]  # the first measures one sample's activations
    alone, single = forwards(monkeypatch, "group", 1)
    assert alone == [1] * (1 + 28)
    one_sample = sum(
        t.numel() * t.element_size() for t in saved_by(*networks(), data(14).inputs()[:1])
    )
    some, chunked = forwards(monkeypatch, "group", 3 * one_sample)
    assert some == [1, *[3, 3, 1] * 4]
    for end in (single, chunked):
        assert not torch.equal(end, flat(*networks()))
        torch.testing.assert_close(end, expected, rtol=1e-4, atol=1e-5)


def saved_by(bottom: Bottom, head: Head, x: Tensor) -> list[Tensor]:
    """What autograd keeps for the backward pass, the weights apart, each storage once."""
    weights = {p.data_ptr() for m in (bottom, head) for p in m.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(t: Tensor) -> Tensor:
        if t.data_ptr() not in weights:
            kept[t.data_ptr()] = t
        return t

    model = nn.Sequential(bottom, head)
    kept_by = torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t)
    with channels_last(model, bottom.blocks), kept_by:
        out = model(x.clone(memory_format=LAST)).sum()
    del out
    return list(kept.values())


def test_batch_norm_sees_whole_batches_and_is_not_stopped_by_a_single_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, expected = forwards(monkeypatch, "batch", 1 << 30)
    tight, end = forwards(monkeypatch, "batch", 1)
    assert whole == tight == [7, 7, 7, 7]
    assert torch.equal(end, expected)
    bottom, head = networks("batch")
    config = OptimizerConfig(learning_rate=0.1, batch_size=7, epochs=3)
    fit(bottom, head, data(15), config=config, rng=np.random.default_rng(0))
    assert bool(torch.isfinite(flat(bottom)).all())


def test_accuracy_counts_by_hand_whatever_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    bottom, head = networks()
    samples = data(23)
    logits = head.eval()(bottom.eval()(samples.inputs()))
    hits = sum(int(row.argmax()) == int(y) for row, y in zip(logits, samples.y, strict=True))
    assert accuracy(bottom, head, samples) == pytest.approx(hits / 23)
    whole = represent(bottom, samples)
    monkeypatch.setattr("panas.training.evaluate.EVALUATION_BATCH", 5)
    torch.testing.assert_close(represent(bottom, samples), whole)
    monkeypatch.setattr("panas.training.evaluate.CHUNK_BYTES", 1)
    torch.testing.assert_close(represent(bottom, samples), whole)
    right, loss = head_scores(whole, samples, head)
    assert right == pytest.approx(hits / 23)
    assert loss == pytest.approx(float(F.cross_entropy(logits, samples.y).detach()), rel=1e-5)
    assert all(math.isnan(x) for x in head_scores(whole[:0], data(0), head))
    assert represent(bottom, data(0)).shape == (0, 5)
    assert math.isnan(accuracy(bottom, head, data(0)))


class NoNoise(ReproducibleNoise):
    """Poisson batches that repeat, and zeros in place of noise."""

    normal = Zeros.normal


def naive_dp_sgd(
    bottom: Bottom, head: Head, samples: Samples, plan: Plan, rate: float, rng: np.random.Generator
) -> list[Tensor]:
    """Abadi et al.'s algorithm 1 without noise, a sample at a time; the weights after each step."""
    parameters = [*bottom.parameters(), *head.parameters()]
    x, y = samples.x.float() / 127.5 - 1, samples.y
    path = []
    for _ in range(plan.steps):
        members = [i for i, u in enumerate(rng.random(len(y))) if u < plan.batch_size / len(y)]
        total = [torch.zeros_like(p) for p in parameters]
        for i in members:
            loss = F.cross_entropy(head(bottom(x[i : i + 1])), y[i : i + 1])
            grads = torch.autograd.grad(loss, parameters)
            norm = math.sqrt(sum(float(g.double().square().sum()) for g in grads))
            for t, g in zip(total, grads, strict=True):
                t += g * min(1.0, plan.clip / norm)
        with torch.no_grad():
            for p, t in zip(parameters, total, strict=True):
                p -= rate * t / plan.batch_size
        path.append(flat(bottom, head))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("clip", [0.3, 1e6])
@pytest.mark.parametrize("batch_size", [4, 15, 40])
def test_without_noise_dp_training_is_a_naive_loop_step_by_step(clip: float, batch_size: int):
    samples = data(15)
    longest = plan_of(15, batch_size, clip, epochs=2)
    if batch_size > 15:
        # A batch above n is the full batch, divided by n.
        longest = replace(longest, batch_size=15)
    expected = naive_dp_sgd(*networks(), samples, longest, 0.5, np.random.default_rng(8))
    moved = (expected[-1] - flat(*networks())).norm()
    for epochs in (1, 2):
        bottom, head = networks()
        plan = plan_of(15, batch_size, clip, epochs=epochs)
        noise = NoNoise(np.random.default_rng(8))
        fit_private(bottom, head, samples, plan=plan, config=SGD, noise=noise)
        error = (flat(bottom, head) - expected[plan.steps - 1]).norm()
        assert float(error) < 1e-5 * float(moved)


@pytest.mark.parametrize("private", [True, False])
def test_a_penalty_is_added_behind_clip_and_noise(private: bool) -> None:
    def trained(slope: float) -> Tensor:
        bottom, head = networks()
        model = nn.Sequential(bottom, head)
        objective = Objective(penalty=lambda weights: slope * weights[-1].sum())
        rng = np.random.default_rng(8)
        if private:  # one step of all samples, whose gradient has norm 1e-4 at most
            plan, noise = plan_of(15, 15, 1e-4, epochs=1), NoNoise(rng)
            train_model_private(
                model, data(15), plan=plan, config=SGD, noise=noise, objective=objective
            )
        else:
            config = replace(SGD, batch_size=15, epochs=1)
            train_model(model, data(15), config=config, rng=rng, objective=objective, most=1e-4)
        return flat(model)

    moved = trained(0.0) - trained(2.0)
    biases = len(networks()[1].linear.bias)
    assert not moved[:-biases].any()
    torch.testing.assert_close(
        moved[-biases:], torch.full((biases,), 2.0 * SGD.learning_rate).double()
    )


@pytest.mark.slow
def test_dp_training_repeats_from_a_seed_and_never_from_the_systems_entropy() -> None:
    ends = []
    repeated = (ReproducibleNoise(np.random.default_rng(1)) for _ in range(2))
    for noise in (*repeated, SystemNoise(), SystemNoise()):
        bottom, head = networks()
        fit_private(bottom, head, data(15), plan=plan_of(15, 5), config=SGD, noise=noise)
        ends.append(flat(bottom, head))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[2], ends[3])


@pytest.mark.parametrize("private", [True, False])
def test_a_fixed_head_stays_where_it_is(private: bool) -> None:
    bottom, head = networks()
    before, bottom_before = flat(head), flat(bottom)
    if private:
        plan = plan_of(15, 5)
        fit_private(bottom, head, data(15), plan=plan, config=FIXED_HEAD, noise=SystemNoise())
    else:
        rng = np.random.default_rng(0)
        fit(bottom, head, data(15), config=FIXED_HEAD, rng=rng)
    assert torch.equal(flat(head), before)
    assert not torch.equal(flat(bottom), bottom_before)
