"""Exact pooling: the shared head of all sites' samples without noise, in a simulator's view.

It is measured once a run has trained, for the summary to show what the noise on releases costs.
It reads the training samples of all sites on one machine, and nothing is charged for it: its
accuracies are of the simulator's view, as all others, and the head is not kept.
"""

from collections.abc import Sequence
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from dprbft.paths import SitePlace, pooled_file
from dprbft.run.view import RunView
from dprbft.site.data import changed
from panas.data.samples import Samples
from panas.features.map import FeatureMap
from panas.privacy.release.estimate import Moments
from panas.runtime.store import read_json, write_json
from panas.training.linear.averaging import log_prior
from panas.training.linear.ridge import exact_moments, logits, pooled, shared_head


def exact_pooling(view: RunView, places: Sequence[SitePlace]) -> dict[str, float]:
    """Test accuracy, by site, of the shared head of all samples, with the site's label frequencies.

    What was measured once is kept, and told of the sites that are there. Nothing is told of runs
    without a common map, and where the data of a site have gone before it was measured.
    """
    names, path = [place.name for place in places], pooled_file(view.run)
    known = read_json(path)["accuracy"] if path.exists() else {}
    if known.keys() >= {*names}:
        return {name: known[name] for name in names}
    if view.feature_map is None or not all(changed(place) for place in places):
        return {}
    found = _measured(view, view.feature_map, places)
    write_json(path, {"accuracy": found})
    return found


def _measured(view: RunView, phi: FeatureMap, places: Sequence[SitePlace]) -> dict[str, float]:
    moments, tests = [], []
    for place in places:  # of each site only what follows stays in memory
        site = view.client(place.index)
        moments.append(moments_of(site.train, phi))
        prior = log_prior(site.train.histogram().float())
        tests.append((phi(site.test.inputs()), site.test.y, prior))
    public = view.public
    head = shared_head(
        pooled(moments, view.facts.classes, phi.width),
        moments_of(public, phi) if len(public) else None,
        len(public),
    )
    accuracies = (_right(logits(head, z) + prior, y) for z, y, prior in tests)
    return dict(zip((place.name for place in places), accuracies, strict=True))


def moments_of(samples: Samples, phi: FeatureMap) -> Moments:
    """Exact moments and class counts of samples."""
    found = exact_moments(phi(samples.inputs()), samples.y, samples.classes)
    return replace(found, counts=samples.histogram().double())


def _right(scores: Float[Tensor, "n classes"], y: Tensor) -> float:
    return float((scores.argmax(1) == y).double().mean())
