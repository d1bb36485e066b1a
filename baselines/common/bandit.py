"""The bandit that chooses hyperparameters in FEATHERS, and its phases: Eq. 5 to 7 and Algorithm 1.

An HO phase measures settings one by one, each a round from the same network; a training phase then
trains with the best one for some rounds. A stage ends with a round of training.

| symbol | name |
|---|---|
| H | the settings to choose from, numbered 0, 1, ... (`settings_of`) |
| r | `estimates`, one a setting |
| alpha | `rate`: step of an estimate that was measured, and discount of one that was not |
| beta | `exploration`: HO rounds for a unit of entropy |
| pi | `policy`, the chances of the settings |
| kappa | `phase_length`, HO rounds of a phase |

Where the paper is silent or wrong:

- Eq. 7 lacks its minus: the entropy here is not negative.
- A phase with rnd(beta H) = 0 would measure nothing: it measures one setting at least, two or more
  settings given, and none where there is nothing to choose.
- A phase draws different settings: a round that measures one again, on the same weights, tells its
  noise alone.
- The setting to train with is the best of those that were measured. The arg max of line 15 takes
  one that nobody has tried (estimate 0) as soon as all measured ones lost.
- Theorem 2 says that a first estimate is within 3 alpha sigma of the mean mu. It is of alpha mu,
  because the estimate begins at 0. Tests hold it to that.
- Its softmax has no temperature, and of loss changes far below 1 it is near uniform; `temperature`
  is 1 as published, and lower to explore less.

Source: FEATHERS, section 3.2 and 3.4. Privacy: all of it is of the rewards that sites released.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64

from panas.runtime.errors import BadInput

Setting = Mapping[str, float]
"""Hyperparameters by name."""

Phase = Literal["ho", "train"]
"""Of measuring settings, or of training with the best."""


def settings_of(menus: Mapping[str, Sequence[float]]) -> tuple[Setting, ...]:
    """All combinations of what menus of hyperparameters offer; BadInput if there is none."""
    for name, menu in menus.items():
        if not menu:
            raise BadInput(f"expected hyperparameters to choose from in {name}, got none; give one")
    if not menus:
        raise BadInput("expected hyperparameters to choose from, got none; name one")
    rows = itertools.product(*(dict.fromkeys(menu) for menu in menus.values()))
    return tuple(dict(zip(menus, row, strict=True)) for row in rows)


@dataclass(frozen=True, kw_only=True)
class Bandit:
    """What is known of each setting, and how it is learnt."""

    estimates: tuple[float, ...]
    measured: tuple[bool, ...]  # whether the setting was ever tried
    rate: float  # alpha, in (0, 1)
    exploration: float  # beta, 0 or more
    temperature: float = 1.0  # of the softmax, above 0

    @staticmethod
    def fresh(settings: int, *, rate: float, exploration: float, temperature: float) -> "Bandit":
        """Line 3: no setting is known."""
        return Bandit(
            estimates=(0.0,) * settings,
            measured=(False,) * settings,
            rate=rate,
            exploration=exploration,
            temperature=temperature,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Bandit":
        """Read back `to_json`."""
        rows = {name: tuple(record[name]) for name in ("estimates", "measured")}
        return Bandit(**{**record, **rows})

    @property
    def policy(self) -> Float64[np.ndarray, "settings"]:
        """Chances pi of the settings: the softmax of their estimates."""
        scaled = np.array(self.estimates) / self.temperature
        weights = np.exp(scaled - scaled.max())
        return np.asarray(weights / weights.sum())

    @property
    def entropy(self) -> float:
        """H of Eq. 7 with its minus, in nats: ln of their number while no setting is known."""
        chances = self.policy
        known = chances[chances > 0]
        return float(-(known * np.log(known)).sum())

    @property
    def phase_length(self) -> int:
        """Settings that the next HO phase measures, kappa = rnd(beta H), halves rounded up."""
        settings = len(self.estimates)
        wanted = _length(self.exploration * self.entropy, settings)
        return min(wanted, longest_phase(settings, self.exploration))  # also where rounding errs

    @property
    def best(self) -> int:
        """Line 15: the setting with the highest estimate of those measured; 0 before any is."""
        tried = [i for i, known in enumerate(self.measured) if known]
        return max(tried, key=lambda i: self.estimates[i], default=0)


def longest_phase(settings: int, exploration: float) -> int:
    """The most that a phase measures: what the first one does, whose entropy is the largest."""
    return _length(exploration * math.log(settings), settings)


def draw(bandit: Bandit, rng: np.random.Generator) -> tuple[int, ...]:
    """Line 7: the different settings that an HO phase measures, by the policy."""
    chances = np.maximum(bandit.policy, np.finfo(float).tiny)  # what underflows can still be drawn
    size = bandit.phase_length
    drawn = rng.choice(len(chances), size, replace=False, p=chances / chances.sum())
    return tuple(int(i) for i in drawn)


def reward(changes: Iterable[tuple[float, float]]) -> float:
    """Eq. 5: the mean of sites' loss changes (before less after), each with its weight above 0."""
    pairs = list(changes)
    total = sum(weight for _, weight in pairs)
    return sum(change * weight / total for change, weight in pairs)


