"""A budget for life lives on past one run: what is left can be asked for, and is granted.

What "the largest that fits" is: a run asks for (epsilon, delta), which counts as one Gaussian
mechanism. If that composes with all that was charged to no more than the budget for life, the run
is granted and, unless it is killed, spends at least 98 % of the epsilon that it asked for, at its
own delta; 92 % where it samples at a rate of 0.2. (A plan must stay below one Gaussian's profile at
every epsilon, `accounting.reserve`, and that of subsampled steps has another form.) If it does not,
the run is refused and the ledger stays as it was. In the end, after runs have asked for what
`largest_run` says until it says nothing, at least 98 % of the budget for life is spent. Never more,
by a composition that shares no code with the ledger's.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from accounting_oracles import composed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from lifetimes import Life

from dprbft.methods.joined.budget import largest_run
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import as_gaussian
from panas.runtime.errors import BudgetExhausted

OWNER = Budget(8.0, 1e-4)
TINY = 0.3  # of an epsilon that may need noise above 100 times the signal
PRECISE = 1e-3  # by how much two ways of composing may differ


def use_up(life: Life, at_most: float) -> None:
    """Runs of the default method that ask for what they may, until they may for nothing."""
    for turn in range(100):
        left = largest_run(life.ledger.account())
        if not left:
            return
        life.joined(f"last-{turn}", Budget(min(left, at_most), life.budget.delta))
    raise AssertionError("no end")


@pytest.mark.slow
def test_after_a_run_what_may_be_asked_for_is_granted(tmp_path: Path) -> None:
    life = Life(tmp_path, OWNER)
    life.joined("first", Budget(3.5, 1e-4))
    assert life.ledger.account().spent() == pytest.approx(3.49, abs=0.01)
    assert largest_run(life.ledger.account()) == pytest.approx(6.66, abs=0.01)
    for turn, asked in enumerate((3.5, 2.0, 1.0)):
        life.joined(f"{turn}", Budget(asked, 1e-4))
        own = life.ledger.account().of_run(f"{turn}").spent()
        assert 0.99 * asked < own <= asked
    left = largest_run(life.ledger.account())
    life.joined("last", Budget(left, 1e-4))
    assert 0.99 * 8 < composed(life.events, 1e-4) <= 8 + PRECISE


@pytest.mark.slow
def test_ten_runs_of_one_and_more_until_it_is_used_up(tmp_path: Path) -> None:
    life = Life(tmp_path, OWNER)
    for turn in range(10):
        life.joined(f"{turn}", Budget(1.0, 1e-4))
        assert life.ledger.account().of_run(f"{turn}").spent() > 0.99
    use_up(life, 2.5)
    assert 0.99 * 8 < composed(life.events, 1e-4) <= 8 + PRECISE


@pytest.mark.slow
def test_a_refused_run_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    life = Life(tmp_path, OWNER)
    life.joined("first", Budget(7.0, 1e-4))
    before, left = life.ledger.path.read_bytes(), largest_run(life.ledger.account())
    with pytest.raises(BudgetExhausted, match="share of at most"):
        life.joined("second", Budget(left + 0.01, 1e-4))
    assert life.ledger.path.read_bytes() == before


@pytest.mark.slow
def test_what_may_be_asked_for_is_nothing_where_no_plan_has_room(tmp_path: Path) -> None:
    life = Life(tmp_path, OWNER)
    use_up(life, 8.0)
    account = life.ledger.account()
    assert largest_run(account) == 0
    assert account.left() < TINY
    assert largest_run(life.ledger.account(), most=0.5) == 0


RUN = some.tuples(
    some.sampled_from(["joined", "killed", "sum", "rounds", "releases"]),
    some.floats(0.5, 6.0),
    some.sampled_from([1e-4, 1e-5]),
)


def live(life: Life, runs: list[tuple[str, float, float]], rate: float) -> None:
    """Ask for one run after the other, and hold each to what the text above says."""
    for turn, (kind, asked, delta) in enumerate(runs):
        name, share, before = f"{turn}", Budget(asked, delta), life.events
        content = life.ledger.path.read_bytes()
        fits = epsilon([*before, as_gaussian(share)], OWNER.delta, interval=1e-3) <= OWNER.epsilon
        try:
            if kind == "rounds":
                life.updates(name, share, rate=rate)
            elif kind == "releases":
                life.updates(name, share, releases=2, rate=rate)
            else:
                life.joined(name, share, killed=kind == "killed", summed=kind == "sum")
        except BudgetExhausted:
            assert not fits
            assert life.ledger.path.read_bytes() == content
            continue
        assert fits
        own = epsilon(life.ledger.account().of_run(name).events(), delta, interval=1e-3)
        assert own <= asked + PRECISE
        least = 0.98 if rate == 1.0 else 0.92
        assert kind == "killed" or own >= least * asked
    use_up(life, 8.0)
    assert 0.98 * OWNER.epsilon <= composed(life.events, OWNER.delta) <= OWNER.epsilon + PRECISE


@pytest.mark.slow
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs=some.lists(RUN, min_size=1, max_size=5))
def test_any_sequence_of_runs_gets_what_fits_and_no_more(
    runs: list[tuple[str, float, float]],
) -> None:
    with TemporaryDirectory() as folder:
        live(Life(Path(folder), OWNER), runs, rate=1.0)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs=some.lists(RUN, min_size=1, max_size=3))
def test_any_sequence_of_runs_on_part_of_the_samples_gets_what_fits(
    runs: list[tuple[str, float, float]],
) -> None:
    with TemporaryDirectory() as folder:
        live(Life(Path(folder), OWNER, n=900), runs, rate=0.2)
