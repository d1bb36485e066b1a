"""The accuracy after each step of a run, and steps that cost privacy without a gain."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from panas.training.baselines import Baselines
from panas.training.metrics import Figure

Step = Literal["training", "joining", "baseline"]
"""Private training over the public start; joining over training alone; everything over a model
fitted on public samples."""


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Test accuracies of one site, or their means over sites, a step above the other."""

    majority: Figure  # the most frequent class
    public: Figure  # the network as public samples leave it
    alone: Figure  # trained on the site's own samples, before others had a say
    joined: Figure  # what the site keeps


@dataclass(frozen=True, kw_only=True)
class NoGain:
    """A step without a gain: the accuracy reached, and the one to beat."""

    step: Step
    epsilon: float  # that the site has spent
    reached: float
    to_beat: float
    rival: str | None = None  # the model to beat, where it is a baseline
    kept_public: bool = False  # the site keeps the network as public samples left it


def no_gains(
    ladder: Ladder, epsilon: float, baselines: Baselines | None = None, *, kept_public: bool = False
) -> tuple[NoGain, ...]:
    """The steps that brought a site nothing, the most telling first; () where all did.

    A step must be better than the one below: on the same test samples, equal is no gain.

    Args:
        ladder: accuracies in [0, 1] on the same test samples; None where one was not measured.
        epsilon: what the site has spent, for the record.
        baselines: on those test samples, too; None where they were not measured.
        kept_public: the site keeps the network as public samples left it.
    """
    if ladder.joined is None:
        return ()
    reached, steps = ladder.joined, list[NoGain]()
    gain = partial(NoGain, epsilon=epsilon, reached=reached)
    start = ladder.public if ladder.public is not None else reached if kept_public else None
    if start is not None and (kept_public or reached <= start):
        steps.append(gain(step="training", to_beat=start, kept_public=kept_public))
    elif ladder.alone is not None and reached <= ladder.alone:
        steps.append(gain(step="joining", to_beat=ladder.alone))
    best = baselines.best(private=True) if baselines else None
    if best and reached <= best.accuracy:
        steps.append(gain(step="baseline", to_beat=best.accuracy, rival=best.model))
    return tuple(steps)
