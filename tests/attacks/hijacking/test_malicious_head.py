"""The malicious head: what it is made of, and one honest client that trains under it."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from attacks.hijacking.malicious_head import Making, make_malicious_head
from attacks.reconstruction.metrics import r2, squared_errors
from attacks.reconstruction.ridge import ridge_inverter
from attacks.threats.knowledge import MaliciousHead
from attacks.threats.observation import Observation, class_means
from dprbft.messages import Broadcast
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, Head, NetworkSpec
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator
from panas.training.evaluate import accuracy, represent
from panas.training.sgd import OptimizerConfig, fit

GENOME = Genome.parse("c8k3-max-c16k3")
BLUEPRINT = NetworkSpec(shape=(1, 6, 6), classes=3, width=12)
QUICK = Making(epochs=12, learning_rate=0.01, batch_size=20)


def samples(n: int, seed: int) -> Samples:
    """Class c has row c bright; four patterns, no class's, are each sample's own."""
    g = torch.Generator().manual_seed(seed)
    y, own = torch.arange(n) % 3, torch.rand(n, 4, generator=g)
    patterns = torch.randn(4, 36, generator=torch.Generator().manual_seed(7)).sign()
    x = (own @ patterns / 8).reshape(n, 1, 6, 6) - 0.3
    x[torch.arange(n), 0, y] += 0.5
    return Samples(x.clamp(-1, 1), y, 3)


PUBLIC, PRIVATE = samples(120, 0), samples(60, 1)


def make(optimizer: Making = QUICK, seed: int = 0) -> tuple[Head, MaliciousHead]:
    rng = np.random.default_rng(seed)
    return make_malicious_head(BLUEPRINT, GENOME, PUBLIC, rng=rng, config=optimizer)


def play(head: Head, seed: int = 9) -> Bottom:
    """An honest client: a bottom of its own, trained under the head that it was sent."""
    rng = np.random.default_rng(seed)
    bottom = BLUEPRINT.bottom(GENOME, torch_generator(rng))
    config = OptimizerConfig(
        learning_rate=0.01, optimiser="adam", batch_size=20, epochs=20, train_head=False
    )
    fit(bottom, copy.deepcopy(head), PRIVATE, config=config, rng=rng)
    return bottom.eval()


def found(bottom: Bottom, pilot: Bottom, head: Head | None = None) -> float:
    """R^2 of a ridge that was learnt on the pilot, on raw rows of a bottom; along the head, if any.

    The reference is the same-class mean, so that what the class alone tells counts for nothing.
    """
    of = PRIVATE
    arrays = {"z": represent(bottom, of), "y": of.y}
    seen = Observation(0, "raw_rows", arrays, None, MaliciousHead(pilot), PUBLIC, head=head)
    seen = seen.along_head() if head else seen
    x = ridge_inverter(seen, rng=np.random.default_rng(0))(seen.released())
    blind = class_means(PUBLIC.x, PUBLIC)[of.y]
    return r2(squared_errors(of.x, x), squared_errors(of.x, blind))


def test_the_head_serves_the_pilot_and_passes_as_a_broadcast() -> None:
    head, knowledge = make()
    assert accuracy(knowledge.pilot, head, PRIVATE) > 0.9
    assert not head.linear.weight.requires_grad
    sent = Broadcast(1, head.linear.weight, head.linear.bias).to_bytes()
    got = Broadcast.from_bytes(sent, width=12, classes=3)
    assert torch.equal(got.weight, head.linear.weight)


def test_reconstruction_makes_the_pilot_keep_more_of_its_input() -> None:
    plain, keen = (make(replace(QUICK, epochs=40, reconstruction=w))[1].pilot for w in (0.0, 5.0))
    assert found(keen, keen) > found(plain, plain) + 0.02


def test_an_honest_client_is_drawn_towards_the_pilot() -> None:
    head, knowledge = make()
    other = copy.deepcopy(head)
    other.linear.weight.data = head.linear.weight.roll(4, dims=1)  # asks for other coordinates
    z = represent(knowledge.pilot, PRIVATE)
    near, far = (F.cosine_similarity(represent(play(h), PRIVATE), z).mean() for h in (head, other))
    assert float(near) > float(far) + 0.1


def test_along_the_head_a_pilot_misleads_less() -> None:
    head, knowledge = make()
    client = play(head)
    assert found(client, knowledge.pilot, head) > found(client, knowledge.pilot) + 0.1


def test_along_the_head_softmax_is_the_same_and_all_else_is_gone() -> None:
    head, knowledge = make()
    z = represent(knowledge.pilot, PRIVATE)
    arrays = {"z": z, "y": PRIVATE.y}
    seen = Observation(0, "raw_rows", arrays, None, knowledge, PUBLIC, head=head).along_head()
    basis = seen.basis
    assert basis is not None
    assert basis.shape == (12, 2)  # of three classes
    assert torch.allclose(basis.T @ basis, torch.eye(2), atol=1e-5)
    rows, _ = seen.targets()
    with torch.no_grad():
        assert torch.allclose(head(rows @ basis.T).softmax(1), head(z).softmax(1), atol=1e-5)
    # What the head does not see is not seen here either.
    aside = torch.randn(60, 12) @ (torch.eye(12) - basis @ basis.T)
    hidden = replace(seen, arrays={"z": z + aside, "y": PRIVATE.y})
    assert torch.allclose(hidden.targets()[0], rows, atol=1e-4)
    with pytest.raises(BadInput, match="head that the client was sent"):
        replace(seen, head=None).along_head()


def test_along_the_head_sums_are_those_of_the_rows() -> None:
    head, knowledge = make()
    u = represent(knowledge.pilot, PRIVATE)
    sums = torch.zeros(3, 12).index_add_(0, PRIVATE.y, u)
    arrays = {"S": sums, "counts": torch.full((3,), 20.0)}
    seen = Observation(0, "class_sums", arrays, 1.0, knowledge, PUBLIC, head=head).along_head()
    rows = replace(seen, kind="raw_rows", arrays={"z": u, "y": PRIVATE.y}).targets()[0]
    assert torch.allclose(seen.estimates(), class_means(rows, PRIVATE), atol=1e-5)


def test_sharpness_scales_the_head_and_nothing_else() -> None:
    (a, one), (b, two) = make(), make(replace(QUICK, sharpness=3.0))
    assert torch.allclose(3 * a.linear.weight, b.linear.weight)
    assert torch.equal(represent(one.pilot, PRIVATE), represent(two.pilot, PRIVATE))


def test_it_starts_where_it_is_told_repeats_by_seed_and_tells_its_progress() -> None:
    assert torch.equal(make()[0].linear.weight, make()[0].linear.weight)
    assert not torch.equal(make()[0].linear.weight, make(seed=1)[0].linear.weight)
    start, told = BLUEPRINT.bottom(GENOME), []
    _, knowledge = make_malicious_head(
        BLUEPRINT,
        GENOME,
        PUBLIC,
        rng=np.random.default_rng(0),
        config=replace(QUICK, epochs=2),
        start=start,
        on_epoch=lambda done, of: told.append((done, of)),
    )
    assert knowledge.pilot is start
    assert told == [(1, 2), (2, 2)]


def test_settings_out_of_range_are_refused() -> None:
    for bad in (Making(epochs=0), Making(sharpness=0.0), Making(reconstruction=-1.0)):
        with pytest.raises(BadInput, match="change the settings"):
            make(bad)
