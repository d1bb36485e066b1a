import numpy as np
import pytest
import torch

from panas.privacy.release.estimate import Rows
from panas.training.linear.home import FOLDS, PENALTIES, home_head
from panas.training.linear.ridge import exact_moments, logits, ridge

CLASSES, D = 3, 6


def rows(n: int, seed: int = 0) -> Rows:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=g)
    z = torch.randn(n, D, generator=g) + 3 * torch.eye(CLASSES, D)[y]
    return Rows(z / z.norm(dim=1, keepdim=True).clamp(min=1e-6), y)


def uniform() -> torch.Tensor:
    return torch.zeros(CLASSES)


def head_of(own: Rows, others=(), seed: int = 0):
    return home_head(own, uniform(), others, np.random.default_rng(seed))


def candidates(own: Rows, others) -> list[torch.Tensor]:
    learnt = exact_moments(own.z, own.y, CLASSES)
    return [ridge(learnt, p, aim) for p in PENALTIES for aim in (None, *others)]


def test_it_is_one_of_the_ridge_heads_of_exact_moments():
    own, other = rows(60), torch.ones(CLASSES, D, dtype=torch.float64)
    head = head_of(own, [other])
    assert any(torch.allclose(head, one) for one in candidates(own, [other]))


def test_a_good_head_is_kept_by_a_site_with_few_samples():
    """Held-out samples tell a good head from a bad one."""
    good = ridge(exact_moments(*[getattr(rows(3000, 1), a) for a in ("z", "y")], CLASSES), 1.0)
    test = rows(500, 2)

    def right(head: torch.Tensor) -> float:
        return float((logits(head, test.z).argmax(1) == test.y).double().mean())

    few = rows(8)
    assert right(head_of(few, [good])) > right(head_of(few)) + 0.01
    assert right(head_of(rows(200), [-good])) > 0.9  # one that misleads is left out


@pytest.mark.parametrize("n", [0, 1, FOLDS - 1, FOLDS])
def test_few_samples_give_a_finite_head(n: int):
    assert head_of(rows(n)).isfinite().all()


def test_the_same_folds_give_the_same_head():
    own = rows(40)
    assert torch.equal(head_of(own, seed=3), head_of(own, seed=3))
