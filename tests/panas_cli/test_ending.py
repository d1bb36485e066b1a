"""The last screen of a run."""

from pathlib import Path
from typing import Any

import pytest
from summaries import site_of, summary_of

from dprbft.run.outcome import outcome
from panas_cli.report.page import mean_bars
from panas_cli.text.ending import (
    LINES,
    MOST_SITES,
    audited,
    left,
    odds_text,
    print_ending,
    promised,
    sentences,
    warnings,
    worked,
)
from panas_cli.text.printing import WIDTH

RUN = Path("runs/first")
RESTS = "at most 1 of 8 sites collude with the server or are missing"


def site(alone: float = 0.7, joined: float = 0.9, **changes: Any) -> dict[str, Any]:
    steps = {"majority": 0.3, "public": 0.5, "alone": alone, "joined": joined}
    own = {"samples": {"train": 300, "test": 100}, "ladder": steps, "baselines": None}
    return site_of(joined, **own | changes)


def spent(epsilon: float | str, **changes: Any) -> dict[str, Any]:
    return site(epsilon={"spent": epsilon, "budget": 9.0, "release": 1.0, "search": 0.1}, **changes)


@pytest.mark.parametrize("sites", [1, 8, 100])
@pytest.mark.parametrize("width", [80, WIDTH])
def test_it_is_one_screen(
    sites: int, width: int, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    clients = [
        spent(2.9, name=f"a-rather-long-name-of-a-hospital-{k}", trust=[{"assumption": RESTS}])
        for k in range(sites)
    ]
    print_ending(RUN, summary_of(*clients) | {"network": "stays"}, None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= width
    assert all("a-rather" in line for line in lines if "\u2026" in line)
    assert any("audit" in line for line in lines)
    assert sum(line.lstrip().startswith("a-rather") for line in lines) == min(sites, MOST_SITES)


def test_no_sentence_is_long():
    summary = summary_of(*[spent(2.9, trust=[{"assumption": RESTS}])] * 8)
    result = outcome(summary)
    said = sentences(RUN, summary, result, None)
    assert max(len(line.split()) for line in said) <= 20


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((0.7, 0.9), "It worked: joining raised mean accuracy from 0.700 (each site alone) to"),
        ((0.7, 0.71), "No clear difference: joining changed mean accuracy from 0.700 (each site"),
        ((0.9, 0.7), "Joining lowered mean accuracy from 0.900 (each site alone) to 0.700."),
        ((0.2, 0.4), "Joining lowered mean accuracy from 0.500 (a head of public samples) to"),
    ],
)
def test_it_says_whether_joining_helped(steps: tuple[float, float], says: str):
    summary = summary_of(*[site(*steps)] * 4)
    assert worked(summary, outcome(summary)).startswith(says)


def test_a_mean_says_of_how_many_sites_it_is(capsys: pytest.CaptureFixture):
    summary = summary_of(*[site(0.7, 0.9)] * 2, site(samples={"test": 2}))
    says = "It worked: joining raised mean accuracy of 2 of 3 sites from 0.700"
    assert worked(summary, outcome(summary)).startswith(says)
    print_ending(RUN, summary, None)
    assert "mean of 2 " in capsys.readouterr().out
    bars = mean_bars(outcome(summary))
    assert bars is not None
    assert "over 2 of 3 sites, on test samples, those with 5" in bars.caption


def test_where_nothing_was_sent_or_measured_it_says_so():
    summary = summary_of(site())
    summary["communication"]["up_bytes"] = 0
    assert worked(summary, outcome(summary)).endswith("0.900, and nothing left a site.")
    few = summary_of(site(samples={"test": 2}))
    assert worked(few, outcome(few)).startswith("No site has 5 test samples or more")


@pytest.mark.parametrize(
    ("epsilon", "says"),
    [
        (0.0, "Nothing that left was computed from private samples."),
        (1.0, "Whoever sees them is at most 2.8 times surer that any one training sample"),
        (8.0, "at most 3,000 times surer"),
        ("infinity", "Nothing is promised: epsilon is infinite"),
    ],
)
def test_epsilon_is_told_as_odds(epsilon: float | str, says: str):
    assert says in promised(outcome(summary_of(spent(0.0), spent(epsilon))))[0]


