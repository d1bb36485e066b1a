"""A student learns its teacher's answers, shifted images or not, in parts or whole."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_networks import data, flat, networks, packed, unpacked
from torch.nn import functional as F

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.facts import fit, infer
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.features.map import fit_map
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream, torch_generator
from panas.training.distillation import (
    CHANGES,
    STEPS,
    STUDENT,
    THINNED,
    Change,
    SoftSamples,
    distil,
    long_enough,
    made_of,
    made_of_two,
    moved,
    student_trainer,
    thinned,
)
from panas.training.evaluate import represent
from panas.training.linear.ridge import exact_moments, logits, ridge
from panas.training.sgd import OptimizerConfig, Trainer
from panas.training.sgd import fit as train

CONFIG = OptimizerConfig(optimiser="adam", learning_rate=0.02, batch_size=4, epochs=4)


def taught(n: int = 15) -> SoftSamples:
    samples = data(n)
    tall = replace(samples, x=samples.x.repeat_interleave(3, dim=2))  # enough to be shifted
    answers = torch.randn(n, 3, generator=torch.Generator().manual_seed(4))
    return SoftSamples(tall, answers.softmax(1))


def trainer() -> Trainer:
    return student_trainer(*networks(), taught(), config=CONFIG, rng=np.random.default_rng(3))


def bright(x: torch.Tensor) -> torch.Tensor:
    """A teacher that goes by how bright a picture is."""
    mean = x.mean((1, 2, 3))
    return torch.stack([mean, -mean, torch.zeros_like(mean)], 1).softmax(1)


def test_hard_answers_are_labels() -> None:
    samples, soft, hard = data(15), networks(), networks()
    answers = SoftSamples(samples, F.one_hot(samples.y, 3).float())
    distil(*soft, answers, config=CONFIG, rng=np.random.default_rng(1))
    train(*hard, samples, config=CONFIG, rng=np.random.default_rng(1))
    torch.testing.assert_close(flat(*soft), flat(*hard), rtol=1e-4, atol=1e-5)


def test_a_step_descends_the_cross_entropy_to_the_answers() -> None:
    whole = OptimizerConfig(learning_rate=0.3, batch_size=15, epochs=1)
    (bottom, head), (b, h), lesson = networks(), networks(), taught()
    distil(bottom, head, lesson, config=whole, rng=np.random.default_rng(1))
    log_p = h(b(lesson.samples.inputs())).log_softmax(1)
    (-(lesson.targets * log_p).sum() / 15).backward()
    with torch.no_grad():
        for p in (*b.parameters(), *h.parameters()):
            p -= 0.3 * p.grad
    torch.testing.assert_close(flat(bottom, head), flat(b, h), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("changed", [None, "moved", "thinned"])
def test_labels_are_not_read(changed: Change | None) -> None:
    lesson = taught()
    other = replace(lesson, samples=replace(lesson.samples, y=2 - lesson.samples.y))
    ends = []
    for lessons in (lesson, other):
        bottom, head = networks()
        rng = np.random.default_rng(1)
        student_trainer(
            bottom, head, lessons, config=CONFIG, rng=rng, changed=changed and (changed, 1)
        ).run(4)
        ends.append(flat(bottom, head))
    assert torch.equal(*ends)


@pytest.mark.parametrize("changed", ["moved", "thinned"])
def test_inputs_that_change_keep_their_answers(changed: Change) -> None:
    """Weights after two steps, against torch's own descent on the changed inputs."""
    config = OptimizerConfig(learning_rate=0.3, batch_size=15, epochs=2)
    (bottom, head), (b, h), lesson = networks(), networks(), taught()
    rng = np.random.default_rng(1)
    student_trainer(bottom, head, lesson, config=config, rng=rng, changed=(changed, 5)).run(2)
    optimiser = torch.optim.SGD([*b.parameters(), *h.parameters()], lr=0.3)
    orders, seen = np.random.default_rng(1), list[torch.Tensor]()
    for step in range(2):
        at = torch.from_numpy(orders.permutation(15))
        seen.append(CHANGES[changed](lesson.samples.inputs(at), stream(5, changed, step)))
        optimiser.zero_grad()
        F.cross_entropy(h(b(seen[-1])), lesson.targets[at]).backward()
        optimiser.step()
    assert not torch.equal(seen[0].sort(0).values, seen[1].sort(0).values)
    torch.testing.assert_close(flat(bottom, head), flat(b, h), rtol=1e-4, atol=1e-6)


def test_pictures_are_made_of_two() -> None:
    """Images of one value each: what a picture shows of either can be read off it."""
    n = 400
    x, others = torch.full((n, 3, 6, 5), 1.0), torch.full((n, 3, 6, 5), -1.0)
    pictures = made_of_two(x, others, np.random.default_rng(0))
    assert torch.equal(pictures, pictures[:, :1].expand(-1, 3, -1, -1))  # all channels alike
    kinds = {"same": 0, "blend": 0, "patch": 0}
    for picture in pictures[:, 0]:
        other, rest = picture == -1, picture[picture != -1]
        assert len(rest.unique()) <= 1
        rows, cols = other.any(1), other.any(0)
        assert torch.equal(other, rows[:, None] & cols[None, :])  # a rectangle
        assert all(len(lines.nonzero()) == 0 or _together(lines) for lines in (rows, cols))
        kinds["patch"] += bool(other.any() and len(rest))
        kinds["blend"] += bool(len(rest) and rest[0] < 1)
        kinds["same"] += bool((picture == 1).all())
    assert kinds["blend"] == pytest.approx(n / 2, abs=60)
    assert n / 5 < kinds["patch"] < n / 2  # half, but for those of no pixel
    assert n / 5 < kinds["same"] < n / 2


