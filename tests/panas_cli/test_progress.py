"""The live display: what it says of a search and of a tuning, on a terminal and in a log file."""

import io
import math
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dprbft.config.files import build_config
from dprbft.paths import SitePaths, write_sites
from dprbft.run.progress.forecast import Forecast
from dprbft.run.progress.logs import watch_logs
from dprbft.run.view import RunView
from panas.runtime.store import write_json
from panas.search_modes.mode import SearchPrice
from panas_cli.progress import Display, Remaining, Track, about
from panas_cli.text.sentences import MISSED, price_lines


class Clock:
    """A time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def display(clock: Clock, width: int = 80, terminal: bool = False) -> Display:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, highlight=False, _environ={}
    )
    return Display(console, clock)


def lines(shown: Display) -> list[str]:
    """What a log file holds."""
    return shown._console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def screen(shown: Display) -> list[str]:
    """What a terminal shows at the moment, below what has been printed."""
    assert shown._live is not None
    plain = Console(file=io.StringIO(), width=shown._console.width, _environ={})
    plain.print(shown._live.renderable)
    return plain.file.getvalue().splitlines()  # type: ignore[attr-defined]


def generation(number: int, passes: int, **more: Any) -> dict[str, Any]:
    plain = {"generation": number, "evaluations": 10, "failed": 1, "cached": 2, "dropped": 3}
    return plain | {"passes": passes, "best": 0.9, "mean": 0.5, "best_genome": "c16k3"} | more


def trial(number: int, value: float | None, status: str = "done") -> dict[str, Any]:
    return {"number": number, "value": value, "status": status}


def test_a_log_has_one_aligned_line_a_generation_with_sums(clock: Clock):
    shown = display(clock)
    shown.stage("search", 1)
    for k in range(12):
        clock.now += 60
        shown.generation("client-000", generation(k, 100 * (k + 1)), 11)
    shown.report("client-000: c16k3, fitness 0.900")
    title, *rest, end = lines(shown)
    assert title.endswith("search: architecture search")
    assert end.endswith("search: 1/1 client-000: c16k3, fitness 0.900")
    assert len(rest) == 12
    assert rest[1] == (
        "[  120.0 s] search: client-000:  generation  1/11  best 0.900  tried  20  failed   2  "
        "about 10 min left"
    )
    assert rest[11].endswith("tried 120  failed  12")
    for word in ("best", "tried", "failed"):
        assert len({line.index(word) for line in rest}) == 1


def left(shown: Display) -> str:
    return lines(shown)[-1].split("  ")[-1]


FIRST, NEXT, LAST = (generation(k, passes) for k, passes in enumerate((9000, 10_000, 11_000)))
"""The first generation takes nine times the passes of the later ones."""


@pytest.mark.parametrize(
    ("total", "seconds", "says"),
    [
        # At the same speed: by passes, not by generations.
        (21, [(900, FIRST), (100, NEXT)], "about 33 min left"),  # 20 x 100 s
        (21, [(900, FIRST), (100, NEXT), (100, LAST)], "about 32 min left"),
        # Without passes: by evaluations.
        (
            22,
            [(10 * n, generation(k, 0, evaluations=n)) for k, n in enumerate((90, 10, 10))],
            "about 33 min left",
        ),
        # What a process takes to start is no part of the speed.
        (11, [(5000, generation(0, 100)), (60, generation(1, 200))], "about 10 min left"),
        # Seen at one look, or in no time.
        (11, [(60, generation(0, 100)), (3, generation(1, 200))], "about 30 s left"),
    ],
)
def test_time_left_goes_by_the_speed_so_far(
    total: int, seconds: list[tuple[float, dict[str, Any]]], says: str, clock: Clock
):
    shown = display(clock)
    shown.stage("search", 1)
    for passed, record in seconds:
        clock.now += passed
        shown.generation("client-000", record, total)
    assert left(shown).strip() == says


def test_a_log_is_calm_but_for_warnings_and_the_last_of_a_stage(clock: Clock):
    shown = display(clock)
    clock.now = 10.0
    shown.stage("train", 5)
    for k in range(4):
        clock.now += 0.9
        shown.report(f"client-{k}: done")
    shown.report("warning: client-4 is not there")
    told = [line.partition("train: ")[2] for line in lines(shown)]
    assert told == ["training", "3/5 client-2: done", "5/5 warning: client-4 is not there"]


def test_what_one_site_does_for_all_is_told_once(clock: Clock):
    shown = display(clock)
    shown.stage("search", 2)
    for site in ("client-000", "client-001"):
        clock.now += 60
        shown.generation(site, generation(0, 100), 1)
        shown.generation(site, generation(1, 200), 1)
    assert [line for line in lines(shown) if "client-001" in line] == []
    assert len(lines(shown)) == 3


def test_what_ran_before_an_interruption_is_counted_but_not_as_speed(clock: Clock):
    shown = display(clock)
    shown.stage("search", 1)
    for k in range(10):
        shown.generation("client-000", generation(k, 100 * (k + 1)), 19, live=False)
    assert len(lines(shown)) == 1
    clock.now = 120.0
    shown.generation("client-000", generation(10, 1100), 19)
    (line,) = lines(shown)[1:]
    assert "tried 110" in line
    assert left(shown) == "about 18 min left"  # 9 x 120 s
    clock.now += 60
    shown.generation("client-000", generation(11, 1200), 19)
    assert left(shown) == "about 8 min left"  # 8 x 60 s: the start is over


def test_a_client_that_begins_later_is_timed_from_when_a_worker_was_free(clock: Clock):
    shown = display(clock)
    shown.stage("search", 2)
    clock.now = 10_000.0
    shown.report("client-000: c16k3, fitness 0.900")
    clock.now += 60
    shown.generation("client-001", generation(0, 100), 10)
    assert left(shown) == "about 10 min left"


def test_trials_in_a_log(clock: Clock):
    shown = display(clock)
    shown.stage("tune", 1)
    results = [
        trial(0, 0.5),
        trial(1, 0.0, "failed"),
        trial(2, None, "over budget"),
        trial(3, 0.25),
    ]
    for record in results:
        clock.now += 30
        shown.trial("client-003", record, 10)
    assert lines(shown)[1:] == [
        f"[{seconds:7.1f} s] tune: client-003:  trial {k + 1:>2}/10  {rest} left"
        for k, (seconds, rest) in enumerate(
            [
                (30, "value 0.500  best 0.500  about 4 min"),
                (60, "value     -  best 0.500  failed  1  about 4 min"),
                (90, "value     -  best 0.500  failed  1  about 4 min"),
                (120, "value 0.250  best 0.500  failed  1  about 3 min"),
            ]
        )
    ]


def test_a_terminal_shows_a_line_a_client_below_the_bar(clock: Clock):
    shown = display(clock, terminal=True)
    shown.stage("search", 2)
    assert len(screen(shown)) == 1
    clock.now = 60.0
    shown.generation("client-001", generation(0, 100), 20)
    shown.generation("client-000", generation(0, 100), 20)
    bar, head, *rows = screen(shown)
    assert bar.startswith("architecture search")
    assert " 0/2 " in bar
    assert head.split()[0] == "site"
    figures = "0/20 0.900 0.500 10 2 3 1 about 20 min"
    assert [" ".join(row.split()) for row in rows] == [f"client-00{i} {figures}" for i in (0, 1)]
    _, *ends = [m.end() for m in re.finditer(r"\S+", head)]
    assert all(row[end - 1] != " " for row in rows for end in ends[:-2])  # right-aligned
    shown.generation("client-000", generation(20, 2000), 20)
    shown.report("client-000: c16k3, fitness 0.900")
    bar, head, *rows = screen(shown)
    assert " 1/2 " in bar
    assert [row.split()[0] for row in rows] == ["client-001"]
    shown.stage("tune", 1)
    first, second = screen(shown)
    assert " 1/1 " in first
    assert second.startswith("DP-SGD settings")


@pytest.mark.parametrize(
    ("width", "name", "whole"),
    [(50, "client-100", False), (80, "south", True), (200, "a-site-of-a-long-name", True)],
)
def test_no_figure_of_the_table_is_cut(width: int, name: str, whole: bool, clock: Clock):
    shown = display(clock, width, terminal=True)
    shown.stage("search", 1)
    clock.now = 1e4
    shown.generation(name, generation(0, 10**9, evaluations=1000), 100)
    _, head, row = screen(shown)
    assert row.split()[0] == (name if len(name) <= 20 else f"{name[:19]}…")
    assert "…" not in head + row[20:]
    assert "0.900" in row
    assert row.rstrip().endswith("about 12 days")
    assert ("cached" in head) == whole


def test_many_clients_do_not_fill_the_terminal(clock: Clock):
    shown = display(clock, terminal=True)
    shown.stage("tune", 30)
    for site in range(30):
        shown.trial(f"client-{site:03d}", trial(0, 0.5), 10)
    *rows, more = screen(shown)
    assert len(rows) == 2 + 8
    assert more.split() == ["+", "22"]


def test_a_terminal_keeps_the_bars_and_not_the_table(clock: Clock):
    shown = display(clock, terminal=True)
    with shown:
        shown.stage("search", 1)
        shown.generation("client-000", generation(0, 100), 1)
        shown.report("client-000: done [not markup]")
    assert len(screen(shown)) == 1
    text = shown._console.file.getvalue()  # type: ignore[attr-defined]
    assert "client-000: done [not markup]" in text


def test_a_brief_terminal_shows_the_last_line_and_keeps_warnings(clock: Clock):
    console = Console(file=io.StringIO(), width=60, force_terminal=True, _environ={})
    shown = Display(console, clock, brief=True)
    with shown:
        shown.stage("train", 4)
        shown.report("north: accuracy 0.900")
        assert screen(shown)[1:] == ["north: accuracy 0.900"]
        shown.report(f"east: accuracy 0.950, {'long ' * 20}")
        assert len(screen(shown)) == 2
        shown.report("warning: south is not there: training goes on without it")
        shown.report(f"round 2: west is not there; {MISSED}")
    assert len(screen(shown)) == 1
    kept = console.file.getvalue()  # type: ignore[attr-defined]
    assert "  warning: south is not there" in kept
    assert "  round 2: west is not there" in kept
    assert "  north" not in kept


@pytest.mark.parametrize(("fails", "end"), [(False, "1/1"), (True, "1/9")])
def test_the_last_bar_ends_full_unless_it_was_stopped(fails: bool, end: str, clock: Clock):
    shown = display(clock, terminal=True)
    with suppress(KeyboardInterrupt), shown:
        shown.stage("audit", 9)
        shown.report("client-000: no better than blind")
        if fails:
            raise KeyboardInterrupt
    (bar,) = screen(shown)
    assert end in bar.split()


@pytest.mark.slow
def test_several_threads_may_report(clock: Clock):
    shown = display(clock, terminal=True)
    shown.stage("search", 8)

    def report(k: int) -> None:
        shown.generation(f"client-{k % 8:03d}", generation(0, 100), 100)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(report, range(400)))
    rows = screen(shown)[2:]
    assert [row.split()[4] for row in rows] == ["500"] * 8


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "a few seconds"),
        (34, "about 30 s"),
        (55, "about 1 min"),
        (200, "about 3 min"),
        (3400, "about 1 h"),
        (9000, "about 2 h"),
        (200_000, "about 2 days"),
    ],
)
def test_durations_in_words(seconds: float, text: str):
    assert about(seconds) == text


@pytest.mark.parametrize(
    ("price", "mode", "says"),
    [
        (SearchPrice(0.0, "noise"), "data-free", "epsilon 0 (data-free search: genomes are scored"),
        (SearchPrice(math.inf, "unbounded"), "public-proxy", "epsilon infinity (public-proxy"),
        (SearchPrice(0.8, "histogram"), "public-proxy", "epsilon 0.80 of 8, for one noised label"),
        (SearchPrice(0.8, "histogram kept"), "public-proxy", "a noised label histogram, paid al"),
        (SearchPrice(0.0, "no histogram"), "public-proxy", "no histogram: all classes alike"),
        (SearchPrice(0.5, "by lot"), "public-proxy", "epsilon 0.50 of 8 (public-proxy search: by "),
    ],
)
def test_one_line_says_the_price_unless_sites_differ(
    price: SearchPrice, mode: str, says: str, tmp_path: Path
):
    config = build_config({"privacy": {"search": mode}, "federation": {"clients": 2}})
    names = enumerate(("north", "south"))
    write_sites(tmp_path, [SitePaths(i, name, tmp_path / name, "r") for i, name in names])
    view = RunView(tmp_path, config)
    (line,) = price_lines({0: price, 1: price}, view)
    assert line.startswith("search price: ")
    assert says in line
    other = SearchPrice(price.epsilon + 1, "histogram")
    assert [x.split(": ")[0] for x in price_lines({0: price, 1: other}, view)] == [
        "search price, north",
        "search price, south",
    ]
    assert price_lines({}, view) == []


def test_what_is_left_in_all_is_told_now_and_then(clock: Clock):
    shown = display(clock)
    shown.forecast(Forecast({"search": 100.0, "train": 100.0}))
    shown.stage("search", 10)
    for _ in range(10):
        clock.now += 12.0
        shown.report("done")
    first, *rest = lines(shown)
    assert first == "time: about 3 min in all"
    told = [x for x in rest if "in all" in x]
    assert [x[:11] for x in told] == ["[   36.0 s]", "[   72.0 s]", "[  108.0 s]"]
    assert told[-1].endswith("search: about 2 min left in all")


def test_a_search_for_all_sites_is_as_far_as_the_first():
    remaining = Remaining(Forecast({"search": 600.0, "train": 600.0}, frozenset({"search"})), 0.0)
    remaining.stage("search", 10)
    tracks = {name: Track(0.0) for name in ("north", "south")}
    for track in tracks.values():
        track.step, track.total = 1, 2
    assert remaining.text(tracks, 300.0) == "about 15 min left in all"
    remaining.report()
    assert remaining.text({}, 600.0) == "about 10 min left in all"


def test_nothing_is_left_after_the_last_stage(clock: Clock):
    shown = display(clock)
    shown.forecast(Forecast({"train": 100.0}))
    shown.stage("train", 1)
    clock.now = 90.0
    shown.report("done")
    assert lines(shown)[-1].endswith("train: 1/1 done")


def test_a_terminal_shows_what_is_left_in_all(clock: Clock):
    shown = display(clock, terminal=True)
    shown.forecast(Forecast({"search": 600.0, "train": 600.0}))
    shown.stage("search", 2)
    clock.now = 300.0
    shown.report("one of two")
    assert screen(shown)[-1].strip() == "about 15 min left in all"
    shown.stage("audit", 2)  # which nobody has forecast
    assert "in all" not in screen(shown)[-1]


def test_a_search_moves_with_its_first_candidates(clock: Clock):
    shown = display(clock)
    shown.forecast(Forecast({"search": 1000.0}))
    shown.stage("search", 1)
    told = shown.generations(4)
    for k in range(1, 6):
        clock.now += 20
        told("north", {"candidates": k, "at_most": 26}, True)
    told("north", generation(0, 600), True)
    told("north", {"candidates": 7, "at_most": 26}, True)  # the line of its generation says so
    wanted = ["1 of at most 26 candidates, about 8 min left"]
    wanted += [f"{k} of at most 26 candidates, about {m} min left" for k, m in ((3, 8), (5, 7))]
    results = [line.split("north: ")[1] for line in lines(shown) if "candidates" in line]
    assert results == wanted
    assert shown._remaining is not None
    assert shown._remaining.text(shown._tracks, clock.now) == "about 7 min left in all"


def test_a_terminal_counts_the_candidates_of_the_generation_under_way(clock: Clock):
    shown = display(clock, width=120, terminal=True)
    with shown:
        shown.stage("search", 2)
        shown.candidates("north", 2, 26, 4)
        shown.generation("east", generation(0, 600), 4)
        shown.candidates("east", 12, 26, 4)
        head, east, north = screen(shown)[-3:]
    assert "tried" in head
    assert east.split()[:5] == ["east", "0/4", "0.900", "0.500", "12"]
    assert north.split()[:5] == ["north", "0/4", "-", "-", "2"]


def test_what_a_site_has_scored_is_heard_of_once(tmp_path: Path):
    heard: list[Any] = []
    write_json(tmp_path / "candidates.json", {"candidates": 2, "at_most": 6})
    logs = {"north": tmp_path / "log.jsonl"}
    with watch_logs(logs, lambda *line: heard.append(line)) as catch_up:
        write_json(tmp_path / "candidates.json", {"candidates": 3, "at_most": 6})
        catch_up()
        catch_up()
        (tmp_path / "candidates.json").unlink()
    assert [(line["candidates"], live) for _, line, live in heard] == [(2, False), (3, True)]