def updated(bandit: Bandit, rewards: Mapping[int, float]) -> Bandit:
    """Eq. 6: estimates go towards the rewards of a phase; those not measured shrink."""
    alpha = bandit.rate
    estimates = (
        r + alpha * (rewards[i] - r) if i in rewards else alpha * r
        for i, r in enumerate(bandit.estimates)
    )
    measured = (known or i in rewards for i, known in enumerate(bandit.measured))
    return replace(bandit, estimates=tuple(estimates), measured=tuple(measured))


@dataclass(frozen=True, kw_only=True)
class Course:
    """Where a stage stands: a state that moves by one round (lines 5 to 17)."""

    bandit: Bandit
    waiting: tuple[int, ...]  # settings that this HO phase still measures, in order
    rewards: Mapping[int, float]  # of those that it has measured
    left: int  # rounds of the training phase that goes on, or comes next

    @property
    def phase(self) -> Phase:
        """Whether the next round measures or trains."""
        return "ho" if self.waiting else "train"

    @property
    def setting(self) -> int:
        """The setting of the next round: that to be measured, or the best."""
        return self.waiting[0] if self.waiting else self.bandit.best

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "bandit": self.bandit.to_json(),
            "waiting": list(self.waiting),
            "rewards": {str(i): r for i, r in self.rewards.items()},
            "left": self.left,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Course":
        """Read back `to_json`."""
        return Course(
            bandit=Bandit.from_json(record["bandit"]),
            waiting=tuple(record["waiting"]),
            rewards={int(i): r for i, r in record["rewards"].items()},
            left=record["left"],
        )


def begin_phases(bandit: Bandit, rounds: int, length: int, rng: np.random.Generator) -> Course:
    """Lines 5 to 8: an HO phase, then `length` rounds of training, within `rounds` to come."""
    waiting = draw(bandit, rng)[: max(0, rounds - 1)]
    return Course(bandit=bandit, waiting=waiting, rewards={}, left=length)


def after(
    course: Course, reward: float | None, rounds: int, length: int, rng: np.random.Generator
) -> Course:
    """The state after a round, with `rounds` to come; `reward` is of a setting that was measured.

    None for that where no site could tell: the setting then counts as not measured.
    """
    if not course.waiting:
        if course.left > 1:
            return replace(course, left=course.left - 1)
        return begin_phases(course.bandit, rounds, length, rng)
    known = {} if reward is None else {course.setting: reward}
    course = replace(course, waiting=course.waiting[1:], rewards={**course.rewards, **known})
    if course.waiting:
        return course
    return replace(course, bandit=updated(course.bandit, course.rewards), rewards={})


def most_measured(rounds: int, longest: int, length: int) -> int:
    """The most rounds that can measure: where every HO phase is the longest."""
    whole, rest = divmod(rounds, longest + length)
    return whole * longest + min(rest, longest)


def _length(wanted: float, settings: int) -> int:
    return 0 if settings == 1 else min(settings, max(1, math.floor(wanted + 0.5)))
