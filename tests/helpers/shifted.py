"""Sites whose samples differ from the public ones, and attacks on what they release, scored fast.

A site differs in the mean of each column, its class mix and its scale; some columns are constant.

| planted | what it is |
|---|---|
| sums | moments with the mechanism's noise: what the site looks like, as it is meant |
| mixed rows | rows of the site, each beside another sample of its class: nothing of any one |
| rows | each sample's own row, in clear or under noise: the leak |
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from planted import extractor, seeded
from torch import Tensor

from attacks.audit.verdict import judge
from attacks.reconstruction.inverters import ridge_inverter, ridge_on_noise
from attacks.reconstruction.metrics import ReconstructionScore, r2, squared_errors
from attacks.reconstruction.suite import ALL_OTHERS, informed
from attacks.threats import controls
from attacks.threats.observation import LeakedPairs, Observation, WhiteBox, rows_of
from panas.data.samples import Samples, concat
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import kind_named, noise_scale

TABLE, IMAGE = (1, 1, 9), (1, 5, 5)
LEAKED = 16


@dataclass(frozen=True)
class Site:
    """Samples that everybody has, and a site's own."""

    public: Samples
    scored: Samples
    leaked: Samples
    test: Samples

    @property
    def train(self) -> Samples:
        return concat([self.scored, self.leaked])


def drawn(seed: int, shape: tuple[int, int, int], *, shifted: bool = True) -> Site:
    """A site; without a shift its samples are as the public ones."""
    g = torch.Generator().manual_seed(seed)
    p, classes = int(np.prod(shape)), 2
    means = 0.6 * torch.rand(classes, p, generator=g) - 0.3
    mix = torch.randn(p, p, generator=g) / p**0.5
    shift, scale = 1.6 * torch.rand(p, generator=g) - 0.8, 0.2 + torch.rand(p, generator=g)
    scale[torch.rand(p, generator=g) < 0.2] = 0.0
    share = 0.1 + 0.8 * float(torch.rand((), generator=g))
    if not shifted:
        shift, scale, share = torch.zeros(p), torch.ones(p), 0.5

    def samples(n: int, move: Tensor, spread: Tensor, share: float) -> Samples:
        y = (torch.rand(n, generator=g) < share).long()
        y[:classes] = torch.arange(classes)
        around = 0.35 * torch.randn(n, p, generator=g) @ mix
        x = (means[y] + move + spread * around).clamp(-1, 1)
        return Samples(x.view(n, *shape), y, classes)

    public = samples(60, torch.zeros(p), torch.ones(p), 0.5)
    scored, leaked, test = (samples(n, shift, scale, share) for n in (90, LEAKED, 30))
    return Site(public, scored, leaked, test)


def sums(site: Site, noise_multiplier: float, seed: int) -> Observation[WhiteBox]:
    """Noised moments of all training samples."""
    bottom, kind = extractor("moments", site.public), kind_named("moments")
    rows = Rows(rows_of(bottom, site.train), site.train.y)
    scale = noise_scale(kind, noise_multiplier)
    arrays = kind.run(rows, site.public.classes, scale, seeded(seed))
    return Observation("a", "moments", arrays, noise_multiplier, WhiteBox(bottom), site.public)


def rows(site: Site, seed: int, *, noise: float = 0.0, mixed: bool = False) -> Observation:
    """Rows of the scored samples, in order, or each beside another of its class."""
    bottom, y = extractor("raw_rows", site.public), site.scored.y
    z, g = rows_of(bottom, site.scored), torch.Generator().manual_seed(seed)
    z = z + noise * z.std() * torch.randn(z.shape, generator=g)
    if mixed:
        for c in y.unique():
            at = torch.nonzero(y == c)[:, 0]
            z[at] = z[at].roll(1, 0)
    arrays = {"z": z, "y": y}
    return Observation("a", "raw_rows", arrays, None, WhiteBox(bottom), site.public)


def verdict(
    site: Site, seen: Observation, seed: int, *, sites: int = 1, among: Sequence[str] | None = None
) -> str:
    """What the audit says of linear attacks by each threat beside their controls (all, or some)."""
    rng, y, truth = np.random.default_rng(seed), site.scored.y, site.scored.inputs()
    reference = squared_errors(truth, controls.mean_image(site.public).expand_as(truth))

    def scored(name: str, images: Tensor, threat: str | None = None) -> ReconstructionScore:
        errors = squared_errors(truth, images)
        result = r2(errors, reference)
        return ReconstructionScore(name, 0.0, result, 0.0, 0.0, 0.0, {}, errors, threat)

    blind = {
        "mean image": controls.mean_image(site.public).expand_as(truth),
        "same-class mean": controls.same_class_mean(site.public, y),
        "held-out class mean": controls.held_out_class_mean(site.public, site.test, y),
        **controls.by_leaked(site.public, site.leaked, y),
        **controls.by_others(site.public, site.scored, concat([site.leaked, site.test])),
    }
    leaked = LeakedPairs(rows_of(seen.knowledge.representation, site.leaked), site.leaked)
    attacks = []
    for name, o in (("ridge", seen), ("ridge (leaked)", replace(seen, knowledge=leaked))):
        images = ridge_inverter(o, rng=rng)(o.released())
        images = images[y] if seen.by_class else images
        attacks.append(scored(name, images, o.knowledge.name))
        if not seen.by_class:
            guess = informed(images, site.scored, blind["others' regression"])
            attacks.append(scored(f"{name}, informed", guess, ALL_OTHERS))
    if seen.noised_sums:
        images = ridge_on_noise(seen, rng=rng)[y]
        attacks.append(scored("ridge on noise", images, seen.knowledge.name))
    beside = [scored(k, x) for k, x in blind.items() if among is None or k in among]
    return judge(attacks, beside, rng=rng, sites=sites)[0]
