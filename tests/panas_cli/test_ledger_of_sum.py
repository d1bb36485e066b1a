"""The privacy card of sites that trust the server with their sum alone: both figures, and why."""

import json
from pathlib import Path
from typing import Any

import pytest
from summed_runs import begun, joined_by, summed_config

from dprbft.run.directory import Ground, OpenRun
from dprbft.run.stages import begin
from panas_cli.commands.job import prices
from panas_cli.commands.ledger import ledger


@pytest.mark.slow
def test_a_card_shows_the_assumption_and_what_the_share_alone_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run, config = tmp_path / "r", summed_config()
    joined_by(begun(run, config), run, config)
    ledger(run, 1, json=True)
    cards: Any = json.loads(capsys.readouterr().out)["clients"]
    for card in cards:
        assert card["trust"][0]["assumption"].startswith("at most 1 of 4 sites collude")
        assert card["spent_local"] > card["spent"]
        (release,) = (m for m in card["mechanisms"] if m["phase"] == "release")
        assert release["epsilon_local"] > release["epsilon"]
        assert release["trust"][0]["local"] < release["event"]["noise_multiplier"]
    ledger(run, 1, json=False)
    text = " ".join(capsys.readouterr().out.split())
    figure = f"{cards[0]['spent_local']:.3f}"
    assert "as long as at most 1 of 4 sites collude with the server or are missing" in text
    assert f"against all other sites together: epsilon = {figure}" in text
    assert "of the sum over 4 sites, which alone is seen" in text


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_a_price_before_the_run_says_what_it_rests_on(trust: str, tmp_path: Path):
    run, config = tmp_path / "r", summed_config(privacy={"trust": trust, "network": "stays"})
    opened = OpenRun(run, config, begun(run, config))
    begin(opened, Ground.of(run))
    line, _ = prices(opened, range(4))
    rests = "a site, as long as at most 1 of 4 sites collude with the server or are missing"
    assert (rests in line) == (trust == "secure-sum")
