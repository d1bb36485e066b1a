"""All reconstruction attacks on one release, and all their controls, scored.

| attack | knows | on |
|---|---|---|
| ridge, decoder | the weights | every release |
| optimise | the weights | every release |
| ridge on noise | the weights and the mechanism | noised sums |
| ridge (shadow), decoder (shadow) | a bottom of its own | every release |
| ridge (leaked pairs), decoder (leaked pairs) | few private samples | every release |

The truth is here only to be scored against: each attack is called with an `Observation`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attacks.reconstruction.decoder import decoder_inverter
from attacks.reconstruction.metrics import ReconstructionScore, candidates, score
from attacks.reconstruction.optimise import Inversion, optimise
from attacks.reconstruction.ridge import ridge_inverter, ridge_on_noise
from attacks.threats import controls
from attacks.threats.knowledge import Knowledge, LeakedPairs, Shadow, WhiteBox
from attacks.threats.observation import Inverter, Observation
from panas.data.samples import Samples

OnProgress = Callable[[str], None]

INVERSION = Inversion(steps=60, starts=("class mean", "nearest"))
"""How images are sought in an audit: half of what the attack takes by itself."""


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """Which attacks are run.

    Attributes:
        epochs: of the decoder.
        weaker: knowledge to attack with besides the weights.
        inversion: how images are sought; None leaves that attack out.

    """

    epochs: int
    weaker: Sequence[Shadow | LeakedPairs] = ()
    inversion: Inversion | None = INVERSION


@dataclass(frozen=True)
class Reconstructions:
    """What attacks and controls came to, in the order of the private samples."""

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
        private: the n samples to score on; where rows of them left, those of the rows, in order.
        config: which attacks are run.
        rng: of attacks, controls and bootstrap.
        on_progress: told of each step.

    Privacy: what comes back is computed from private samples and covered by nothing.

    """
    suite = _Suite(observation, private, config, rng, on_progress)
    mine = suite.learn(observation, "the release")
    images = suite.attack(mine)
    attacks = [suite.score(name, x) for name, x in images.items()]
    strongest = images[max(attacks, key=lambda s: s.r2).name]
    blind = {
        "mean image": suite.mean.expand_as(private.inputs()),
        "same-class mean": controls.same_class_mean(observation.public, private.y),
    }
    return Reconstructions(attacks, suite.control(blind, strongest, mine), images | blind)


class _Suite:
    """One client's attacks, which are scored against its samples alike."""

    def __init__(
        self,
        observation: Observation[WhiteBox],
        private: Samples,
        config: SuiteConfig,
        rng: np.random.Generator,
        on_progress: OnProgress,
    ) -> None:
        self._observation, self._private, self._config = observation, private, config
        self._rng, self._on_progress = rng, on_progress
        self._truth, self._among = private.inputs(), candidates(private.y, rng=rng)
        self.mean = controls.mean_image(observation.public)

    def score(self, name: str, images: Tensor) -> ReconstructionScore:
        return score(name, self._truth, images, self.mean, rng=self._rng, among=self._among)

    def learn(self, seen: Observation, what: str) -> dict[str, Inverter]:
        """Inverters that are learnt on known samples."""
        self._tell(f"ridge and decoder on {what}")
        return {
            "ridge": ridge_inverter(seen, rng=self._rng),
            "decoder": decoder_inverter(seen, epochs=self._config.epochs, rng=self._rng),
        }

    def attack(self, mine: dict[str, Inverter]) -> dict[str, Tensor]:
        """An image of each sample by each attack."""
        observation, config = self._observation, self._config
        rows = observation.released()
        images = {name: f(rows) for name, f in mine.items()}
        if observation.noised_sums:
            images["ridge on noise"] = ridge_on_noise(observation, rng=self._rng)
        if config.inversion:
            self._tell("inversion by optimisation")
            images["optimise"] = optimise(observation, rng=self._rng, config=config.inversion)
        for knowledge in config.weaker:
            weaker: Observation[Knowledge] = replace(observation, knowledge=knowledge)  # type: ignore[arg-type]
            if observation.head is not None and isinstance(knowledge, Shadow):
                weaker = weaker.along_head()  # elsewhere two bottoms have little in common
            learnt = self.learn(weaker, f"the release, with {knowledge.name}")
            rows = weaker.released()
            images |= {f"{name} ({knowledge.name})": f(rows) for name, f in learnt.items()}
        if observation.by_class:
            return {name: x[self._private.y] for name, x in images.items()}
        return images

    def control(
        self, blind: dict[str, Tensor], strongest: Tensor, mine: dict[str, Inverter]
    ) -> list[ReconstructionScore]:
        """What stands beside the attacks."""
        observation, private, rng = self._observation, self._private, self._rng
        bottom, n = observation.knowledge.bottom, len(private)
        fresh = controls.random_extractor(bottom, rng=rng)
        untrained = controls.raw_rows(observation, private, fresh)
        ceiling = controls.raw_rows(observation, private, bottom)
        return [
            *(self.score(name, x) for name, x in blind.items()),
            self.score("unrelated image", controls.unrelated_image(observation.public, n, rng=rng)),
            self.score("shuffled", controls.shuffled(strongest, private.y, rng=rng)),
            self._best("random extractor", untrained, self.learn(untrained, "an untrained bottom")),
            self._best("ceiling", ceiling, mine),
        ]

    def _best(
        self, name: str, seen: Observation, learnt: dict[str, Inverter]
    ) -> ReconstructionScore:
        rows = seen.released()
        return max((self.score(name, f(rows)) for f in learnt.values()), key=lambda s: s.r2)

    def _tell(self, text: str) -> None:
        self._on_progress(f"client {self._observation.client}: {text}")
