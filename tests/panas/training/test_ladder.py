"""Where a step that costs privacy brought nothing, it is named."""

import pytest

from panas.training.baselines import Baselines, Rival
from panas.training.ladder import Ladder, NoGain, no_gains


def rivals(public: float, own: float = 1.0) -> Baselines:
    figures = {"balanced_accuracy": None, "auroc": None}
    return Baselines(
        majority=0.5,
        rivals=(
            Rival(model="random forest", reads="public", accuracy=public, **figures),
            Rival(model="random forest", reads="public and own", accuracy=own, **figures),
        ),
    )


def ladder(public: float | None, alone: float | None, joined: float | None) -> Ladder:
    return Ladder(majority=0.5, public=public, alone=alone, joined=joined)


@pytest.mark.parametrize(
    ("steps", "public", "says"),
    [
        (ladder(0.8, 0.85, 0.9), 0.88, []),
        (ladder(0.9, 0.85, 0.9), 0.88, ["training"]),  # equal is no gain
        (ladder(0.8, 0.9, 0.9), 0.88, ["joining"]),
        (ladder(0.8, 0.95, 0.9), 0.93, ["joining", "baseline"]),
        (ladder(None, None, 0.9), 0.93, ["baseline"]),
        (ladder(0.9, None, None), 0.93, []),
    ],
)
def test_what_brought_nothing_is_named(steps: Ladder, public: float, says: list[str]):
    assert [g.step for g in no_gains(steps, 8.0, rivals(public))] == says


def test_a_site_that_keeps_the_public_network_has_spent_for_nothing():
    (found,) = no_gains(ladder(0.9, 0.7, 0.9), 8.0, kept_public=True)
    assert found == NoGain(step="training", epsilon=8.0, reached=0.9, to_beat=0.9, kept_public=True)
    assert no_gains(ladder(None, None, 0.9), 8.0, kept_public=True)[0].kept_public


def test_a_ladder_is_remembered():
    steps = ladder(0.8, None, 0.9)
    assert Ladder.from_json(steps.to_json()) == steps
