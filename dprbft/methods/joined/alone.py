"""The lone rival: the best that a site does by itself at the same epsilon; joining must beat it.

It spends the site's whole budget on itself. It is trained for the owner's report, whose figures are
measured on private samples in any case: nothing of it is kept, or leaves, and nothing is charged
for it. Of a table's public rows it has the same models as the joined site. Where `privacy.network`
is "stays" it also has a network of its own: of the joined one's genome, taught by labels alone.
"""

from dataclasses import replace

import torch

from dprbft.methods.joined.budget import alone_plan
from dprbft.methods.joined.residual import public_head, rows_of, trained, without_noise
from dprbft.methods.joined.state import JoinedState
from dprbft.methods.joined.student import lone_network
from dprbft.site.site import Client
from panas.runtime.errors import BudgetExhausted
from panas.training.linear.averaging import log_prior
from panas.training.linear.predictor import Candidates, Predictor, weighed
from panas.training.linear.public_models import public_models
from panas.training.linear.ridge import Weights, logits


def alone(client: Client, state: JoinedState) -> Predictor | None:
    """What the site predicts with by itself; None if it cannot pay."""
    public = public_head(client)
    if client.config.stays:
        candidates = _without_noise(client, {} if public is None else {"public": public})
    else:
        try:
            candidates = _by_dp_sgd(client, state, public)
        except BudgetExhausted:
            return None
    known = public_models(client.public, table=bool(client.facts.columns))
    candidates = replace(candidates, forest=known.forest, logistic=known.logistic)
    valid = client.data.validation
    return weighed(candidates, valid.inputs(), valid.y, {})


def _without_noise(client: Client, heads: dict[str, Weights]) -> Candidates:
    chosen, exact = without_noise(client, heads)
    return Candidates(
        phi=client.phi,
        heads=heads,
        log_prior=log_prior(torch.tensor(exact)),
        residual=chosen.residual,
        over=chosen.over or None,
        network=lone_network(client),
    )


def _by_dp_sgd(client: Client, state: JoinedState, public: Weights | None) -> Candidates:
    """Over the head of public samples, or over the prior alone."""
    plan, recipe = alone_plan(client)
    rows = rows_of(client, client.data.train)
    prior = state.log_prior.expand(len(rows.y), -1)
    offset = prior if public is None else logits(public, rows.z) + prior
    return Candidates(
        phi=client.phi,
        heads={} if public is None else {"public": public},
        log_prior=state.log_prior,
        residual=trained(rows, offset, plan, recipe.learning_rate),
        over=None if public is None else "public",
    )
