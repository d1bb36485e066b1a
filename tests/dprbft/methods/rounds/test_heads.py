"""The server: least squares, class means and SGD as their definitions say, and nothing between."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dprbft.messages import Broadcast, Release
from dprbft.methods.rounds.heads import (
    aggregate,
    blend,
    mean_head,
    pooled,
    ridge_head,
    targets,
    to_broadcast,
    to_head,
    with_prior,
)
from panas.architecture.head import ETF_SCALE, build_head, simplex_etf
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import ClassSums, Moments, Rows
from panas.privacy.release.kind import kind_named, kind_names, noise_scale
from panas.privacy.release.rows import clip_rows
from panas.runtime.errors import BadInput
from panas.training.sgd import OptimizerConfig

D, CLASSES = 6, 3
HOW = OptimizerConfig(learning_rate=0.3, batch_size=7, epochs=2)


def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=g)
    return torch.rand(n, D, generator=g) + F.one_hot(y, D), y


def release_of(kind: str, n: int = 40, seed: int = 0, m: float | None = None) -> Release:
    z, y = rows(n, seed)
    what = kind_named(kind)
    arrays = what.run(Rows(z, y), CLASSES, noise_scale(what, m), SystemNoise())
    return Release(seed, 1, kind, m, "0" * 32, arrays)


def moments_of(*releases: Release) -> Moments:
    total = pooled(r.estimate(CLASSES) for r in releases)
    assert isinstance(total, Moments)
    return total


def sums_of(*releases: Release) -> ClassSums:
    total = pooled(r.estimate(CLASSES) for r in releases)
    assert isinstance(total, ClassSums)
    return total


def previous(bias: float = 0.0) -> Broadcast:
    g = torch.Generator().manual_seed(9)
    return Broadcast(0, torch.randn(CLASSES, D, generator=g), torch.full((CLASSES,), bias))


def answer(releases: list[Release], before: Broadcast) -> Broadcast:
    return aggregate(releases, before, round=4, optimizer=HOW, rng=np.random.default_rng(3))


def test_targets_are_the_logits_of_the_perfect_simplex_head() -> None:
    for classes in (1, 2, 5):
        weight = simplex_etf(3 * classes, classes).double()
        # The ideal representation of a class: uniform on the coordinates that it owns.
        ideal = torch.zeros(classes, 3 * classes, dtype=torch.float64)
        for c in range(classes):
            ideal[c, 3 * c : 3 * c + 3] = 3**-0.5
        torch.testing.assert_close(ideal @ weight.T, targets(classes), rtol=1e-6, atol=1e-5)


def test_ridge_without_noise_is_least_squares_on_the_pooled_rows() -> None:
    releases = [release_of("moments", 40, seed) for seed in (0, 1, 2)]
    u = torch.cat([clip_rows(rows(40, s)[0].double()) for s in (0, 1, 2)])
    y = torch.cat([rows(40, s)[1] for s in (0, 1, 2)])
    oracle = torch.linalg.lstsq(u, targets(CLASSES)[y]).solution.T
    head = ridge_head(moments_of(*releases), previous())
    torch.testing.assert_close(head.linear.weight.double(), oracle, rtol=2e-2, atol=2e-2)
    logits = head(u.float())
    assert float((logits.argmax(1) == y).double().mean()) > 0.9


def test_rows_without_noise_give_the_head_of_their_moments() -> None:
    expected = answer([release_of("moments", 40, seed) for seed in (0, 1)], previous())
    u = [clip_rows(rows(40, seed)[0]) for seed in (0, 1)]
    releases = [
        Release(i, 1, "public_rows", None, "", {"z": z, "y": rows(40, i)[1]})
        for i, z in enumerate(u)
    ]
    got = answer(releases, previous())
    torch.testing.assert_close(got.weight, expected.weight, rtol=1e-3, atol=1e-3)


def test_ridge_is_the_minimum_of_its_objective() -> None:
    m, before = 0.7, previous()
    quiet = [release_of("moments", 40, seed) for seed in (0, 1)]
    releases = [Release(r.site, 1, r.kind, m, "", r.arrays) for r in quiet]
    u = torch.cat([clip_rows(rows(40, s)[0].double()) for s in (0, 1)])
    y = torch.cat([rows(40, s)[1] for s in (0, 1)])
    ridge = 2.5 * math.sqrt(1.25) * m * math.sqrt(D * 2)
    # Ridge around W0: rows of sqrt(ridge) I with targets sqrt(ridge) W0^T, solved as one system.
    X = torch.cat([u, math.sqrt(ridge) * torch.eye(D, dtype=torch.float64)])
    T = torch.cat([targets(CLASSES)[y], math.sqrt(ridge) * before.weight.double().T])
    oracle = torch.linalg.lstsq(X, T).solution.T
    got = ridge_head(moments_of(*releases), before).linear.weight.double()
    torch.testing.assert_close(got, oracle, rtol=1e-4, atol=1e-4)


def test_ridge_with_huge_noise_stays_near_the_previous_head() -> None:
    before = previous()
    zero = release_of("moments", 40, 0)
    head = ridge_head(moments_of(Release(0, 1, "moments", 1e6, "", zero.arrays)), before)
    torch.testing.assert_close(head.linear.weight, before.weight, rtol=1e-3, atol=1e-3)
    drowned = [release_of("moments", 5, seed, m=300.0) for seed in range(4)]
    weight = ridge_head(moments_of(*drowned), before).linear.weight.detach()
    # Noise over ridge: the head moves by the scale of its targets, it does not explode.
    assert bool(torch.isfinite(weight).all())
    assert float((weight - before.weight).norm()) < 5 * ETF_SCALE


def test_two_clients_are_one_client_with_both_their_rows() -> None:
    both = Rows(*(torch.cat(parts) for parts in zip(rows(20, 0), rows(30, 1), strict=True)))
    for kind in ("moments", "class_sums"):
        arrays = kind_named(kind).run(both, CLASSES, 0.0, SystemNoise())
        joint = Release(0, 1, kind, None, "", arrays)
        apart = [release_of(kind, 20, 0), release_of(kind, 30, 1)]
        a, b = answer([joint], previous()), answer(apart, previous())
        torch.testing.assert_close(a.weight, b.weight, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(a.bias, b.bias, rtol=1e-3, atol=1e-3)


def test_mean_head_is_the_nearest_class_mean() -> None:
    z, y = rows(60, 0)
    u = clip_rows(z.double())
    means = torch.stack([u[y == c].mean(0) for c in range(CLASSES)])
    nearest = torch.cdist(u, means).argmin(1)
    head = mean_head(sums_of(release_of("class_sums", 60, 0)), previous())
    assert torch.equal(head(u.float()).argmax(1), nearest)
    torch.testing.assert_close(head.linear.weight.double(), ETF_SCALE * means, rtol=1e-4, atol=1e-4)
    bias = -ETF_SCALE / 2 * means.square().sum(1)
    torch.testing.assert_close(head.linear.bias.double(), bias, rtol=1e-4, atol=1e-4)


def test_a_class_that_the_noise_drowns_keeps_its_old_row() -> None:
    S = torch.ones(CLASSES, D)
    counts = torch.tensor([50.0, 2.0, -3.0])
    before = previous(bias=0.25)
    m = 1.5
    floor = 2 * math.sqrt(2) * m
    assert counts[1] < floor < counts[0]
    release = Release(0, 1, "class_sums", m, "", {"S": S, "counts": counts})
    head = mean_head(sums_of(release), before)
    torch.testing.assert_close(head.linear.weight[0], torch.full((D,), ETF_SCALE / 50))
    assert torch.equal(head.linear.weight[1:], before.weight[1:])
    assert torch.equal(head.linear.bias[1:], before.bias[1:])


def test_raw_rows_train_by_plain_sgd() -> None:
    releases = [release_of("raw_rows", 20, seed) for seed in (0, 1)]
    got = answer(releases, previous(bias=0.1))
    z, y = (torch.cat(p) for p in zip(rows(20, 0), rows(20, 1), strict=True))
    before = previous(bias=0.1)
    W, b = before.weight.double(), before.bias.double()
    rng = np.random.default_rng(3)
    for _ in range(HOW.epochs):
        order = torch.from_numpy(rng.permutation(40))
        for start in range(0, 40, HOW.batch_size):
            at = order[start : start + HOW.batch_size]
            x = z[at].double()
            # The gradient of mean cross-entropy, by hand.
            residual = torch.softmax(x @ W.T + b, 1) - F.one_hot(y[at], CLASSES)
            W = W - HOW.learning_rate * residual.T @ x / len(at)
            b = b - HOW.learning_rate * residual.mean(0)
    torch.testing.assert_close(got.weight.double(), W, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.bias.double(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", kind_names())
def test_an_answer_is_a_broadcast_of_the_round_and_leaves_the_previous_alone(kind: str) -> None:
    before = previous()
    weight = before.weight.clone()
    got = answer([release_of(kind)], before)
    assert got.round == 4
    assert torch.equal(before.weight, weight)
    again = Broadcast.from_bytes(got.to_bytes(), width=D, classes=CLASSES)
    assert torch.equal(again.weight, got.weight)


def test_mixed_kinds_are_refused_and_without_releases_the_head_stays() -> None:
    with pytest.raises(BadInput, match="one kind"):
        answer([release_of("moments"), release_of("class_sums")], previous())
    stays = answer([], previous())
    assert stays.round == 4
    assert torch.equal(stays.weight, previous().weight)


def test_heads_and_broadcasts_convert_without_sharing_memory() -> None:
    head = build_head(D, CLASSES, init="random", generator=torch.Generator().manual_seed(0))
    message = to_broadcast(head, 3)
    with torch.no_grad():
        head.linear.weight.zero_()
    assert bool(message.weight.any())
    copy = to_head(message)
    with torch.no_grad():
        copy.linear.weight.zero_()
    assert bool(message.weight.any())


def test_a_blend_lies_between_its_heads() -> None:
    g = torch.Generator().manual_seed(0)
    own, shared = (build_head(D, CLASSES, init="random", generator=g) for _ in range(2))
    z = torch.randn(5, D, generator=g)
    assert torch.equal(blend(own, shared, 1.0)(z), own(z))
    assert torch.equal(blend(own, shared, 0.0)(z), shared(z))
    torch.testing.assert_close(blend(own, shared, 0.25)(z), 0.25 * own(z) + 0.75 * shared(z))


def test_the_prior_adds_the_log_of_smoothed_frequencies() -> None:
    head = build_head(D, CLASSES, init="random", generator=torch.Generator().manual_seed(0))
    before = head.linear.bias.detach().clone()
    got = with_prior(head, torch.tensor([7.0, -4.0, 0.0]))
    expected = before + torch.log(torch.tensor([8.0, 1.0, 1.0]) / 10)
    torch.testing.assert_close(got.linear.bias, expected)
    assert torch.equal(head.linear.bias, before)
    assert torch.equal(got.linear.weight, head.linear.weight)
    flat = with_prior(head, torch.zeros(CLASSES))(torch.ones(2, D))
    assert torch.equal(flat.argmax(1), head(torch.ones(2, D)).argmax(1))
