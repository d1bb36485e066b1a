"""A site whose folder is moved away fails, and nothing else; who is not asked is not touched."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import MOMENTS, accounts
from whole_run import check_release, state_of

from dprbft.config.schema import RunConfig, participants
from dprbft.engines.inprocess import InProcess
from dprbft.engines.protocol import Engine
from dprbft.messages import Reply, Verb
from dprbft.paths import ledger_file, read_sites, search_file, server_folder
from dprbft.run.bookkeeping import is_done
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.events import (
    Event,
    Listener,
    RoundEnded,
    SiteLeftOut,
    SiteMissed,
    SiteSearched,
    SiteStarted,
    SiteTrained,
)
from dprbft.run.stages import join_stage, search_stage, train_stage, tune_stage
from dprbft.run.summary import summarise
from dprbft.server import checkpoint
from dprbft.server.records import read_rounds
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted

Tiny = Callable[..., RunConfig]
Carry = Callable[..., None]


class Removal:
    """A site's folder that is carried off, and put back."""

    def __init__(self, run: Path, index: int) -> None:
        self.folder = read_sites(run)[index].folder
        self.aside = run.parent / "aside"

    def carry_off(self) -> None:
        self.folder.rename(self.aside)

    def put_back(self) -> None:
        assert not self.folder.exists(), "something was written where no site is"
        self.aside.rename(self.folder)


class Leaving:
    """An engine before whose verbs something happens: a site's folder is carried off, say."""

    def __init__(self, engine: Engine, before: Callable[[Verb], None]) -> None:
        self.engine, self.before = engine, before

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        self.before(verb)
        yield from self.engine.call(verb, messages)


def trained(
    run: Path,
    config: RunConfig,
    listen: Listener = lambda event: None,
    before: Callable[[Verb], None] = lambda verb: None,
) -> None:
    """Train a run, with something before each verb and after each event."""
    with InProcess(read_sites(run)) as engine:
        train_stage(OpenRun(run, config, Leaving(engine, before), listen))


def left_out(heard: list[Event]) -> list[tuple[str, str]]:
    return [(e.site, e.stage) for e in heard if isinstance(e, SiteLeftOut)]


@pytest.mark.slow
def test_a_search_goes_on_without_a_missing_site_and_is_made_good(tiny: Tiny, tmp_path: Path):
    run, config = tmp_path / "r", tiny(federation__clients=3)
    prepare(run, config, resume=False)
    sites, heard = read_sites(run), list[Event]()
    removal = Removal(run, 1)

    def leave(event: Event) -> None:
        """Take the second site away while the first one searches."""
        heard.append(event)
        if event.site == "client-000" and isinstance(event, SiteSearched):
            removal.carry_off()

    with InProcess(sites) as engine:
        assert search_stage(OpenRun(run, config, engine, leave)) == [0, 2]
        assert left_out(heard) == [("client-001", "search")]
        opened = OpenRun(run, config, engine, heard.append)
        assert search_stage(opened) == [0, 2]  # not there when the stage begins
        assert left_out(heard) == [("client-001", "search")] * 2
        assert [search_file(p.home).exists() for p in sites] == [True, False, True]
        assert not is_done(run, "search")
        removal.put_back()
        assert search_stage(opened) == [0, 1, 2]
        assert is_done(run, "search")
    assert [e.site for e in heard if isinstance(e, SiteSearched)] == [
        "client-000",
        "client-002",
        "client-001",
    ]
    assert [len(a.entries) for a in accounts(run)] == [1, 1, 1]


def test_where_nobody_is_there_a_stage_stops(tiny: Tiny, tmp_path: Path):
    run, config, heard = tmp_path / "r", tiny(), list[Event]()
    prepare(run, config, resume=False)
    run.joinpath("sites").rename(tmp_path / "aside")
    with InProcess(read_sites(run)) as engine:
        opened = OpenRun(run, config, engine, heard.append)
        for stage in (join_stage, search_stage, tune_stage, train_stage):
            with pytest.raises(BadInput, match=r"site client-000 at .*found none; put it back"):
                stage(opened)
    assert heard == []


