"""All reconstruction attacks on one release, and all their controls, scored.

| attack | knows | on |
|---|---|---|
| ridge, decoder | the weights, or the common map | every release |
| optimise | the same | where what made it passes gradients |
| ridge on noise | the weights and the mechanism | noised sums |
| ridge (shadow), decoder (shadow) | a bottom of its own | every release |
| ridge (leaked pairs), decoder (leaked pairs) | few private samples | every release |
| ridge (all others), and so on | the weights, and all other samples of the site | rows |

The last adds what the first ones see of a row, beyond other rows of its class, to the guess from
all other samples (`attacks.threats.controls`): the common error of all reconstructions of a site
hides no leak. The truth is only scored against: each attack is called with an `Observation`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attacks.reconstruction.inverters import decoder_inverter, ridge_inverter, ridge_on_noise
from attacks.reconstruction.metrics import ReconstructionScore, candidates, score
from attacks.reconstruction.optimise import Inversion, optimise
from attacks.threats import controls
from attacks.threats.observation import (
    Inverter,
    Knowledge,
    LeakedPairs,
    Observation,
    Shadow,
    WhiteBox,
    gradient_path,
)
from panas.architecture.network import Bottom
from panas.data.samples import Samples

OnProgress = Callable[[str], None]

INVERSION = Inversion(steps=60, starts=("class mean", "nearest"))
"""How images are sought in an audit."""

SHOWN = (*controls.PUBLIC, "others' regression")
"""Controls that a picture shows beside the attacks."""

ALL_OTHERS = "all others"
"""The threat that knows every sample of the site but the one that it reconstructs."""


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """Which attacks are run."""

    epochs: int
    """Of the decoder."""
    weaker: Sequence[Shadow | LeakedPairs] = ()
    """Knowledge to attack with besides the weights."""
    inversion: Inversion | None = INVERSION
    """How images are sought; None, and a map that passes no gradient, leave that attack out."""
    held_out: Samples | None = None
    """Samples of the site that are in no release: for the control of that name."""
    others: Samples | None = None
    """All samples of the site that are not scored, for what all others say of one that is."""


@dataclass(frozen=True)
class Reconstructions:
    """The scores of attacks and controls, and their images in the order of the private samples."""

    attacks: list[ReconstructionScore]
    controls: list[ReconstructionScore]
    images: Mapping[str, Float[Tensor, "n c h w"]]
    """By the name of the attack or blind control: what a picture shows."""


def attack_release(
    observation: Observation[WhiteBox],
    private: Samples,
    config: SuiteConfig,
    *,
    rng: np.random.Generator,
    on_progress: OnProgress = lambda _: None,
) -> Reconstructions:
    """Run all attacks and controls on one site.

    Args:
        observation: what the server saw of the site, with the strongest knowledge.
        private: the samples to score on; where rows of them left, those of the rows, in order.
        config: which attacks are run.
        rng: of attacks, controls and bootstrap.
        on_progress: told of each step.

    Privacy: what comes back is computed from private samples and covered by nothing.

    """
    suite = _Suite(observation, private, config, rng, on_progress, candidates(private.y, rng=rng))
    mine = suite.learn(observation, "the release")
    tried, noiseless = suite.attack(mine)
    attacks = [suite.score(name, t.images, t.threat) for name, t in tried.items()]
    strongest = tried[max(attacks, key=lambda s: s.r2).name].images
    public, blind = observation.public, suite.blind()
    beside = [
        *(suite.score(name, x) for name, x in blind.items()),
        suite.score("unrelated image", controls.unrelated_image(public, len(private), rng=rng)),
        suite.score("shuffled", controls.shuffled(strongest, private.y, rng=rng)),
        *(
            suite.best("random extractor", suite.invert(seen, suite.learn(seen, "untrained")))
            for seen in suite.untrained()
        ),
        suite.best("ceiling", noiseless),
    ]
    shown = {name: x for name, x in blind.items() if name in SHOWN}
    return Reconstructions(attacks, beside, {name: t.images for name, t in tried.items()} | shown)


@dataclass(frozen=True)
class _Attempt:
    threat: str
    images: Float[Tensor, "n c h w"]


Inverters = Mapping[str, Inverter]


@dataclass(frozen=True)
class _Suite:
    observation: Observation[WhiteBox]
    private: Samples
    config: SuiteConfig
    rng: np.random.Generator
    tell: OnProgress
    among: Int[Tensor, "n k"]

    def score(self, name: str, images: Tensor, threat: str | None = None) -> ReconstructionScore:
        truth, mean = self.private.inputs(), controls.mean_image(self.observation.public)
        result = score(name, truth, images, mean, rng=self.rng, among=self.among)
        return replace(result, threat=threat)

    def best(self, name: str, of: Mapping[str, Tensor]) -> ReconstructionScore:
        return max((self.score(name, images) for images in of.values()), key=lambda s: s.r2)

    @cached_property
    def by_others(self) -> dict[str, Tensor]:
        return controls.by_others(self.observation.public, self.private, self.config.others)

    def blind(self) -> dict[str, Tensor]:
        public, y, held_out = self.observation.public, self.private.y, self.config.held_out
        results = {
            "mean image": controls.mean_image(public).expand_as(self.private.inputs()),
            "same-class mean": controls.same_class_mean(public, y),
        }
        if held_out is not None and len(held_out):
            results["held-out class mean"] = controls.held_out_class_mean(public, held_out, y)
        for knowledge in self.config.weaker:
            if isinstance(knowledge, LeakedPairs):
                results |= controls.by_leaked(public, knowledge.samples, y)
        return results | self.by_others

    def learn(self, seen: Observation, what: str) -> Inverters:
        self.tell(f"{self.observation.site}: ridge and decoder on {what}")
        return {
            "ridge": ridge_inverter(seen, rng=self.rng),
            "decoder": decoder_inverter(seen, epochs=self.config.epochs, rng=self.rng),
        }

    def invert(self, seen: Observation, fs: Inverters) -> dict[str, Tensor]:
        """What inverters make of each sample of a release."""
        rows = seen.released()
        results = {name: f(rows) for name, f in fs.items()}
        return {k: x[self.private.y] for k, x in results.items()} if seen.by_class else results

    @property
    def noiseless(self) -> Observation[WhiteBox]:
        made_by = self.observation.knowledge.representation
        return controls.raw_rows(self.observation, self.private, made_by)

    def untrained(self) -> list[Observation[WhiteBox]]:
        """Raw rows of an untrained bottom; none of a common map, which nobody trains."""
        made_by = self.observation.knowledge.representation
        if not isinstance(made_by, Bottom):
            return []
        fresh = controls.random_extractor(made_by, rng=self.rng)
        return [controls.raw_rows(self.observation, self.private, fresh)]

    def attack(self, mine: Inverters) -> tuple[dict[str, _Attempt], dict[str, Tensor]]:
        """What all attacks make of the release, and inverters of the noiseless rows behind it."""
        seen, white = self.observation, WhiteBox.name
        images = self.invert(seen, mine) | dict(self._of_weights())
        tried = {name: _Attempt(white, x) for name, x in images.items()}
        noiseless = self.invert(self.noiseless, mine)
        for knowledge in self.config.weaker:
            weaker = _knowing(seen, knowledge)
            learnt = self.learn(weaker, f"the release, with {knowledge.name}")
            for name, x in self.invert(weaker, learnt).items():
                tried[f"{name} ({knowledge.name})"] = _Attempt(knowledge.name, x)
            if isinstance(knowledge, LeakedPairs):
                rows = self.invert(_knowing(self.noiseless, knowledge), learnt)
                noiseless |= {f"{name} ({knowledge.name})": x for name, x in rows.items()}
        if not seen.by_class:
            for name, x in images.items():
                tried[f"{name} ({ALL_OTHERS})"] = _Attempt(ALL_OTHERS, self._informed(x))
        noiseless |= {f"{k} ({ALL_OTHERS})": self._informed(x) for k, x in noiseless.items()}
        return tried, noiseless

    def _of_weights(self) -> Iterator[tuple[str, Tensor]]:
        seen, inversion, y = self.observation, self.config.inversion, self.private.y
        if seen.noised_sums:
            yield "ridge on noise", ridge_on_noise(seen, rng=self.rng)[y]
        if inversion and gradient_path(seen.knowledge.representation):
            self.tell(f"{seen.site}: inversion by optimisation")
            values = optimise(seen, rng=self.rng, config=inversion)
            yield "optimise", values[y] if seen.by_class else values

    def _informed(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return informed(images, self.private, self.by_others["others' regression"])


def _knowing(
    seen: Observation[WhiteBox], knowledge: Shadow | LeakedPairs
) -> Observation[Knowledge]:
    """The same release, as somebody sees it who knows less than the weights."""
    weaker: Observation[Knowledge] = replace(seen, knowledge=knowledge)  # type: ignore[arg-type]
    if seen.head is not None and isinstance(knowledge, Shadow):
        return weaker.along_head()  # elsewhere two bottoms have little in common
    return weaker


def informed(
    images: Float[Tensor, "n c h w"], samples: Samples, guesses: Float[Tensor, "n c h w"]
) -> Float[Tensor, "n c h w"]:
    """Blind guesses, moved by what each reconstruction has beyond the others of its class.

    Each value moves by as much as the other samples vary around their guesses, if the
    reconstructions vary more (Wiener's filter). A sample that is alone in its class has its guess.

    Args:
        images: reconstructions in [-1, 1], one a sample.
        samples: the private ones, by whose images the guesses' spread is known.
        guesses: blind ones in [-1, 1], one a sample.
    """
    flat, base = images.flatten(1).double(), guesses.flatten(1).double()
    moves = torch.zeros_like(base)
    for c in samples.y.unique().tolist():
        mine = samples.y == c
        m = int(mine.sum())
        if m > 1:
            moves[mine] = (flat[mine] - flat[mine].mean(0)) * m / (m - 1)
    errors = (samples.inputs().flatten(1).double() - base).square()
    by_others = (errors.sum(0) - errors) / max(len(errors) - 1, 1)
    share = by_others / moves.square().mean(0).clamp(min=1e-12)
    return (base + share.clamp(max=1) * moves).clamp(-1, 1).float().view_as(images)