@pytest.mark.parametrize(
    ("epsilon", "says"),
    [
        (0.0, "0.0 kB in all left the sites; the server saw each."),
        (1.0, "No sample left its site; noised figures did, 0.0 kB in all;"),
        ("infinity", "What left was not protected by noise: 0.0 kB in all."),
    ],
)
def test_it_says_what_left(epsilon: float | str, says: str):
    summary = summary_of(spent(0.0), spent(epsilon))
    summary["clients"][1]["epsilon"]["release"] = epsilon
    assert left(summary, outcome(summary))[0].startswith(says)
    summary["communication"]["up_bytes"] = 0
    assert left(summary, outcome(summary)) == []


def test_a_promise_says_what_it_rests_on():
    own = {"trust": [{"assumption": RESTS}], "spent_local": 11.53}
    _, rests = promised(outcome(summary_of(spent(2.0, **own), spent(2.0, **own))))
    assert rests == f"It trusts other sites ({RESTS}); else 110,000 times."
    own["spent_local"] = 118.0
    _, rests = promised(outcome(summary_of(spent(2.0, **own), spent(2.0, **own))))
    assert rests == f"It trusts other sites ({RESTS}); else no useful bound holds."
    (line,) = promised(outcome(summary_of(spent(2.0, unit="one group: patient"))))
    assert line.endswith("that any one group took part.")


@pytest.mark.parametrize(
    ("odds", "text"),
    [
        *((1.02, "1.1"), (7.38, "7.4"), (19.99, "20"), (54.2, "55"), (2980, "3,000")),
        *((1.47e6, "2e+06"), (1e6, "1e+06"), (9.2e6, "1e+07"), (1e304, "1e+304")),
    ],
)
def test_odds_are_rounded_up(odds: float, text: str):
    assert odds_text(odds) == text


@pytest.mark.parametrize(
    ("verdicts", "says"),
    [
        (("leaks", "masked"), "The audit found a leak at 1 of 2 sites: s0."),
        (("inconclusive",) * 2, "no leak; at every site samples are too few to rule one out."),
        (
            ("inconclusive", "masked"),
            "samples are too few to rule one out, and at 1 site it had nothing to attack.",
        ),
        (("no better than blind",) * 2, "The audit found no leak."),
        (("no better than blind", "masked"), "no leak; at 1 site it had nothing to attack."),
        (("masked", "masked"), "nothing to attack: masked messages tell nothing alone."),
        (("nothing left", "nothing left"), "nothing to attack: nothing left."),
    ],
)
def test_it_says_what_the_audit_found(verdicts: tuple[str, str], says: str):
    clients = [{"name": f"s{k}", "verdict": v, "network": None} for k, v in enumerate(verdicts)]
    sites = [site(name=f"s{k}") for k in range(2)]
    assert audited(outcome(summary_of(*sites), {"clients": clients}), True, RUN).endswith(says)
    assert "`panas audit runs/first`" in audited(outcome(summary_of(*sites)), False, RUN)


def test_it_warns_only_where_somebody_should_act():
    sound = summary_of(*[spent(2.9)] * 4)
    assert warnings(sound, outcome(sound)) == []
    own = {"best": 0.9, "selected": 0.9, "network": 0.29}
    below = summary_of(site(name="a", accuracy=site()["accuracy"] | own), *[site()] * 7)
    assert any("own network of a is less accurate" in x for x in warnings(below, outcome(below)))
    few, weak = site(samples={"test": 1}, name="small"), spent(8.0, delta=9e-3)
    networks = [spent(1.0, accuracy={"network": 0.5}) for _ in range(2)]
    bad = summary_of(few, weak, *networks) | {"absent": ["gone"], "network": "stays"}
    said = warnings(bad, outcome(bad))
    for part in (
        "warning: gone did not finish; --resume",
        "warning: small: fewer than 5 test samples",
        "odds of 3,000 are high; --epsilon 3",
        "delta times the samples of a site is 3.6",
        "none may leave its site",
    ):
        assert any(part in line for line in said), part
    lone = summary_of(*networks)
    assert any(
        "networks of 2 sites are 3 points or more" in x for x in warnings(lone, outcome(lone))
    )
    few = [spent(1.0, accuracy={"network": 0.8}, samples={"test": n}) for n in (26, 25, 19, 40)]
    assert warnings(summary_of(*few), outcome(summary_of(*few))) == []  # chance may do as much
