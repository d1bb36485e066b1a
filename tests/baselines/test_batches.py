"""The gradient of a batch: groups whole, parts together, and nothing where nothing is drawn."""

import torch
from sample_gradients import loop
from torch import Tensor, nn

from baselines.searches.dp_fnas import Part, batch_gradient
from panas.data.samples import Samples
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import Plan


class Fixed(SystemNoise):
    """No noise, or ones; of the units drawn in every batch those with an even number."""

    def __init__(self, level: float = 0.0, *, whole: bool = False) -> None:
        self.level, self.whole = level, whole

    def uniform(self, size: int) -> Tensor:
        odd = torch.arange(size).double() % 2
        return torch.zeros(size, dtype=torch.float64) if self.whole else odd

    def normal(self, *shape: int) -> Tensor:
        return torch.full(shape, self.level, dtype=torch.float64)


def samples(n: int, seed: int = 0, *, grouped: bool = False) -> Samples:
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, 1, 2, 2, generator=g).clamp(-1, 1), torch.randint(3, (n,), generator=g)
    return Samples(x, y, 3, torch.arange(n) // 2 + 100 * seed if grouped else None)


def model_of() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def plan_of(n: int, sigma: float, batch: int = 1000, clip: float = 0.3) -> Plan:
    return Plan(
        samples=n,
        batch_size=batch,
        clip=clip,
        noise_multiplier=sigma,
        epochs=1,
        steps_a_round=1,
        rounds=1,
    )


def flat(found: dict[str, Tensor]) -> Tensor:
    return torch.cat([g.flatten() for g in found.values()])


def rows(model: nn.Module, part: Samples) -> Tensor:
    return torch.cat([g.flatten(1) for g in loop(model, part.inputs(), part.y)], 1)


def clipped(rows: Tensor, clip: float) -> Tensor:
    return rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1)


def test_parts_go_together_under_the_most_noise_of_their_plans() -> None:
    model, a, b = model_of(), samples(6), samples(4, 1)
    parts = [Part(a, 1000, plan_of(6, 1.5)), Part(b, 1000, plan_of(4, 2.0))]
    values = flat(batch_gradient(model, parts, Fixed(1.0, whole=True), clip=0.5))
    both = torch.cat([rows(model, a), rows(model, b)])
    expected = (clipped(both, 0.5).sum(0) + 2.0 * 0.5) / 10
    assert torch.allclose(values, expected, atol=1e-5)


def test_the_divisor_is_the_public_expected_size() -> None:
    model, a = model_of(), samples(8)
    values = flat(batch_gradient(model, [Part(a, 6, plan_of(8, 1.0, 6))], Fixed()))
    drawn = a.take(range(0, 8, 2))
    assert torch.allclose(values, clipped(rows(model, drawn), 0.3).sum(0) / 6, atol=1e-5)


def test_a_group_comes_whole_and_is_clipped_once() -> None:
    model, a = model_of(), samples(8, grouped=True)
    values = flat(batch_gradient(model, [Part(a, 4, plan_of(4, 1.0, 4))], Fixed()))
    means = rows(model, a).view(4, 2, -1).mean(1)[::2]  # units 0 and 2 of 4
    assert torch.allclose(values, clipped(means, 0.3).sum(0) / 4, atol=1e-5)


def test_without_a_plan_it_is_the_mean_over_what_was_drawn() -> None:
    model, a = model_of(), samples(8)
    values = flat(batch_gradient(model, [Part(a, 6)], Fixed()))
    assert torch.allclose(values, rows(model, a.take(range(0, 8, 2))).mean(0), atol=1e-6)


def test_an_empty_batch_moves_nothing_without_a_plan_and_is_noise_with_one() -> None:
    class Nobody(Fixed):
        def uniform(self, size: int) -> Tensor:
            return torch.ones(size, dtype=torch.float64)

    model, a = model_of(), samples(8)
    assert not flat(batch_gradient(model, [Part(a, 4)], Nobody(1.0))).any()
    noised = flat(batch_gradient(model, [Part(a, 4, plan_of(8, 2.0, 4))], Nobody(1.0)))
    assert torch.allclose(noised, torch.full_like(noised, 2.0 * 0.3 / 4))


def test_rate_and_divisor_are_the_plans_however_many_units_there_are() -> None:
    """Data that have shrunk since are not drawn at a higher rate than was charged."""
    for n in (6, 8, 9):
        part = Part(samples(n), 4, plan_of(8, 1.0, 4))
        assert (part.rate, part.expected) == (0.5, 4.0)


def test_without_protection_a_batch_that_is_not_finite_is_as_large_and_zero():
    model = model_of()
    next(model.parameters()).data.fill_(torch.inf)
    values = batch_gradient(model, [Part(samples(6), 1000)], Fixed(whole=True))
    assert {name: g.shape for name, g in values.items()} == {"1.weight": (3, 4), "1.bias": (3,)}
    assert not flat(values).any()


def test_a_part_of_no_samples_has_a_gradient_of_zero():
    values = batch_gradient(model_of(), [Part(samples(0), 8)], Fixed(whole=True))
    assert len(flat(values)) == 15
    assert not flat(values).any()
