"""What a site predicts with in the end: made once of all that it has, written, and measured.

Its rival (`alone`) is the best that the site does by itself at the same epsilon; joining must beat
it. It spends the site's whole budget on itself. It is trained for the owner's report, whose figures
are measured on private samples in any case: nothing of it is kept, or leaves, and nothing is
charged for it. Of a table's public rows it has the same models as the joined site. Where
`privacy.network` is "stays" it also has a network of its own: of the joined one's genome, taught by
labels alone.
"""

import math
from dataclasses import replace

import torch

from dprbft.methods.joined.budget import alone_plan
from dprbft.methods.joined.networks import lone_network, student
from dprbft.methods.joined.residual import public_heads, trained, without_noise
from dprbft.methods.joined.state import JoinedState
from dprbft.paths import model_file, predictor_file
from dprbft.site.results.report import SiteReport, Steps, baselines_of, sizes
from dprbft.site.site import Site
from panas.data.samples import Samples
from panas.runtime.errors import BudgetExhausted
from panas.training.checkpoint import write_network
from panas.training.linear.averaging import log_prior, worth_of
from panas.training.linear.predictor import Candidates, Predictor, weighed, write_predictor
from panas.training.linear.public_models import public_models
from panas.training.linear.ridge import Weights, logits
from panas.training.metrics import measure


def alone(site: Site, state: JoinedState) -> Predictor | None:
    """What the site predicts with by itself; None if it cannot pay."""
    heads = public_heads(site)
    if site.config.stays:
        candidates = _without_noise(site, heads)
    else:
        try:
            candidates = _by_dp_sgd(site, state, heads)
        except BudgetExhausted:
            return None
    models = public_models(site.public, table=not site.facts.are_pictures)
    candidates = replace(candidates, forest=models.forest, logistic=models.logistic)
    return weighed(candidates, site.data.validation, {}, label_worth(site, state))


def label_worth(site: Site, state: JoinedState) -> float:
    """How many exact labels tell as much as the site's histogram; 0 where none could be paid for.

    A network that stays has the exact histogram: as many as there are privacy units.
    """
    if site.config.stays:
        return float(site.data.train.units)
    if (noised := site.noised_units()) is None:
        return 0.0
    counts, of_total = torch.tensor(state.histogram), noised[1]
    return worth_of(counts, of_total / math.sqrt(len(counts)))


def _without_noise(site: Site, heads: dict[str, Weights]) -> Candidates:
    chosen, exact = without_noise(site, heads)
    return Candidates(
        phi=site.phi,
        heads=heads,
        log_prior=log_prior(torch.tensor(exact)),
        residual=chosen.residual,
        over=chosen.over or None,
        network=lone_network(site),
    )


def _by_dp_sgd(site: Site, state: JoinedState, heads: dict[str, Weights]) -> Candidates:
    """Over the head of public samples, or over the prior alone."""
    plan, recipe = alone_plan(site)
    rows = site.rows(site.data.train)
    prior = state.log_prior.expand(len(rows.y), -1)
    offset = logits(heads["public"], rows.z) + prior if heads else prior
    return Candidates(
        phi=site.phi,
        heads=heads,
        log_prior=state.log_prior,
        residual=trained(rows, offset, plan, recipe.learning_rate),
        over="public" if heads else None,
    )


def finish(site: Site, state: JoinedState) -> None:
    """Make the network and the predictor, and report on both."""
    network = student(site, state)
    if network:
        write_network(model_file(site.home), network)
    shared = state.check_joined()
    heads = {"shared": shared, **public_heads(site)}
    of_public = public_models(site.public, table=not site.facts.are_pictures)
    candidates = Candidates(
        phi=site.phi,
        heads=heads,
        log_prior=state.log_prior,
        residual=state.linear(),
        over=state.over,
        forest=of_public.forest,
        logistic=of_public.logistic,
        network=network,
    )
    promise = site.config.privacy.network if site.budget.private else "unprotected"
    notes = {"client": site.id, "network": promise, "facts": site.facts.to_json()}
    predictor = weighed(candidates, site.data.validation, notes, label_worth(site, state))
    write_predictor(predictor_file(site.home), predictor)
    _report(site, state, predictor)


def _report(site: Site, state: JoinedState, predictor: Predictor) -> None:
    test, c = site.data.test, predictor.candidates
    probabilities = predictor.probabilities_of(test)
    values = c.logits(test)
    rival = alone(site, state) if site.config.federation.baselines else None
    lone = None if rival is None else rival.probabilities_of(test)
    joined, network = _right(probabilities, test), values.get("network")
    SiteReport(
        samples=sizes(site),
        metrics=measure(probabilities.clamp(min=1e-12).log().float(), test.y),
        baselines=baselines_of(site),
        steps=Steps(
            public=_right(values["public"], test) if "public" in values else None,
            alone=None if lone is None else _right(lone, test),
            shared=_right(values["shared"] + c.log_prior, test),
            joined=joined,
            best=joined,
            network=None if network is None else _right(network, test),
            differ=None if lone is None else _differ(lone, probabilities, test),
        ),
        setting={"noise_multiplier": state.sigma, "release_noise": state.release_noise},
        shares=predictor.average.shares(),
        candidates={
            name: _right(scores if name in c.with_prior else scores + c.log_prior, test)
            for name, scores in values.items()
        },
    ).write(site.home)


def _differ(one: torch.Tensor, other: torch.Tensor, samples: Samples) -> int:
    """Samples on which exactly one of two scores has the right class largest."""
    right = [scores.argmax(1) == samples.y for scores in (one, other)]
    return int((right[0] != right[1]).sum())


def _right(scores: torch.Tensor, samples: Samples) -> float:
    """Share of samples whose class has the largest score; NaN without any."""
    return float((scores.argmax(1) == samples.y).double().mean())
