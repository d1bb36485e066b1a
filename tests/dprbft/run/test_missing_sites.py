"""A site whose folder is moved away fails, and nothing else; who is not asked is not touched."""

from collections.abc import Callable
from pathlib import Path

import pytest
from ledgers import accounts
from whole_run import check_release, state_of

from dprbft.config.schema import RunConfig, participants
from dprbft.engines.inprocess import InProcess
from dprbft.paths import places_of, search_file, server_folder
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.events import Event, RoundEnded, SiteMissed, SiteSearched, SiteStarted, SiteTrained
from dprbft.run.stages import join_stage, search_stage, train_stage
from dprbft.server import checkpoint
from dprbft.server.records import read_rounds
from panas.runtime.errors import BadInput

Tiny = Callable[..., RunConfig]
Carry = Callable[..., None]


class Removal:
    """A site's folder that is carried off, and put back."""

    def __init__(self, run: Path, index: int) -> None:
        self.folder = places_of(run)[index].folder
        self.aside = run.parent / "aside"

    def carry_off(self) -> None:
        self.folder.rename(self.aside)

    def put_back(self) -> None:
        assert not self.folder.exists(), "something was written where no site is"
        self.aside.rename(self.folder)


def test_a_missing_site_is_named_in_a_search_and_the_others_finish(tiny: Tiny, tmp_path: Path):
    run, config = tmp_path / "r", tiny(federation__clients=3)
    prepare(run, config, resume=False)
    places, heard = places_of(run), list[Event]()
    removal = Removal(run, 1)
    with InProcess(places) as engine:
        opened = OpenRun(run, config, engine, heard.append)
        join_stage(opened)
        removal.carry_off()
        with pytest.raises(BadInput, match=r"site client-001 at .*found none; put it back"):
            search_stage(opened)
        assert [search_file(p.home).exists() for p in places] == [False, False, False]
        removal.put_back()
        join_stage(opened)

        def leave(event: Event) -> None:
            """Take the second site away while the first one searches."""
            heard.append(event)
            if event.site == "client-000":
                removal.carry_off()

        with pytest.raises(BadInput, match=r"site client-001 at .*found none; put it back"):
            search_stage(OpenRun(run, config, engine, leave))
        assert [search_file(p.home).exists() for p in places] == [True, False, True]
        removal.put_back()
        search_stage(opened)
    assert [e.site for e in heard if isinstance(e, SiteSearched)] == [
        "client-000",
        "client-002",
        "client-001",
    ]
    assert [len(a.entries) for a in accounts(run)] == [1, 1, 1]


@pytest.mark.parametrize("back_after", [1, pytest.param(2, marks=pytest.mark.slow)])
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

    with InProcess(places_of(run)) as engine:
        train_stage(OpenRun(run, config, engine, listen))
    missed = [e for e in heard if isinstance(e, SiteMissed)]
    assert missed == [SiteMissed("client-001", r) for r in range(2, 2 + back_after)]
    assert [e.round for e in heard if isinstance(e, RoundEnded)] == [1, 2, 3]
    if back_after == 2:
        removal.put_back()
    records = read_rounds(server_folder(run))
    without = [(0, 2)] * back_after
    assert [r.sites for r in records] == [(0, 1, 2), *without, (0, 1, 2)][:3]
    assert [r.absent for r in records] == [(), *[(1,)] * back_after, ()][:3]
    for account, place in zip(accounts(run), places_of(run), strict=True):
        took = [r for r in records if place.index in r.sites]
        assert state_of(place).round == took[-1].round
        for record in took:
            check_release(run, config, place, record, account)
        # Nobody was charged for a round that it had no part in.
        charged = [e.charge.round for e in account.entries if e.charge.phase != "search"]
        assert charged == [r.round for r in took for _ in range(2)]


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

    with InProcess(places_of(run)) as engine:
        train_stage(OpenRun(run, config, engine, listen))
    assert [e for e in heard if isinstance(e, SiteMissed)] == [SiteMissed("client-000", 1)]
    # Its release had arrived: it counts in both rounds.
    assert [r.sites for r in read_rounds(server_folder(run))] == [(0, 1), (0, 1)]
    assert [state_of(place).round for place in places_of(run)] == [2, 2]


def test_a_round_without_anybody_stops_and_is_resumed(tiny: Tiny, carry: Carry, tmp_path: Path):
    run, config = tmp_path / "r", tiny(federation__clients=1, federation__rounds=2)
    carry(run, config, stages="st")
    removal = Removal(run, 0)

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded):
            removal.carry_off()

    with (
        pytest.raises(BadInput, match="put it back, and go on with --resume"),
        InProcess(places_of(run)) as engine,
    ):
        train_stage(OpenRun(run, config, engine, listen))
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
        with pytest.raises(ZeroDivisionError), InProcess(places_of(run)) as engine:
            train_stage(OpenRun(run, config, engine, listen))
    removal.put_back()
    carry(run, config)
    assert [r.sites for r in read_rounds(server_folder(run))] == [(0,), (0, 1)]


def kept(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder: when it was last changed, and its content."""
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"")
        for p in (folder, *folder.rglob("*"))
    }


def test_who_takes_no_part_in_a_round_is_not_touched(tiny: Tiny, carry: Carry, tmp_path: Path):
    run = tmp_path / "r"
    config = tiny(
        federation__clients=4, federation__participation=0.25, federation__rounds=3, seed=2
    )
    carry(run, config, stages="st")
    places, rounds = places_of(run), participants(config)
    before = dict[int, dict[str, tuple[int, bytes]]]()
    compared = list[tuple[int, int]]()

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded):
            for place in places:
                same = kept(place.folder) == before[place.index]
                assert same == (place.index not in rounds[event.round - 1])
                compared.append((event.round, place.index))
        if isinstance(event, (RoundEnded, SiteStarted)):
            before.update({place.index: kept(place.folder) for place in places})

    with InProcess(places) as engine:
        train_stage(OpenRun(run, config, engine, listen))
    assert compared == [(r, i) for r in (1, 2, 3) for i in range(4)]
