"""A noised number of a site's training samples, for plans where nothing public tells it."""

from dprbft.paths import count_file
from dprbft.site.site import Site
from panas.data.samples import Samples
from panas.privacy.accounting.events import Gaussian
from panas.privacy.calibration import release_multiplier
from panas.privacy.ledger.charge import Charge
from panas.privacy.noise import SystemNoise
from panas.runtime.errors import BudgetExhausted
from panas.runtime.store import write_json

COUNT = "count"  # the mechanism that counts samples


def count_units(site: Site, part: Samples | None = None) -> int:
    """How many training samples, or groups, to plan with; a noised count is charged where nothing
    public tells of it yet, once.

    `part` are those that are counted, all of what the ledger calls "train" (None: all that there
    are). Counts are noised with the same share of epsilon as a label histogram.
    """
    event = counting_event(site)
    if event is None:
        return site.units
    samples = site.data.train if part is None else part
    try:
        charge = Charge(
            event=event,
            phase="training",
            mechanism=COUNT,
            recipient="whoever sees rates and divisors that follow from it",
            sensitivity=1.0,
        )
        with site.ledger.charge(charge) as receipt:
            noise = event.noise_multiplier * float(SystemNoise().normal(1)[0])
            record = {
                "histogram": [samples.units + noise],
                "receipt": {"charges": [receipt.id]},
            }
            write_json(count_file(site.home), record)
    except BudgetExhausted:
        pass  # planned as for the usual number
    return site.units


def counting_event(site: Site) -> Gaussian | None:
    """What counting samples will cost; None where their number is known, or nothing is private."""
    known = site.declared_units is not None or site.noised_units() is not None
    if known or not site.budget.private:
        return None
    try:
        return Gaussian(release_multiplier(site.budget, 1, site.histogram_share))
    except BudgetExhausted:
        return None
