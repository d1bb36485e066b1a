"""What a person reads while a run of method joined goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dprbft.methods.joined.residual import JoiningPrice
from dprbft.methods.joined.tuning import FEWEST
from dprbft.run.events import HeadShared, SiteReleased, SiteTuned
from dprbft.site.results.records import PLANNED_NOISE, TuningRecord
from panas.tuning.space import DPSGDSettings
from panas_cli.text.joining import CANDIDATES, joining_price_line, shares_text
from panas_cli.text.sentences import sentence

METHOD = ("--method", "joined")
JOINED = {
    "network__features": "16",
    "data__public_limit": "60",
}


def tuned(**changes: Any) -> TuningRecord:
    settings = DPSGDSettings(
        learning_rate=2.88, noise_multiplier=PLANNED_NOISE, clip=1.0, batch_size=312, epochs=24
    )
    return TuningRecord(site=0, settings=settings, **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"by_rule": "few public samples"},
            f"by rule (fewer than {FEWEST} public samples): learning rate 2.88, clip 1, batch 312",
        ),
        (
            {"by_rule": "no noise"},
            "by rule (no noise): learning rate 2.88, batch 312",
        ),
        (
            {"nothing": True},
            "private training has no gain in trials on public samples; nothing is spent on it",
        ),
    ],
)
def test_tuning_says_where_settings_are_from(changes: dict[str, Any], says: str):
    record = tuned(**changes)
    assert sentence(SiteTuned("north", record)) == f"north: {says}"
    assert TuningRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (SiteReleased("north", True, 0.8092), "has sent its one release (noise multiplier 0.809)"),
        (SiteReleased("north", True), "has sent its one release (without noise)"),
        (
            SiteReleased("north", False),
            "sends no release (late, or not worth its cost)",
        ),
    ],
)
def test_a_release_says_its_noise_or_that_none_was_sent(event: SiteReleased, says: str):
    assert sentence(event) == f"north: {says}"
    assert "of 1 site " in sentence(HeadShared(1))


def test_one_line_prices_all_that_joining_spends():
    one, other = JoiningPrice(0.8, 5.604, 4.85, 7.987), JoiningPrice(0.8, 5.71, 4.85, 7.99)
    assert joining_price_line([one, other], [8.0, 8.0]) == [
        "price: epsilon 7.99 of 8 a site",
        "  of it 0.80 for a noised label histogram, 5.60 to 5.71 for one release, up to 4.85 for "
        "DP-SGD of a residual (each by itself); the search costs nothing",
    ]
    lines = joining_price_line([JoiningPrice(0.8, 7.9, 0.0, 7.99)], [8.0])
    assert "DP-SGD" not in " ".join(lines)
    assert joining_price_line([], []) == []


def test_a_price_says_what_it_rests_on():
    released, none = JoiningPrice(0.8, 5.6, 4.85, 7.99), JoiningPrice(0.8, 0.0, 7.9, 7.99)
    line, _ = joining_price_line([released, none], [8.0, 8.0], "nobody colludes")
    assert line == "price: epsilon 7.99 of 8 a site, as long as nobody colludes"
    line, _ = joining_price_line([none], [8.0], "nobody colludes")
    assert "as long as" not in line


@pytest.mark.slow
def test_a_site_searches_once_all_have_joined(cli: Callable, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    outcome = cli("search", "--out", run, *METHOD, "--client", 0, *tiny(**JOINED))
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    assert "price: epsilon 7.99 of 8 a site" in lines
    (price,) = [line for line in lines if line.startswith("  of it ")]
    told = [line.split("] ")[1] for line in lines if line.startswith("[")]
    assert told[0].startswith("join: joining")
    assert "join: 3/3 the shared head of 2 sites is with all of them" in told
    assert "search: architecture search" in told
    other = cli("search", "--out", run, "--client", 1)
    assert other.code == 0
    assert "release" not in "".join(x for x in other.err.splitlines() if x.startswith("["))
    assert cli("tune", "--out", run, "--client", 0, "--client", 1).code == 0
    trained = cli("train", "--out", run)
    assert trained.code == 0
    assert "predicts with" in trained.err
    # What was foreseen is what is in the ledger.
    card = cli("ledger", run).out
    words = " ".join(card.split())
    assert "which the server balances the shared head" in words
    assert "to whoever sees the network, which learns from it" in words
    assert words.count("models/predictor.safetensors stays with the site") == 2
    for figure in ("epsilon = 0.799", "epsilon = 7.98"):
        assert figure in card
    assert "0.80 for a noised label histogram" in price


@pytest.mark.slow
def test_a_search_without_samples_to_learn_from_is_one_line(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    options = tiny(**(JOINED | {"data__public_fraction": "0"}))
    outcome = cli("search", "--out", tmp_path / "r", *METHOD, *options)
    assert outcome.code == 2
    (line,) = outcome.errors
    assert line.startswith("error: expected public samples for networks to learn from, got none")
    assert line.endswith(f"go on with `panas tune --out {tmp_path / 'r'}`")
    tuned = cli("tune", "--out", tmp_path / "r", "--client", 0, "--client", 1)
    assert tuned.code == 0
    assert "fewer than" in tuned.err


def test_every_candidate_has_a_name():
    names = ("public", "forest", "logistic", "shared", "residual", "network")
    before = ("own", "shrunk")  # in summaries of former versions
    assert set(CANDIDATES) == {*names, *before}
    for name in names:
        assert shares_text({name: 1.0}) == f"predicts with {CANDIDATES[name]} 100%"
    assert shares_text(dict.fromkeys(names, 1 / 6)).endswith("others 67%")
