"""The page of a run: whole, without a request, with what a user names escaped."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elsewhere import InThread, hub_config, make_sites, opened
from page_checks import parsed, problems_of
from tiny_runs import carry_out, joined_config

from dprbft.config.files import load_config
from dprbft.run.outcome import Outcome
from dprbft.run.stages import exchange_stage
from dprbft.run.summary import summarise
from dprbft.site.results.records import TRUNK
from panas.architecture.cost import LayerCost
from panas.privacy.accounting.events import Unprotected
from panas_cli.report.audit import findings
from panas_cli.report.compare import compare, compared_html
from panas_cli.report.deployments import DEPLOYMENTS
from panas_cli.report.facts import RunFacts, read_facts
from panas_cli.report.page import SCRIPT, anchor, html_of, page_of
from panas_cli.report.privacy import card, meaning
from panas_cli.report.repeat import portable
from panas_cli.report.site import site_card
from panas_cli.report.table import epsilon_text, odds_words, share, without_folders

EVIL = '<script>alert("1")</script>'


def facts_of(run: Path) -> RunFacts:
    return read_facts(run, summarise(run, load_config(run)))


@pytest.fixture
def facts(run: Path) -> RunFacts:
    """Of a tiny run of method dprbft, with its audit."""
    return facts_of(run)


@pytest.fixture(scope="session")
def joined_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of method joined, made once, without an audit."""
    run = tmp_path_factory.mktemp("joined") / "run"
    carry_out(run, joined_config(federation={"baselines": True}))
    return run


def renamed(value: Any) -> Any:
    """JSON in which no site's name is a plain one."""
    if isinstance(value, Mapping):
        return {key: renamed(v) for key, v in value.items()}
    if isinstance(value, list):
        return [renamed(v) for v in value]
    return re.sub(r"client-\d*(\d)", rf"{EVIL}\1", value) if isinstance(value, str) else value


def test_a_page_of_rounds_is_whole(facts: RunFacts):
    page = html_of(page_of(facts))
    assert problems_of(page) == []
    assert len(page) < 5_000_000
    for words in ("What epsilon means", "Search", "Tuning", "Audit", "How to repeat it"):
        assert words in page
    assert "tests/panas_cli" not in page
    images = parsed(page).named("img")
    assert len(images) == sum(len(s.pictures) for s in facts.sites) > 0


@pytest.mark.slow
def test_a_page_of_joined_is_whole_and_says_what_it_lacks(joined_run: Path):
    page = html_of(page_of(facts_of(joined_run)))
    assert problems_of(page) == []
    assert "No audit was made of this run." in page
    assert "No audit was made: <code>panas audit run</code>" in page
    assert str(joined_run.parent) not in page


