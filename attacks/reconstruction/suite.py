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

Tell = Callable[[str], None]
INVERSION = Inversion(steps=60, starts=("class mean", "nearest"))
"""How images are sought in an audit: half of what the attack takes by itself."""


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
    *,
    epochs: int,
    rng: np.random.Generator,
    others: Sequence[Shadow | LeakedPairs] = (),
    inversion: Inversion | None = INVERSION,
    tell: Tell = lambda _: None,
) -> Reconstructions:
    """Run all attacks and controls on one client.

    Args:
        observation: what the server saw of the client, with the strongest knowledge.
        private: the n samples to score on; where rows of them left, those of the rows, in order.
        epochs: of the decoder.
        rng: of attacks, controls and bootstrap.
        others: weaker knowledge to attack with besides.
        inversion: how images are sought; None leaves that attack out.
        tell: told of each step.

    Privacy: what comes back is computed from private samples and covered by nothing.

    """
    public, y, truth = observation.public, private.y, private.inputs()
    mean, among = controls.mean_image(public), candidates(y, rng=rng)

    def scored(name: str, images: Tensor) -> ReconstructionScore:
        return score(name, truth, images, mean, rng=rng, among=among)

    def inverters(seen: Observation, what: str) -> dict[str, Inverter]:
        tell(f"client {observation.client}: ridge and decoder on {what}")
        return {
            "ridge": ridge_inverter(seen, rng=rng),
            "decoder": decoder_inverter(seen, epochs=epochs, rng=rng),
        }

    def of_samples(images: Tensor) -> Tensor:
        return images[y] if observation.by_class else images

    def best_on_rows(
        name: str, seen: Observation, known: dict[str, Inverter]
    ) -> ReconstructionScore:
        rows = seen.released()
        return max((scored(name, f(rows)) for f in known.values()), key=lambda s: s.r2)

    mine = inverters(observation, "the release")
    rows = observation.released()
    images = {name: of_samples(f(rows)) for name, f in mine.items()}
    if observation.noised_sums:
        images["ridge on noise"] = of_samples(ridge_on_noise(observation, rng=rng))
    if inversion:
        tell(f"client {observation.client}: inversion by optimisation")
        images["optimise"] = of_samples(optimise(observation, rng=rng, config=inversion))
    for knowledge in others:
        weaker: Observation[Knowledge] = replace(observation, knowledge=knowledge)  # type: ignore[arg-type]
        if observation.head is not None and isinstance(knowledge, Shadow):
            weaker = weaker.along_head()  # elsewhere two bottoms have little in common
        learnt = inverters(weaker, f"the release, with {knowledge.name}")
        rows = weaker.released()
        images |= {f"{k} ({knowledge.name})": of_samples(f(rows)) for k, f in learnt.items()}
    attacks = [scored(name, x) for name, x in images.items()]
    strongest = images[max(attacks, key=lambda s: s.r2).name]

    blind = {
        "mean image": mean.expand_as(truth),
        "same-class mean": controls.same_class_mean(public, y),
    }
    fresh = controls.random_extractor(observation.knowledge.bottom, rng=rng)
    untrained = controls.raw_rows(observation, private, fresh)
    ceiling = controls.raw_rows(observation, private, observation.knowledge.bottom)
    beside = [
        *(scored(name, x) for name, x in blind.items()),
        scored("unrelated image", controls.unrelated_image(public, len(y), rng=rng)),
        scored("shuffled", controls.shuffled(strongest, y, rng=rng)),
        best_on_rows("random extractor", untrained, inverters(untrained, "an untrained bottom")),
        best_on_rows("ceiling", ceiling, mine),
    ]
    return Reconstructions(attacks, beside, images | blind)
