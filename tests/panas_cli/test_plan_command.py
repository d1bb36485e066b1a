"""A plan: what a run will do and cost, with nothing left behind and nothing charged."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from panas.runtime.store import read_json


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--set", "privacy.trust=secure-sum"),
        ("--set", "privacy.network=stays"),
    ],
)
def test_a_plan_has_the_epsilon_that_the_run_spends(
    options: tuple[str, ...], cli: Callable, tiny: Callable, tmp_path: Path
):
    clients = {"federation__clients": "4"} if "privacy.trust=secure-sum" in options else {}
    asked = [*tiny(network__features="16", data__public_limit="60", **clients), *options]
    asked += ["--method", "joined"]
    planned = cli("plan", *asked, "--json")
    assert planned.code == 0, planned.err
    plan = json.loads(planned.out)
    assert cli("run", *asked, "--out", tmp_path / "r", "--workers", 1).code == 0
    summary = read_json(tmp_path / "r" / "summary.json")
    spent = max(c["epsilon"]["spent"] for c in summary["clients"])
    assert plan["epsilon"] == pytest.approx(spent, rel=1e-6)
    sites = len(summary["clients"])
    sent = summary["communication"]["up_bytes"] / sites
    assert sent <= plan["most_bytes_up"] <= 3 * sent + 4096
    assert [s["stage"] for s in plan["stages"]] == ["join", "search", "tune", "train", "audit"]


def test_a_plan_is_a_table_and_leaves_nothing(
    cli: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    outcome = cli("plan", *tiny())
    assert outcome.code == 0
    assert "in all" in outcome.out
    assert "nothing was charged, and nothing is kept" in " ".join(outcome.out.split())
    assert list(tmp_path.iterdir()) == []


def test_a_plan_takes_no_run_directory(cli: Callable, tmp_path: Path):
    outcome = cli("plan", "--out", tmp_path / "r")
    assert outcome.code == 2
    assert "expected no --out" in outcome.refusal


@pytest.mark.slow
def test_a_plan_for_an_owner_s_site_leaves_its_folder_as_it_was(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    import numpy as np

    rng = np.random.default_rng(0)
    for name in ("north", "south", "open"):
        x = rng.integers(0, 255, (80, 8, 8)).astype(np.uint8)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(80) % 2)
    for name in ("north", "south"):
        made = ("--data", tmp_path / f"{name}.npz", "--epsilon", "8", "--delta", "1e-3")
        assert cli("site", "init", tmp_path / name, *made).code == 0

    def files() -> dict[Path, bytes]:
        owned = (p for n in ("north", "south") for p in (tmp_path / n).rglob("*"))
        return {p: p.read_bytes() for p in owned if p.is_file()}

    before = files()
    sites = ("--sites", tmp_path / "north", "--sites", tmp_path / "south")
    outcome = cli("plan", *sites, "--public-data", tmp_path / "open.npz", "--epsilon", "4")
    assert outcome.code == 0, outcome.err
    assert "in all" in outcome.out
    assert files() == before


def test_a_plan_tells_infinity_in_words_and_misses_no_site_in_silence(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    open_to_all = tiny(privacy__search="unaccounted", privacy__allow_unprotected="true")
    outcome = cli("plan", *open_to_all, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["stages"][0]["epsilon"] == "infinity"
    file = tmp_path / "c.toml"
    file.write_text('[federation]\nsites = ["no/where", "no/there"]\nclients = 2\n')
    assert "expected a site at no/where" in cli("plan", file).refusal