@pytest.mark.slow
def test_who_has_missed_the_search_is_tuned_and_trained_when_it_is_resumed(
    tiny: Tiny, carry: Carry, tmp_path: Path
):
    run, config = tmp_path / "r", tiny(federation__clients=3)
    prepare(run, config, resume=False)
    removal, heard = Removal(run, 1), list[Event]()
    removal.carry_off()
    with InProcess(read_sites(run)) as engine:
        opened = OpenRun(run, config, engine, heard.append)
        through = search_stage(opened)
        removal.put_back()
        assert tune_stage(opened, through) == [0, 2]
        train_stage(opened)
    stages: list[tuple[str, str]] = [("client-001", "search"), ("client-001", "train")]
    assert left_out(heard) == stages
    (record,) = read_rounds(server_folder(run))
    assert (record.sites, record.absent) == ((0, 2), (1,))
    summary = summarise(run, config)
    assert [c["name"] for c in summary["clients"]] == ["client-000", "client-002"]
    assert (summary["absent"], summary["finished"]) == (["client-001"], False)
    carry(run, config)
    summary = summarise(run, config)
    # The rounds are over: it keeps its public start, and was charged for its search alone.
    assert [c["selected_round"] for c in summary["clients"]][1] == 0
    assert (summary["absent"], summary["finished"]) == ([], True)
    assert [len(a.entries) for a in accounts(run)] == [3, 1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("noise", [None, 2.0])
def test_who_is_not_there_when_training_begins_is_asked_before_its_first_round(
    noise: float | None, tiny: Tiny, carry: Carry, tmp_path: Path
):
    run = tmp_path / "r"
    config = tiny(federation__rounds=2, training__noise_multiplier=noise)
    carry(run, config, stages="st")
    removal, heard, verbs = Removal(run, 1), list[Event](), list[Verb]()

    def before(verb: Verb) -> None:
        verbs.append(verb)
        if verbs == [Verb.HELLO, Verb.READY]:
            removal.carry_off()

    def listen(event: Event) -> None:
        heard.append(event)
        if isinstance(event, RoundEnded) and event.round == 1:
            removal.put_back()

    trained(run, config, listen, before)
    assert left_out(heard) == [("client-001", "train")]
    assert [e for e in heard if isinstance(e, SiteMissed)] == [SiteMissed("client-001", 1)]
    assert [r.sites for r in read_rounds(server_folder(run))] == [(0,), (0, 1)]
    assert is_done(run, "train")
    summary = summarise(run, config)
    assert summary["absent"] == []
    for site in summary["clients"]:
        assert site["epsilon"]["spent"] <= site["epsilon"]["budget"]


@pytest.mark.slow
def test_who_comes_back_with_less_budget_does_not_exceed_it(
    tiny: Tiny, carry: Carry, tmp_path: Path
):
    """Between its readiness and its round, another run spends of the same budget for life."""
    run, config = tmp_path / "r", tiny()
    carry(run, config, stages="st")
    removal, verbs = Removal(run, 1), list[Verb]()

    def before(verb: Verb) -> None:
        verbs.append(verb)
        if verb is Verb.ROUND:
            removal.carry_off()
            other = Ledger(ledger_file(removal.aside)).begin_run("other", Budget(6.0, 1e-5))
            with other.charge(replace(MOMENTS, event=Gaussian(0.9))):
                pass
            removal.put_back()

    with pytest.raises(BudgetExhausted, match="client-001: expected the data of"):
        trained(run, config, before=before)
    account = accounts(run)[1]
    assert account.spent() <= account.budget.epsilon
    assert account.of_run("other").spent() > 4
    assert {e.charge.phase for e in account.of_run(read_sites(run)[1].run).entries} == {"search"}
    # It is not ready for what is left of the budget either, and nobody is charged meanwhile.
    charged = [len(a.entries) for a in accounts(run)]
    with pytest.raises(BudgetExhausted, match="client-001"):
        carry(run, config)
    assert [len(a.entries) for a in accounts(run)] == charged


@pytest.mark.slow
@pytest.mark.parametrize("back_after", [1, 2])
def test_a_round_goes_on_without_a_missing_site_and_the_next_with_it(
    back_after: int, tiny: Tiny, carry: Carry, tmp_path: Path
):
    """It leaves while round 2 is under way, and returns after it, or after the run."""
    run, config = tmp_path / "r", tiny(federation__clients=3, federation__rounds=3)
    carry(run, config, stages="st")
    removal, heard = Removal(run, 1), list[Event]()

    def listen(event: Event) -> None:
        heard.append(event)
        if event == SiteTrained("client-000", 2):
            removal.carry_off()
        if back_after == 1 and isinstance(event, RoundEnded) and event.round == 2:
            removal.put_back()

    trained(run, config, listen)
    missed = [e for e in heard if isinstance(e, SiteMissed)]
    assert missed == [SiteMissed("client-001", r) for r in range(2, 2 + back_after)]
    assert [e.round for e in heard if isinstance(e, RoundEnded)] == [1, 2, 3]
    if back_after == 2:
        removal.put_back()
    records = read_rounds(server_folder(run))
    without = [(0, 2)] * back_after
    assert [r.sites for r in records] == [(0, 1, 2), *without, (0, 1, 2)][:3]
    assert [r.absent for r in records] == [(), *[(1,)] * back_after, ()][:3]
    for account, paths in zip(accounts(run), read_sites(run), strict=True):
        took = [r for r in records if paths.index in r.sites]
        assert state_of(paths).round == took[-1].round
        for record in took:
            check_release(run, config, paths, record, account)
        # Nobody was charged for a round that it had no part in.
        charged = [e.charge.round for e in account.entries if e.charge.phase != "search"]
        assert charged == [r.round for r in took for _ in range(2)]


@pytest.mark.slow
def test_a_site_that_leaves_between_release_and_answer_returns_to_the_next_round(
    tiny: Tiny, carry: Carry, tmp_path: Path
):
    run, config = tmp_path / "r", tiny(federation__rounds=2)
    carry(run, config, stages="st")
    removal, heard = Removal(run, 0), list[Event]()

    def listen(event: Event) -> None:
        heard.append(event)
        if event == SiteTrained("client-001", 1):
            removal.carry_off()
        if isinstance(event, RoundEnded) and event.round == 1:
            removal.put_back()

    trained(run, config, listen)
    assert [e for e in heard if isinstance(e, SiteMissed)] == [SiteMissed("client-000", 1)]
    # Its release had arrived: it counts in both rounds.
    assert [r.sites for r in read_rounds(server_folder(run))] == [(0, 1), (0, 1)]
    assert [state_of(paths).round for paths in read_sites(run)] == [2, 2]


@pytest.mark.slow
def test_a_round_without_anybody_stops_and_is_resumed(tiny: Tiny, carry: Carry, tmp_path: Path):
    run, config = tmp_path / "r", tiny(federation__clients=1, federation__rounds=2)
    carry(run, config, stages="st")
    removal = Removal(run, 0)

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded):
            removal.carry_off()

    with pytest.raises(BadInput, match="put it back, and go on with --resume"):
        trained(run, config, listen)
    assert len(read_rounds(server_folder(run))) == 1
    removal.put_back()
    carry(run, config)
    assert len(read_rounds(server_folder(run))) == 2


