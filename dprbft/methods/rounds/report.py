"""What a site notes of its rounds, and reports of the network that validation selected."""

from dataclasses import asdict

import torch

from dprbft.methods.rounds.state import State
from dprbft.site.results.report import SiteReport, Steps, baselines_of, sizes
from dprbft.site.results.scores import SiteRound, read_scores
from dprbft.site.site import Site
from panas.training.evaluate import represent
from panas.training.metrics import measure


def round_scores(state: State) -> SiteRound:
    """The accuracies of a site's state after a round."""
    scores = asdict(state.scores)
    del scores["best"]
    return SiteRound(round=state.round, kept=state.kept.accuracy, **scores)


def write_report(site: Site, state: State) -> None:
    """Measure a site's selected network, and what it must beat, on its test samples."""
    bottom, head = state.kept_networks(site)
    test = site.data.test
    with torch.no_grad():
        z = represent(bottom, test)
        logits = head.cpu()(z.cpu())
    # The noise is that of the plan; None without DP.
    noises = ("noise_multiplier", "release_noise")
    setting = asdict(state.settings) | {name: getattr(state.plan, name, None) for name in noises}
    SiteReport(
        samples=sizes(site),
        metrics=measure(logits, test.y),
        baselines=baselines_of(site),
        steps=Steps(
            public=read_scores(site.home)[0].kept,
            alone=state.scores.local,
            shared=state.scores.shared,
            joined=state.kept.accuracy,
            best=state.scores.best,
            network=state.kept.accuracy,
        ),
        setting=setting,
        shares={},
        selected_round=state.kept.round,
        blend=state.kept.blend,
    ).write(site.home)
