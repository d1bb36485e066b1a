"""All reconstruction attacks on one release, and all their controls, scored.

| attack | knows | on |
|---|---|---|
| ridge, decoder | the weights, or the common map | every release |
| optimise | the same | where what made it passes gradients |
| ridge on noise | the weights and the mechanism | noised sums |
| ridge (shadow), decoder (shadow) | a bottom of its own | every release |
| ridge (leaked pairs), decoder (leaked pairs) | few private samples | every release |

The truth is here only to be scored against: each attack is called with an `Observation`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from attacks.reconstruction.decoder import decoder_inverter
from attacks.reconstruction.metrics import ReconstructionScore, candidates, score
from attacks.reconstruction.optimise import Inversion, optimise
from attacks.reconstruction.ridge import ridge_inverter, ridge_on_noise
from attacks.threats import controls
from attacks.threats.knowledge import Knowledge, LeakedPairs, Shadow, WhiteBox
from attacks.threats.observation import Inverter, Observation
from attacks.threats.representation import Representation, gradient_path
from panas.architecture.network import Bottom
from panas.data.samples import Samples

OnProgress = Callable[[str], None]

INVERSION = Inversion(steps=60, starts=("class mean", "nearest"))
"""How images are sought in an audit."""


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
    """Samples of the client that are in no release: for the control of that name."""


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
    """Run all attacks and controls on one client.

    Args:
        observation: what the server saw of the client, with the strongest knowledge.
        private: the samples to score on; where rows of them left, those of the rows, in order.
        config: which attacks are run.
        rng: of attacks, controls and bootstrap.
        on_progress: told of each step.

    Privacy: what comes back is computed from private samples and covered by nothing.

    """
    suite = _Suite(observation, private, config, rng, on_progress, candidates(private.y, rng=rng))
    mine = suite.learn(observation, "the release")
    images = suite.attack(mine)
    attacks = [suite.score(name, x) for name, x in images.items()]
    strongest = images[max(attacks, key=lambda s: s.r2).name]
    blind = {
        "mean image": suite.mean.expand_as(private.inputs()),
        "same-class mean": controls.same_class_mean(observation.public, private.y),
    }
    made_by, public = observation.knowledge.representation, observation.public
    if config.held_out is not None and len(config.held_out):
        means = controls.held_out_class_mean(public, config.held_out, private.y)
        blind["held-out class mean"] = means
    untrained = suite.untrained(made_by)
    beside = [
        *(suite.score(name, x) for name, x in blind.items()),
        suite.score("unrelated image", controls.unrelated_image(public, len(private), rng=rng)),
        suite.score("shuffled", controls.shuffled(strongest, private.y, rng=rng)),
        *(
            suite.best("random extractor", seen, suite.learn(seen, "an untrained bottom"))
            for seen in untrained
        ),
        suite.best("ceiling", controls.raw_rows(observation, private, made_by), mine),
    ]
    return Reconstructions(attacks, beside, images | blind)


@dataclass(frozen=True)
class _Suite:
    observation: Observation[WhiteBox]
    private: Samples
    config: SuiteConfig
    rng: np.random.Generator
    tell: OnProgress
    among: Int[Tensor, "n k"]

    @property
    def mean(self) -> Tensor:
        return controls.mean_image(self.observation.public)

    def score(self, name: str, images: Tensor) -> ReconstructionScore:
        truth = self.private.inputs()
        return score(name, truth, images, self.mean, rng=self.rng, among=self.among)

    def best(self, name: str, seen: Observation, fs: dict[str, Inverter]) -> ReconstructionScore:
        return max((self.score(name, f(seen.released())) for f in fs.values()), key=lambda s: s.r2)

    def learn(self, seen: Observation, what: str) -> dict[str, Inverter]:
        self.tell(f"{self.observation.site}: ridge and decoder on {what}")
        return {
            "ridge": ridge_inverter(seen, rng=self.rng),
            "decoder": decoder_inverter(seen, epochs=self.config.epochs, rng=self.rng),
        }

    def untrained(self, made_by: Representation) -> list[Observation[WhiteBox]]:
        """Raw rows of an untrained bottom; none of a common map, which nobody trains."""
        if not isinstance(made_by, Bottom):
            return []
        fresh = controls.random_extractor(made_by, rng=self.rng)
        return [controls.raw_rows(self.observation, self.private, fresh)]

    def attack(self, mine: dict[str, Inverter]) -> dict[str, Tensor]:
        observation, inversion = self.observation, self.config.inversion
        rows = observation.released()
        images = {name: f(rows) for name, f in mine.items()}
        if observation.noised_sums:
            images["ridge on noise"] = ridge_on_noise(observation, rng=self.rng)
        if inversion and gradient_path(observation.knowledge.representation):
            self.tell(f"{observation.site}: inversion by optimisation")
            images["optimise"] = optimise(observation, rng=self.rng, config=inversion)
        for knowledge in self.config.weaker:
            weaker: Observation[Knowledge] = replace(observation, knowledge=knowledge)  # type: ignore[arg-type]
            if observation.head is not None and isinstance(knowledge, Shadow):
                weaker = weaker.along_head()  # elsewhere two bottoms have little in common
            learnt = self.learn(weaker, f"the release, with {knowledge.name}")
            rows = weaker.released()
            images |= {f"{name} ({knowledge.name})": f(rows) for name, f in learnt.items()}
        if observation.by_class:
            return {name: x[self.private.y] for name, x in images.items()}
        return images