@pytest.mark.slow
def test_a_server_that_dies_after_an_answer_asks_no_more_of_who_had_no_part(
    tiny: Tiny, carry: Carry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, config = tmp_path / "r", tiny(federation__rounds=2)
    carry(run, config, stages="st")
    removal = Removal(run, 1)

    def listen(event: Event) -> None:
        if event == SiteTrained("client-000", 1):
            removal.carry_off()

    with monkeypatch.context() as m:
        m.setattr(checkpoint.ServerFiles, "end", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trained(run, config, listen)
    removal.put_back()
    carry(run, config)
    assert [r.sites for r in read_rounds(server_folder(run))] == [(0,), (0, 1)]


def kept(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder: when it was last changed, and its content."""
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"")
        for p in (folder, *folder.rglob("*"))
    }


@pytest.mark.slow
def test_who_takes_no_part_in_a_round_is_not_touched(tiny: Tiny, carry: Carry, tmp_path: Path):
    run = tmp_path / "r"
    config = tiny(
        federation__clients=4, federation__participation=0.25, federation__rounds=3, seed=2
    )
    carry(run, config, stages="st")
    sites, rounds = read_sites(run), participants(config)
    before = dict[int, dict[str, tuple[int, bytes]]]()
    compared = list[tuple[int, int]]()

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded):
            for paths in sites:
                same = kept(paths.folder) == before[paths.index]
                assert same == (paths.index not in rounds[event.round - 1])
                compared.append((event.round, paths.index))
        if isinstance(event, (RoundEnded, SiteStarted)):
            before.update({paths.index: kept(paths.folder) for paths in sites})

    trained(run, config, listen)
    assert compared == [(r, i) for r in (1, 2, 3) for i in range(4)]