@pytest.mark.slow
def test_a_page_of_updates_leaves_out_search_and_tuning(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "run"
    assert cli("run", "--out", run, *tiny(), "--method", "fedavg").code == 0
    page = html_of(page_of(facts_of(run)))
    assert problems_of(page) == []
    assert "No architecture was searched in this run." in page
    assert 'id="search"' not in page


@pytest.mark.slow
def test_a_page_of_a_hub_has_no_accuracy_of_a_site(tmp_path: Path):
    places, run = make_sites(tmp_path), tmp_path / "trial"
    exchange_stage(opened(run, hub_config(tmp_path), InThread(places)))
    facts = facts_of(run)
    page = html_of(page_of(facts))
    assert facts.is_hub
    assert problems_of(page) == []
    assert "never cross the wire" in page
    assert 'id="epsilon"' not in page
    assert problems_of(compared_html(compare([facts, facts]))) == []


def test_what_users_name_is_escaped(facts: RunFacts):
    result = facts.outcome
    assert result is not None
    named = replace(
        facts,
        name=EVIL,
        summary=renamed(facts.summary) | {"dataset": EVIL, "class_names": [EVIL] * 10},
        settings=renamed(facts.settings) | {"data": {"dataset": EVIL, "label": EVIL}},
        facts=replace(facts.facts, class_names=tuple(f"{EVIL}{k}" for k in range(10))),
        outcome=replace(
            result, sites=tuple(replace(s, name=f"{EVIL}{k}") for k, s in enumerate(result.sites))
        ),
        sites=tuple(replace(s, name=f"{EVIL}{k}") for k, s in enumerate(facts.sites)),
    )
    for page in (html_of(page_of(named)), compared_html(compare([named, facts]))):
        assert problems_of(page) == []
        assert EVIL not in page
        assert [t.text for t in parsed(page).named("script")] == [SCRIPT]
        assert "&lt;script&gt;alert(" in page


def test_the_sentences_of_the_last_screen_stand_on_top(facts: RunFacts):
    page = page_of(facts)
    html = html_of(page)
    assert len(page.short.sentences) >= 4
    first = parsed(html).named("li")
    assert page.short.sentences[0] in [t.text for t in first]
    assert html.index(page.short.sentences[0][:40]) < html.index('id="epsilon"')


def test_pictures_for_which_there_is_no_room_are_counted(
    facts: RunFacts, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("panas_cli.report.audit.MOST_BYTES", 0)
    found = findings(facts)
    assert found is not None
    assert found.left_out == sum(len(s.pictures) for s in facts.sites)
    assert parsed(html_of(page_of(facts))).named("img") == []


def test_verdicts_come_first_and_a_leak_is_open(facts: RunFacts):
    page = html_of(page_of(facts))
    audit = page[page.index('id="audit"') :]
    assert audit.index("Verdicts") < audit.index("<details")
    site = facts.sites[0]
    assert site.audit is not None
    leaking = replace(site, audit=replace(site.audit, verdict="leaks"))
    found = findings(replace(facts, sites=(leaking, *facts.sites[1:])))
    assert found is not None
    assert [s.is_open for s in found.sites] == [True, *(False for _ in facts.sites[1:])]


def test_a_card_answers_the_registry_and_nist(facts: RunFacts):
    (first, *_) = page_of(facts).sites
    assert first.privacy is not None
    fields = [row[0].split(" (")[0] for row in first.privacy.fields.rows]
    for field in (
        "Unit of privacy",
        "Neighbouring data sets",
        "Mechanisms",
        "Parameters",
        "Trust",
        "Not covered",
    ):
        assert field in fields
    charged = {row[0].split(" x ")[0].split(",")[0] for row in first.privacy.mechanisms.rows}
    assert {"label-histogram", "moments", "dp-sgd"} <= charged


def test_a_card_trusts_nobody_unless_something_left_without_noise(facts: RunFacts):
    site = facts.sites[0]
    assert site.account is not None
    first, *rest = site.account.entries
    bare = replace(first, charge=replace(first.charge, event=Unprotected()))
    for account, told in (
        (site.account, "in nobody"),
        (replace(site.account, entries=(bare, *rest)), "no bound holds"),
    ):
        fields = dict(card(site, account).fields.rows)
        assert told in fields["Trust (R, N)"]


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.99, 8.0, 40.0, math.inf])
def test_what_epsilon_means_is_said_of_any(facts: RunFacts, epsilon: float):
    result = facts.outcome
    assert isinstance(result, Outcome)
    said = meaning(replace(result, epsilon=epsilon))
    assert any("below 20" in line for line in said.lines)
    assert not any("100.0 %" in cell for row in said.odds.rows for cell in row)
    assert len(said.deployments.rows) == len(DEPLOYMENTS)


def test_deployments_have_a_dated_source_each():
    assert all(d.address.startswith("https://") for d in DEPLOYMENTS)
    assert all(re.search(r", .*\b20[12]\d\b", d.source) for d in DEPLOYMENTS)
    assert all(0 < low <= high for low, high in (d.epsilons for d in DEPLOYMENTS))


def test_odds_are_rounded_up_and_written_in_words():
    assert odds_words(math.log(20)) == "20"
    assert odds_words(2.99) == "20"
    assert odds_words(16.0) == "9 million"
    assert odds_words(21.0) == "2 billion"
    assert odds_words(math.inf) == "over 1,000 billion"
    assert epsilon_text(math.inf) == "infinity"


