"""What a guarantee leaves of an attack on membership, in people.

An attacker names some candidates. Of those who took part he names a share t, of all others a share
a (false alarms). Every attack on an (epsilon, delta)-private training has t <= e^epsilon a + delta,
and on a mu-Gaussian one t <= Phi(Phi^-1(a) + mu). Where half of all candidates took part, t / (t +
a) of those named did. This follows from the guarantee alone, not from the attacks that were run.

Source: Dong, Roth and Su 2022.
"""

import math

from scipy.special import ndtr, ndtri

from panas.privacy.accounting.events import merge
from panas.privacy.ledger.account import Account

ALARMS = 0.01
"""False alarms: the share of those who did not take part that an attacker names."""


PEOPLE = "by its claim, of 100 people"
"""How the sentence begins."""


def named_at_most(epsilon: float, delta: float, *, mu: float | None = None) -> int:
    """Of 100 people that an attacker names with `ALARMS`, how many took part at most.

    Half of all candidates did: 50 of 100 is as good as a coin.

    Args:
        epsilon: of the training, 0 or more; infinity: it promises nothing.
        delta: of the same, in [0, 1).
        mu: of Gaussian differential privacy, 0 or more, where the training was charged so.

    >>> named_at_most(0.0, 0.0), named_at_most(1.0, 1e-5), named_at_most(math.inf, 0.0)
    (50, 73, 99)
    >>> named_at_most(1.0, 1e-5, mu=0.27)
    66
    """
    found = min(math.exp(min(epsilon, 700.0)) * ALARMS + delta, 1.0)
    if mu is not None:
        found = min(found, float(ndtr(ndtri(ALARMS) + mu)))
    # Rounding must not take one away, nor a share of one stay.
    return math.floor(100 * found / (found + ALARMS) + 1e-9)


def in_people(epsilon: float | None, delta: float, *, mu: float | None = None) -> str:
    """The same as a sentence; empty where nothing is promised.

    Args:
        epsilon: of the training; None or infinity: nothing is promised.
        delta: of the same.
        mu: of Gaussian differential privacy, where the training was charged so.
    """
    if epsilon is None or math.isinf(epsilon):
        return ""
    most = named_at_most(epsilon, delta, mu=mu)
    return (
        f"{PEOPLE} that an attacker names with one false alarm in a hundred, at most {most} really "
        "took part (50 by chance, where half of all did)"
    )


def gaussian_mu(account: Account) -> float | None:
    """mu of all that an account was charged, worst subset; None where not all is Gaussian."""
    worst = 0.0
    for leaf in account.leaves:
        charged = [entry.event for entry in account.entries_on(leaf)]
        merged = merge(charged, account.relation, 1)
        if merged is None or merged.sampled or merged.responses:
            return None
        worst = max(worst, math.sqrt(merged.precision))
    return worst
