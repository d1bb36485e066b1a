"""What a client's search looks at, by `privacy.search`, and what that costs.

| mode | looks at | charged to | price |
|---|---|---|---|
| `proxy` | public samples, resampled to a noised label histogram | train | the histogram's |
| `data-free` | noise | nothing | 0 |
| `unaccounted` | the private search split (the paper) | search | infinity |

The search split and the training samples are disjoint parts of a client's data, declared before
either is touched, so that they compose in parallel. What a split also costs is the samples that
it holds back from training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dprbft.config.participation import rounds_of
from dprbft.site.site import Client
from panas.privacy.accounting.events import Event, Gaussian
from panas.privacy.calibration import epsilon_of, release_multiplier
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.receipt import Receipt
from panas.runtime.errors import BudgetExhausted

MIN_SEARCH = {"unaccounted": 4}
"""With fewer search samples there would be none to score on."""


def planned_trials(client: Client) -> int:
    """How many settings tuning will try; 0 where it has nothing to learn from, or nothing to do."""
    c = client.config
    if c.privacy.search == "data-free":
        return 0
    tunes = client.budget.private and c.training.noise_multiplier is None
    return c.tuning.config.trials if tunes and rounds_of(c, client.id) else 0


@dataclass(frozen=True)
class SearchPrice:
    """What a client's whole search, tuning included, will have cost.

    Attributes:
        epsilon: as the ledger will show it for the search.
        text: one line that says so.

    """

    epsilon: float
    text: str


def search_price(client: Client, *, paid: bool = False) -> SearchPrice:
    """The price of a client's search, known before it begins; reads no private sample.

    Args:
        client: whose search it is.
        paid: whether its label histogram is there already.

    """
    mode, budget = client.config.privacy.search, client.budget
    if mode == "data-free":
        return SearchPrice(0.0, "epsilon 0 (data-free search: genomes are scored on noise)")
    if mode == "unaccounted" or not budget.private:
        return SearchPrice(math.inf, f"epsilon infinity ({mode} search: nothing bounds it)")
    before = client.ledger.account(client.id).events("search")
    event = None if paid else histogram_event(client)
    affordable = event is not None and _fits(client, [*client.schedule().spent, event])
    spent = _cost(client, [*before, event] if affordable and event else before)
    what = "one noised label histogram" if affordable else "no histogram: all classes alike"
    what = "a noised label histogram, paid already" if paid else what
    text = f"epsilon {spent:.2f} of {budget.epsilon:g}, for {what}"
    return SearchPrice(spent, f"{text} (search on proxies of public data)")


def _cost(client: Client, events: Sequence[Event]) -> float:
    relation = client.ledger.account(client.id).relation
    return epsilon_of(events, client.budget, relation=relation)


def _fits(client: Client, events: Sequence[Event]) -> bool:
    return _cost(client, events) <= client.budget.epsilon


def histogram_event(client: Client) -> Gaussian | None:
    """What a proxy's label histogram costs; None if no noise is enough for the budget."""
    try:
        share = client.config.privacy.histogram_share
        return Gaussian(release_multiplier(client.budget, 1, share))
    except BudgetExhausted:
        return None


def charge(
    client: Client, event: Event, mechanism: str, subset: str, sensitivity: float | None
) -> Receipt:
    """Charge a client's search for something; the samples are touched inside its context."""
    return client.ledger.charge(
        client.id,
        Charge(
            event=event,
            phase="search",
            mechanism=mechanism,
            recipient="whoever sees the architecture or the settings",
            sensitivity=sensitivity,
            subset=subset,
        ),
    )