def test_made_pictures_are_bytes_with_the_answers_to_them() -> None:
    samples = taught(7).samples
    made = made_of(samples, 600, teacher=bright, rng=np.random.default_rng(2))
    assert (len(made), made.samples.shape) == (600, samples.shape)
    assert made.samples.x.dtype == torch.uint8
    torch.testing.assert_close(made.targets, bright(made.samples.inputs()))
    assert len(made.samples.x.flatten(1).unique(dim=0)) > 300  # the seven themselves are few
    again = made_of(samples, 600, teacher=bright, rng=np.random.default_rng(2))
    assert torch.equal(made.samples.x, again.samples.x)
    # Whatever two are put together: what stays the same under moves stays.
    flat_one = replace(data(1), x=torch.full_like(data(1).x, 51))
    alike = made_of(flat_one, 20, teacher=bright, rng=np.random.default_rng(2))
    assert (alike.samples.x == 51).all()


def _together(lines: torch.Tensor) -> bool:
    at = lines.nonzero()
    return int(at[-1] - at[0]) + 1 == len(at)


@pytest.mark.slow
def test_a_student_that_stopped_goes_on_as_if_it_had_not() -> None:
    whole = trainer()
    whole.run(4)
    for stop in (1, 3):
        first, later = trainer(), trainer()
        first.run(stop)
        later.resume(unpacked(packed(first)))
        later.run(4)
        assert packed(later) == packed(whole)


@pytest.mark.parametrize(
    ("shape", "farthest"),
    [((1, 28, 28), (2, 2)), ((3, 32, 16), (2, 1)), ((2, 14, 8), (1, 0)), ((1, 1, 1), (0, 0))],
)
def test_moved_images_are_reflected_crops(shape: tuple[int, int, int], farthest: tuple[int, int]):
    g = torch.Generator().manual_seed(0)
    x, (tall, wide), (_, h, w) = torch.rand(60, *shape, generator=g), farthest, shape
    padded = np.pad(x, [(0, 0), (0, 0), (tall, tall), (wide, wide)], mode="reflect")
    seen = set()
    for image, of in zip(moved(x, np.random.default_rng(0)), padded, strict=True):
        results = [
            (i, j, flip)
            for i in range(2 * tall + 1)
            for j in range(2 * wide + 1)
            for flip in ((False, True) if shape[0] == 3 else (False,))
            if np.array_equal(image, flipped(of[:, i : i + h, j : j + w], flip))
        ]
        assert results
        seen.add(results[0])
    kinds = (2 * tall + 1) * (2 * wide + 1) * (2 if shape[0] == 3 else 1)
    assert len(seen) > kinds / 2


def flipped(image: np.ndarray, flip: bool) -> np.ndarray:
    return image[..., ::-1] if flip else image


@pytest.mark.parametrize(("samples", "epochs"), [(2, 4000), (100, 1000), (450, 267), (6000, 25)])
def test_few_samples_are_passed_more_often(samples: int, epochs: int) -> None:
    assert long_enough(STUDENT, samples, STEPS) == replace(STUDENT, epochs=epochs)


def test_a_training_of_no_samples_has_a_length_and_other_answers_are_refused() -> None:
    assert long_enough(replace(STUDENT, epochs=0), 0, 3).epochs == 3
    assert long_enough(STUDENT, 64, 49) == STUDENT
    for targets in (torch.ones(14, 3), torch.ones(15, 4)):
        with pytest.raises(BadInput, match=r"answers of shape \(15, 3\)"):
            SoftSamples(data(15), targets)


@pytest.mark.slow
def test_a_student_of_digits_comes_near_its_teacher() -> None:
    raw = read("digits", Reading())
    facts = infer(raw)
    everyone = fit(raw, facts)
    order = stream(3, "order").permutation(len(everyone))
    parts = [everyone.take(order[a:b]) for a, b in ((0, 450), (450, 900), (900, 1797))]
    public, labelled, test = parts
    phi = fit_map(facts, public)
    head = ridge(exact_moments(phi(labelled.inputs()), labelled.y, 10), 0.3)

    def teacher(samples: Samples) -> torch.Tensor:
        return logits(head, phi(samples.inputs())).softmax(1)

    spec, rng = NetworkSpec(shape=facts.shape, classes=10, width=64), stream(3, "student")
    bottom = spec.bottom(Genome.parse("c16k3-max-c32k3"), torch_generator(rng))
    top = spec.head(torch_generator(rng))
    config = replace(STUDENT, learning_rate=0.01, batch_size=16, epochs=12, train_head=False)
    distil(bottom, top, SoftSamples(public, teacher(public)), config=config, rng=rng)
    answers = top(represent(bottom, test)).argmax(1)
    right = [float((a == test.y).double().mean()) for a in (teacher(test).argmax(1), answers)]
    assert right[0] > 0.9
    assert right[1] > right[0] - 0.16


def test_a_fifth_of_the_channels_of_a_map_is_left_out_and_the_others_make_up_for_it() -> None:
    x = torch.rand(50, 40, 3, 3, generator=torch.Generator().manual_seed(0)) + 1
    thin = thinned(x, np.random.default_rng(0))
    out = (thin == 0).all(dim=(2, 3))
    assert torch.equal(out, (thin == 0).any(dim=(2, 3)))
    torch.testing.assert_close(thin[~out], x[~out] / (1 - THINNED))
    assert abs(float(out.double().mean()) - THINNED) < 0.03
    assert 0.1 < THINNED < 0.3
