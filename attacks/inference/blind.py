"""Membership without the network: what values and labels say of who was trained on.

Members and others may differ in more than membership (another hospital, another class mix). Then
scores separate the two although no network has leaked. The control is a regression of membership on
the candidates themselves, by ridge:

| part | columns |
|---|---|
| values | along the first `DIRECTIONS` principal directions, and squares of these (for scales) |
| label | an indicator of each class |

Each fold is scored by a fit on the others; samples of a group are in one fold.

Source: Das, Zhang and Tramer 2024 (blind baselines beat membership inference attacks).
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attacks.reconstruction.inverters import fit
from panas.data.samples import Samples

DIRECTIONS = 32
FOLDS = 5
FITTED = 4000  # candidates that one fit learns from, at most
BATCH = 512  # samples that are read at a time


def blind_scores(
    candidates: Samples, members: Bool[Tensor, "n"], *, rng: np.random.Generator
) -> Float[Tensor, "n"]:
    """Scores of candidates without any question to a network; all 0 for too few of them."""
    folds = _folds(candidates, members, rng)
    features, truth = _features(candidates, rng), members.double()[:, None]
    scores = torch.zeros(len(candidates), dtype=torch.float64)
    for k in range(FOLDS):
        out = folds == k
        rest = torch.from_numpy(rng.permutation(torch.nonzero(~out)[:, 0].numpy())[:FITTED])
        if not 0 < int(members[rest].sum()) < len(rest) or len(rest) < 2 * FOLDS:
            return torch.zeros_like(scores)
        scores[out] = fit(features[rest], truth[rest])(features[out])[:, 0]
    return scores


def _folds(candidates: Samples, members: Bool[Tensor, "n"], rng: np.random.Generator) -> Tensor:
    """A fold for each candidate, with as many members and others in each as can be."""
    units = torch.arange(len(candidates)) if candidates.groups is None else candidates.groups
    folds = torch.zeros(len(candidates), dtype=torch.long)
    for kind in (members, ~members):
        of = units[kind].unique()
        dealt = torch.from_numpy(rng.permutation(len(of)) % FOLDS)
        folds[kind] = dealt[torch.searchsorted(of, units[kind])]
    return folds


def _features(candidates: Samples, rng: np.random.Generator) -> Float[Tensor, "n f"]:
    seen = rng.permutation(len(candidates))[:FITTED]
    x = candidates.inputs(seen).flatten(1)
    centre, k = x.mean(0), min(DIRECTIONS, *x.shape)
    directions = torch.linalg.svd(x - centre, full_matrices=False).Vh[:k].T
    parts = torch.arange(len(candidates)).split(BATCH)
    z = torch.cat([(candidates.inputs(p).flatten(1) - centre) @ directions for p in parts])
    z = z / z.std(0).clamp(min=1e-6)
    return torch.cat([z, z.square(), torch.eye(candidates.classes)[candidates.y]], dim=1).double()
