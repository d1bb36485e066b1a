"""Policies over choices, one a site, that learn from rewards by REINFORCE, at the server.

A choice takes one entry of each menu, independently, with chances that are the softmax of the
site's logits for this menu. A reward R for a choice g moves the logits along

    (R - b) grad log p(g),   whose part for a menu is  onehot(g) - softmax(logits)

by a step of Adam with beta = (0.5, 0.999).

| baseline b | what |
|---|---|
| `mean` | the site's own moving average of the rewards before; a first reward moves nothing |
| `best` | as published: the mean over sites of the best reward that each has had |

Source: Yao et al. 2024 (PerFedRLNAS); its code for Adam's betas and the published baseline. The
rewards' terms for a round's time and for gradients that disagree are left out.
Privacy: all of it is of the rewards that sites released.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

Menu = Sequence[int]
Choice = tuple[int, ...]
"""Places in the menus, in their order."""
Baseline = Literal["mean", "best"]

BETAS, TINY = (0.5, 0.999), 1e-8  # of Adam
KEPT = 0.8  # of the moving average at a new reward


@dataclass(frozen=True)
class Policies:
    """What a server knows of the sites' choices."""

    logits: Float64[np.ndarray, "sites entries"]
    first: Float64[np.ndarray, "sites entries"]  # Adam's mean of gradients
    second: Float64[np.ndarray, "sites entries"]  # of their squares
    rewards: Float64[np.ndarray, "sites"]  # what the baseline keeps of each site's
    steps: Int64[np.ndarray, "sites"]  # rewards seen

    @staticmethod
    def fresh(sites: int, menus: Sequence[Menu]) -> "Policies":
        """Every choice as likely as any other."""
        zeros = np.zeros((sites, sum(map(len, menus))))
        return Policies(zeros, zeros, zeros, np.zeros(sites), np.zeros(sites, dtype=np.int64))

    def arrays(self) -> dict[str, Tensor]:
        """As float32 and int64, by name."""
        results = {f.name: torch.from_numpy(getattr(self, f.name)) for f in fields(self)}
        return {k: t.float() if t.is_floating_point() else t for k, t in results.items()}

    @staticmethod
    def of(arrays: Mapping[str, Tensor]) -> "Policies":
        """Read back `arrays`."""
        whole = {k: t.double() if t.is_floating_point() else t for k, t in arrays.items()}
        return Policies(**{k: t.numpy() for k, t in whole.items()})


def chances(
    logits: Float64[np.ndarray, "entries"], menus: Sequence[Menu]
) -> list[Float64[np.ndarray, "_"]]:
    """Of the entries of each menu."""
    parts = np.split(logits, np.cumsum([len(menu) for menu in menus])[:-1])
    weights = [np.exp(part - part.max()) for part in parts]
    return [w / w.sum() for w in weights]


def drawn(
    logits: Float64[np.ndarray, "entries"], menus: Sequence[Menu], rng: np.random.Generator
) -> Choice:
    """A choice, by its chances.

    Args:
        logits: of all entries of all menus, one after the other.
        menus: entries to choose from, one menu a choice.
        rng: draws one entry of each menu.
    """
    return tuple(int(rng.choice(len(p), p=p)) for p in chances(logits, menus))


def likeliest(logits: Float64[np.ndarray, "entries"], menus: Sequence[Menu]) -> Choice:
    """The choice of the largest chance; of equal entries the first."""
    return tuple(int(p.argmax()) for p in chances(logits, menus))


def score(
    logits: Float64[np.ndarray, "entries"], menus: Sequence[Menu], choice: Choice
) -> Float64[np.ndarray, "entries"]:
    """The gradient of the logarithm of a choice's chance.

    Args:
        logits: of all entries of all menus, one after the other.
        menus: as for `drawn`.
        choice: a place in each menu.
    """
    parts = [-p for p in chances(logits, menus)]
    for part, at in zip(parts, choice, strict=True):
        part[at] += 1.0
    return np.concatenate(parts)


def learnt(
    policies: Policies,
    menus: Sequence[Menu],
    rewards: Mapping[int, tuple[Choice, float]],
    *,
    rate: float,
    baseline: Baseline,
) -> Policies:
    """The policies after a round's rewards, each for the choice that its site tried.

    Args:
        policies: of the sites, before the round.
        menus: as for `drawn`.
        rewards: by site, its choice and accuracy in [0, 1].
        rate: step size, above 0.
        baseline: what a reward is compared with.
    """
    new = Policies(**{f.name: getattr(policies, f.name).copy() for f in fields(policies)})
    known = policies.steps > 0
    best = float(policies.rewards[known].mean()) if known.any() else None
    if best is None and rewards:
        best = float(np.mean([reward for _, reward in rewards.values()]))
    for site, (choice, reward) in rewards.items():
        old, seen = policies.rewards[site], bool(known[site])
        mean = float(old) if seen else reward
        advantage = reward - (best if baseline == "best" and best is not None else mean)
        _ascend(new, site, advantage * score(policies.logits[site], menus, choice), rate)
        kept = max(mean, reward) if baseline == "best" else KEPT * mean + (1 - KEPT) * reward
        new.rewards[site] = kept
    return new


def _ascend(
    new: Policies, site: int, gradient: Float64[np.ndarray, "entries"], rate: float
) -> None:
    new.steps[site] += 1
    for moment, beta, value in zip(
        (new.first, new.second), BETAS, (gradient, gradient**2), strict=True
    ):
        moment[site] = beta * moment[site] + (1 - beta) * value
    first, second = (
        moment[site] / (1 - beta ** new.steps[site])
        for moment, beta in zip((new.first, new.second), BETAS, strict=True)
    )
    new.logits[site] += rate * first / (np.sqrt(second) + TINY)