def test_settings_lose_the_paths_of_the_machine():
    settings = {"data": {"dataset": "/home/x/scans.npz", "texts": ["/a/b", "c"]}, "n": 3}
    assert portable(settings) == {"data": {"dataset": "scans.npz", "texts": ["b", "c"]}, "n": 3}
    assert [without_folders(n) for n in ("/a/b.csv", "digits")] == ["b.csv", "digits"]


def test_anchors_are_ids():
    assert anchor("St. Mary's <b>", 3) == "st-mary-s-b-3"
    assert anchor("医院", 1) == "part-1"


@pytest.mark.slow
def test_a_ladder_names_the_models_of_all_samples(joined_run: Path):
    facts = facts_of(joined_run)
    models = {"linear head of all": "pooled", "boosted forest of all": "pooled_forest"}
    for site in facts.sites:
        ladder = site_card(site, ()).ladder
        assert ladder is not None
        for name, key in models.items():
            assert f"{name} {share(site.summary['accuracy'][key])}" in ladder.picture
        older = {k: v for k, v in site.summary["accuracy"].items() if k != "pooled_forest"}
        before = site_card(replace(site, summary={**site.summary, "accuracy": older}), ())
        assert before.ladder is not None
        assert "boosted" not in before.ladder.picture


@pytest.mark.slow
def test_runs_are_compared_on_one_page(facts: RunFacts, joined_run: Path):
    both = compare([facts, facts_of(joined_run)])
    page = compared_html(both)
    assert problems_of(page) == []
    assert [row[0] for row in both.rows] == ["run (1)", "run (2)"]
    assert len({row[2] for row in both.rows}) == 2
    assert both.accuracies is not None


def luminance(colour: str) -> float:
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_both_schemes_have_the_contrast_of_wcag_aa(facts: RunFacts):
    style = parsed(html_of(page_of(facts))).named("style")[0].text
    schemes = re.findall(r":root \{(.*?)\}", style, re.S)
    assert len(schemes) == 3  # light, dark, print
    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        for ground in ("paper", "card"):
            for words in ("ink", "mute", "link"):
                assert contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
            for mark in ("one", "two", "three", "bad", "mute"):
                assert contrast(colours[mark], colours[ground]) >= 3, (mark, ground)
        assert contrast(colours["warn-ink"], colours["warn"]) >= 4.5
        for mark in ("one", "two", "mute"):
            assert contrast(colours[mark], colours["track"]) >= 3, mark


WHOLE = '<html lang="en"><title>t</title><h1>a</h1><h2 id="b">b</h2></html>'
PLANTED = {
    "img without alt": '<img src="data:image/png;base64,AA">',
    "loads": '<img alt="x" src="https://example.org/a.png">',
    "a link": '<link rel="stylesheet" href="https://example.org">',
    "id b is there 2 times": '<p id="b"></p>',
    "which is not there": '<a href="#c">c</a>',
    "2 h1": "<h1>b</h1>",
    "h4 after h2": "<h4>c</h4>",
    "has onclick": '<p onclick="f()"></p>',
    "a script with attributes": '<script src="data:,"></script>',
    "a style that loads": "<style>p { background: url(a.png) }</style>",
    "no caption": "<table></table>",
    "ends where it is not open": "</p>",
}


@pytest.mark.parametrize("problem", PLANTED)
def test_what_is_wrong_with_a_page_is_found(problem: str):
    assert problems_of(WHOLE) == []
    found = problems_of(WHOLE.replace("</html>", f"{PLANTED[problem]}</html>"))
    assert any(problem in line for line in found), found


def test_an_encoder_s_first_layers_are_a_box_before_the_blocks(joined_run: Path):
    facts = facts_of(joined_run)
    site = facts.sites[0]
    assert site.search is not None
    first = LayerCost(TRUNK, (24, 7, 7), parameters=1234, macs=5, bytes=6)
    behind = replace(site.search, cost_table=[first, *site.search.cost_table])
    pictures = [site_card(replace(site, search=s), ()).network for s in (site.search, behind)]
    plain, longer = (str(p.picture) for p in pictures if p is not None)
    for word in ("encoder", ">layers<", "24×7×7"):
        assert word in longer
        assert word not in plain
    assert longer.count(">conv<") == plain.count(">conv<") > 0
