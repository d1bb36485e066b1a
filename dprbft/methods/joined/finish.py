"""What a site predicts with in the end: made once of all that it has, written, and measured."""

import torch

from dprbft.methods.joined.alone import alone
from dprbft.methods.joined.residual import public_head
from dprbft.methods.joined.state import JoinedState, sent_moments
from dprbft.methods.joined.student import student
from dprbft.paths import model_file, predictor_file
from dprbft.site.results.report import SiteReport, Steps, baselines_of, sizes
from dprbft.site.site import Client
from panas.data.samples import Samples
from panas.training.checkpoint import save_network
from panas.training.linear.predictor import Candidates, Predictor, weighed, write_predictor
from panas.training.linear.public_models import public_models
from panas.training.linear.ridge import own_head, shrunk_head
from panas.training.metrics import measure


def finish(client: Client, state: JoinedState) -> None:
    """Make the network and the predictor, and report on both."""
    network = student(client, state)
    if network:
        save_network(
            model_file(client.home),
            network.bottom,
            network.head,
            genome=network.genome,
            spec=network.spec,
            notes=dict(network.notes),
        )
    shared = state.check_joined()
    heads, own = {"shared": shared}, sent_moments(client)
    if (public := public_head(client)) is not None:
        heads["public"] = public
    if own is not None:
        heads["own"] = own_head(own, len(client.public))
        heads["shrunk"] = shrunk_head(own, shared.double())
    of_public = public_models(client.public, table=bool(client.facts.columns))
    candidates = Candidates(
        phi=client.phi,
        heads=heads,
        log_prior=state.log_prior,
        residual=state.linear(),
        over=state.over,
        forest=of_public.forest,
        logistic=of_public.logistic,
        network=network,
    )
    valid = client.data.validation
    promise = client.config.privacy.network if client.budget.private else "unprotected"
    notes = {"client": client.id, "network": promise, "facts": client.facts.to_json()}
    predictor = weighed(candidates, valid.inputs(), valid.y, notes)
    write_predictor(predictor_file(client.home), predictor)
    _report(client, state, predictor)


def _report(client: Client, state: JoinedState, predictor: Predictor) -> None:
    """Measure it, and what it must beat, on the site's test samples."""
    test, c = client.data.test, predictor.candidates
    probabilities = predictor.probabilities_of(test.inputs())
    said = c.logits(test.inputs())
    lone = alone(client, state) if client.config.federation.baselines else None
    joined, network = _right(probabilities, test), said.get("network")
    SiteReport(
        samples=sizes(client),
        metrics=measure(probabilities.clamp(min=1e-12).log().float(), test.y),
        baselines=baselines_of(client),
        steps=Steps(
            public=_right(said["public"], test) if "public" in said else None,
            alone=_right(lone.probabilities_of(test.inputs()), test) if lone else None,
            shared=_right(said["shared"] + c.log_prior, test),
            joined=joined,
            best=joined,
            network=None if network is None else _right(network, test),
        ),
        setting={"noise_multiplier": state.sigma, "release_noise": state.release_noise},
        shares=predictor.average.shares(),
        candidates={
            name: _right(scores if name in c.with_prior else scores + c.log_prior, test)
            for name, scores in said.items()
        },
    ).write(client.home)


def _right(scores: torch.Tensor, samples: Samples) -> float:
    """Share of samples whose class has the largest score; NaN without any."""
    return float((scores.argmax(1) == samples.y).double().mean())
