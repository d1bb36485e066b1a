"""Networks whose samples mix, or that leak otherwise, are refused."""

import pytest
import torch
from sample_gradients import Mean, data, seeded
from torch import Tensor, nn

from panas.privacy.gradients.private import PrivateGradient
from panas.runtime.errors import BadInput


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(0))


class Norm(nn.BatchNorm1d):
    """Not BatchNorm by name, BatchNorm all the same."""


@pytest.mark.parametrize("model", [Centred(), nn.Sequential(Norm(4), nn.Linear(4, 3))])
def test_a_network_that_mixes_samples_is_refused(model: nn.Module) -> None:
    x, y = data(6, 4)
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(seeded(model)).clipped_sum(x, y, 1.0)


class Turned(nn.Module):
    """Its inner layers see the batch backwards, so that a gradient has parts of two samples."""

    def __init__(self) -> None:
        super().__init__()
        self.outer, self.inner = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.tanh(self.outer(x)).flip(0)).flip(0)


def test_a_network_that_turns_its_batch_around_is_refused() -> None:
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(seeded(Turned())).clipped_sum(*data(6, 4), 1.0)


def test_a_network_of_indices_that_mixes_samples_is_refused() -> None:
    x, y = torch.randint(0, 5, (6, 1)), data(6, 4)[1]
    apart = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(4, 3))
    assert len(PrivateGradient(seeded(apart)).clipped_sum(x, y, 1.0)) == 3
    mixing = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), Centred())
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(seeded(mixing)).clipped_sum(x, y, 1.0)


class Logarithm(nn.Module):
    """Takes positive numbers only; of a negative one nothing is left but NaN."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.inner, self.mixes = nn.Linear(4, 3), mixes

    def forward(self, x: Tensor) -> Tensor:
        z = torch.log(x)
        return self.inner(z - z.mean(0) if self.mixes else z)


def test_a_network_of_positive_numbers_is_tried_on_such() -> None:
    x, y = data(6, 4)
    total = PrivateGradient(seeded(Logarithm(False))).clipped_sum(x.abs() + 0.1, y, 1.0)
    assert all(bool(torch.isfinite(t).all()) for t in total)
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(seeded(Logarithm(True))).clipped_sum(x.abs() + 0.1, y, 1.0)


def test_a_network_that_cannot_be_tried_is_refused() -> None:
    model = seeded(nn.Sequential(nn.Linear(4, 3)))
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    with pytest.raises(BadInput, match="not finite"):
        PrivateGradient(model).clipped_sum(*data(6, 4), 1.0)


def test_half_precision_is_refused() -> None:
    with pytest.raises(BadInput, match=r"model\.float\(\)"):
        PrivateGradient(nn.Linear(4, 3).bfloat16())


class Remembering(nn.Module):
    """Keeps a running mean of what it sees, which no noise covers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.detach().mean(0)
        return self.inner(x)


def test_a_buffer_that_follows_the_data_is_refused() -> None:
    with pytest.raises(BadInput, match="'seen', which follows the data"):
        PrivateGradient(Remembering()).clipped_sum(*data(6, 4), 1.0)
    running = nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True), nn.Conv1d(2, 3, 1))
    with pytest.raises(BadInput, match=r"do not mix|follows the data"):
        PrivateGradient(nn.Sequential(*running, Mean())).clipped_sum(*data(6, 2, 5), 1.0)
