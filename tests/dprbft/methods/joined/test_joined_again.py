"""Method joined: what is checked before a charge, and a release that died on its way out."""

from pathlib import Path
from typing import Any

import pytest
from deaths import Death, dies
from summed_runs import Direct, begun, joined_by, summed_config
from tiny_runs import greeted

from dprbft.config.schema import RunConfig
from dprbft.messages import Broadcast, Code, Release, Verb
from dprbft.methods.serve import Machine, serve
from dprbft.paths import SitePaths, sent_file, state_file
from dprbft.site.site import Site, open_site
from panas.privacy.ledger.charge import Entry

WRITE = Death("dprbft.methods.joined.exchange:write_bytes")
DRAW = "panas.privacy.release.kinds.moments:run"
DEATHS = [Death(DRAW), Death(DRAW, after=True), WRITE, Death(WRITE.at, after=True)]
STATE = "dprbft.methods.joined.secure_sum:SumState.write"
MASK = "dprbft.secure_sum.party:Party.mask"
ONE = summed_config(privacy={"trust": "server"}, federation={"clients": 2})


def releases(paths: SitePaths) -> list[Entry]:
    return [e for e in open_site(paths).account.entries if e.charge.phase == "release"]


@pytest.mark.parametrize("death", DEATHS, ids=str)
def test_a_release_that_died_after_its_charge_is_made_for_it(death: Death, tmp_path: Path):
    paths, before = greeted(tmp_path / "r", ONE)
    with dies(death):
        serve(paths, Machine(), Verb.ROUND, before)
    (charged,) = releases(paths)
    assert not charged.finished
    assert serve(paths, Machine(), Verb.READY, before).code is Code.DONE
    first, again = (serve(paths, Machine(), Verb.ROUND, before) for _ in range(2))
    assert first == again
    assert first.code is Code.DONE
    message = Release.from_bytes(first.release, width=8, classes=10)
    (paid,) = releases(paths)
    assert (paid.id, paid.event, paid.finished) == (charged.id, charged.event, True)
    assert (message.receipt, message.noise_multiplier) == (paid.id, paid.event.noise_multiplier)
    account = open_site(paths).account
    assert account.spent() <= account.budget.epsilon


def test_a_message_that_has_left_is_never_made_again_for_its_charge(tmp_path: Path):
    paths, before = greeted(tmp_path / "r", ONE)
    sent = serve(paths, Machine(), Verb.ROUND, before).release
    sent_file(paths.home, 1).unlink()
    state_file(paths.home).unlink()
    again = serve(paths, Machine(), Verb.ROUND, before).release
    assert sent != again
    assert not again or len(releases(paths)) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "death",
    [
        Death(MASK, call=2),  # the first call tries the shares, before the charge
        Death(MASK, call=2, after=True),
        Death(STATE, call=9),  # of four sites, after keys and shares
        Death(STATE, call=9, after=True),
    ],
    ids=str,
)
def test_a_share_of_a_sum_that_died_after_its_charge_is_made_for_it(death: Death, tmp_path: Path):
    config = summed_config()
    engine = begun(tmp_path / "r", config)
    with dies(death):
        joined_by(engine, tmp_path / "r", config)
    (charged,) = releases(engine.sites[0])
    engine = Direct(engine.sites)
    joined_by(engine, tmp_path / "r", config)
    for paths in engine.sites:
        (paid,) = releases(paths)
        assert (paid.event, paid.finished) == (charged.event, True)
    assert releases(engine.sites[0])[0].id == charged.id
    assert Verb.UNMASK in {verb for verb, _, _ in engine.asked}


@pytest.mark.slow
@pytest.mark.parametrize("config", [ONE, summed_config()], ids=["server", "secure-sum"])
def test_rows_that_cannot_be_computed_cost_nothing(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Site, "rows", fails)
    engine = begun(tmp_path / "r", config)
    with pytest.raises(MemoryError):
        joined_by(engine, tmp_path / "r", config)
    assert not open_site(engine.sites[0]).account.entries


def test_a_broadcast_of_another_round_is_refused_before_a_charge(tmp_path: Path):
    paths, before = greeted(tmp_path / "r", ONE)
    head = Broadcast.from_bytes(before, width=8, classes=10)
    for number in (-1, 1, 7):
        wrong = Broadcast(number, head.weight, head.bias).to_bytes()
        assert serve(paths, Machine(), Verb.ROUND, wrong).code is Code.REFUSED
    assert not open_site(paths).account.entries
