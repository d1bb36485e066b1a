"""A plan: what a run will do and cost, with nothing left behind and nothing charged."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_encoder import write_onnx

from dprbft.run.progress import forecast as work
from dprbft.run.progress.pace import Line, Pace
from panas.runtime.state import state_folder

PACE = Pace(Line(0.0, 1e-3), Line(0.0, 1e-3), picture=0.0, slowness=1.0, encoding=1e-3)


def _without_start(text: str) -> list[str]:
    """A plan without the times of what came before it."""
    return [line for line in text.splitlines() if not line.startswith(("start", "in all"))]


ROUNDS = ("--set", "federation.rounds=2")
UNACCOUNTED = ("--set", "privacy.search=unaccounted", "--set", "privacy.allow_unprotected=true")
METHODS = {
    "joined": ("--method", "joined", "--set", "privacy.trust=server"),
    "secure sum": ("--method", "joined", "--set", "privacy.trust=secure-sum"),
    "stays": ("--method", "joined", "--set", "privacy.network=stays"),
    "dprbft": ("--method", "dprbft", *ROUNDS),
    "dprbft, tuned": ("--method", "dprbft", *ROUNDS, "--set", "tuning.trials=2"),
    "local": ("--method", "local", *ROUNDS, "--set", "privacy.search=data-free"),
    "paper": ("--method", "dprbft", *ROUNDS, *UNACCOUNTED),
    "fedavg": ("--method", "fedavg", *ROUNDS),
    "fedproto": ("--method", "fedproto", *ROUNDS),
}
SURE = ("joined", "secure sum", "stays", "paper")
"""Whose epsilons neither tuning nor a noised number of samples decides."""
QUICK = ("joined", "secure sum", "local")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.thorough) for n in METHODS],
)
def test_a_plan_has_the_epsilons_that_the_ledger_shows(
    name: str, cli: Callable, tiny: Callable, tmp_path: Path
):
    asked = [*tiny(network__features="16", data__public_limit="60", federation__clients="4")]
    asked += METHODS[name]
    if name in ("fedavg", "fedproto"):
        asked = ["--dataset", "digits", "--set", "data.limit=400", "--clients", "4", *METHODS[name]]
    planned = cli("plan", *asked, "--json")
    assert planned.code == 0, planned.err
    plan = json.loads(planned.out)
    ran = cli("run", *asked, "--out", tmp_path / "r", "--workers", 1)
    assert ran.code == 0, ran.err
    cards = json.loads(cli("ledger", tmp_path / "r", "--json").out)["clients"]
    spans = {"spent": plan["epsilon_range"], **plan["epsilon_by_step"]}
    assert set(spans) == {"spent", "search", "training", "release"}
    for card in cards:
        assert float(card["spent"]) > 0
        for step, span in spans.items():
            least, most = map(float, span)
            error = 1e-6 if name in SURE else 0.01
            assert least * (1 - error) <= float(card[step]) <= most * (1 + error), step
            assert least == most or name not in SURE
    assert plan["epsilon"] == plan["epsilon_range"][1]
    price = {"sites": 4, "missing": 1, "noise_ratio": (4 / 3) ** 0.5}
    assert plan["secure_sum"] == (price if name in ("secure sum", "stays") else None)
    if name == "joined":
        sent = json.loads((tmp_path / "r" / "summary.json").read_text())["communication"]
        each = sent["up_bytes"] / len(cards)
        assert each <= plan["most_bytes_up"] <= 3 * each + 4096
        assert [s["stage"] for s in plan["stages"]] == ["join", "search", "tune", "train", "audit"]
        least, most = plan["seconds_range"]
        assert 0 < plan["start_seconds"] < least <= plan["seconds"] <= most


def test_a_dry_run_is_the_plan_and_touches_nothing(
    cli: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(work, "measured", lambda run, workers, device: PACE)
    asked = tiny()
    planned, dry = cli("plan", *asked), cli("run", *asked, "--dry-run", "--out", tmp_path / "r")
    assert planned.code == dry.code == 0, dry.err
    assert "charged for" in dry.out
    assert _without_start(dry.out) == _without_start(planned.out)
    assert list(tmp_path.iterdir()) == []
    refused = cli("run", *asked, "--dry-run", "--resume", "--out", tmp_path / "r")
    assert "expected no --resume" in refused.refusal


def test_a_plan_is_a_table_and_leaves_nothing(
    cli: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    outcome = cli("plan", *tiny())
    assert outcome.code == 0
    assert "in all" in outcome.out
    assert "nothing was charged, and nothing is kept" in " ".join(outcome.out.split())
    assert list(tmp_path.iterdir()) == []


def test_a_plan_tells_what_an_encoder_has_to_read_and_keeps_public_vectors(
    cli: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(work, "measured", lambda run, workers, device: PACE)
    encoder = write_onnx(tmp_path / "tiny.onnx")
    asked = [*tiny(data__public_limit="60"), "--method", "joined", "--encoder", encoder]
    outcome = cli("plan", *asked, "--json")
    assert outcome.code == 0, outcome.err
    plan = json.loads(outcome.out)
    assert plan["encoding"]["pictures"] > 60
    assert plan["encoding"]["seconds_a_picture"] == PACE.encoding
    parts = [s["seconds"] for s in plan["stages"]]
    assert plan["seconds"] == pytest.approx(plan["start_seconds"] + sum(parts))
    (kept,) = (state_folder() / "planned").iterdir()
    assert list(kept.rglob("*.safetensors"))
    files = {p: p.stat().st_mtime_ns for p in kept.rglob("*.safetensors")}
    text = " ".join(cli("plan", *asked).out.split())
    assert {p: p.stat().st_mtime_ns for p in kept.rglob("*.safetensors")} == files
    assert f"read {plan['encoding']['pictures']} pictures of sites" in text
    assert "vectors of public samples alone are kept" in text


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
        folders = (tmp_path / "north", tmp_path / "south", state_folder())
        owned = (p for folder in folders for p in folder.rglob("*"))
        return {p: p.read_bytes() for p in owned if p.is_file()}

    before = files()
    sites = ("--sites", tmp_path / "north", "--sites", tmp_path / "south")
    outcome = cli("plan", *sites, "--public-data", tmp_path / "open.npz", "--epsilon", "4")
    assert outcome.code == 0, outcome.err
    assert "in all" in outcome.out
    assert files() == before


def test_a_plan_over_a_budget_names_the_owner_s_site_and_no_copy(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    import numpy as np

    sites = [tmp_path / name for name in ("north", "south")]
    for seed, site in enumerate(sites):
        x = np.random.default_rng(seed).integers(0, 255, (80, 8, 8)).astype(np.uint8)
        data = tmp_path / f"{site.name}.npz"
        np.savez(data, x=x, y=np.arange(80) % 2)
        made = ("--data", data, "--epsilon", "8", "--delta", "1e-3")
        assert cli("site", "init", site, *made).code == 0
    outcome = cli("plan", *tiny(), "--sites", *sites, "--epsilon", "40")
    assert outcome.code == 3
    assert f"for run plan on the data of {sites[0]}, which" in outcome.errors[-1]


def test_a_plan_tells_infinity_in_words_and_misses_no_site_in_silence(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    open_to_all = tiny(privacy__search="unaccounted", privacy__allow_unprotected="true")
    outcome = cli("plan", *open_to_all, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["epsilon_by_step"]["search"] == ["infinity", "infinity"]
    file = tmp_path / "c.toml"
    file.write_text('[federation]\nsites = ["no/where", "no/there"]\nclients = 2\n')
    assert "expected a site at no/where" in cli("plan", file).refusal


@pytest.mark.parametrize("method", ["joined", "dprbft"])
def test_a_plan_names_how_many_sites_cannot_pay(method: str, cli: Callable, tiny: Callable):
    noise = tiny(training__noise_multiplier="0.01", privacy__epsilon="1")
    options = [*noise, "--method", method]
    record = json.loads(cli("plan", *options, "--json").out)
    assert record["cannot_pay"] == record["sites"] > 0
    assert record["epsilon"] is None
    assert "cannot pay for this run within their budget" in cli("plan", *options).out
