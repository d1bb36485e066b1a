"""A run's share of a budget for life, counted as the Gaussian mechanism that costs exactly so much.

What a run will charge is not known when it begins. A share (epsilon, delta) is admitted if all that
was charged before, by any run, composes with one Gaussian mechanism of that epsilon at that delta
to no more than the budget for life. A run that charges subsampled Gaussians may turn out a little
dearer in company than that Gaussian: every charge is checked besides, against the run's share and
against the budget for life. A share is not set aside: of two runs at once, the later charge is
refused.
"""

from panas.privacy.accounting.closed_form import gaussian_multiplier
from panas.privacy.accounting.events import MOST, Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of

MOST_EPSILON = 1e6  # of a share that is weighed
STEPS = 12  # of the search for what is left: to epsilon / 4096, rounded down


def as_gaussian(share: Budget) -> Gaussian:
    """The Gaussian mechanism with the least noise that costs no more than a finite share."""
    exact, more = gaussian_multiplier(min(share.epsilon, MOST_EPSILON), share.delta), 1e-12
    # Prices are rounded up by a little, which a tiny share cannot make good.
    while more < 1 and epsilon_of([Gaussian(exact * (1 + more))], share) > share.epsilon:
        more *= 2
    return Gaussian(min(exact * (1 + more), MOST))
