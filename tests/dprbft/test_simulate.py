"""`dprbft.simulate`: a run from Python, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest

import dprbft
from dprbft.api import _nested
from dprbft.config.files import load_config
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json

SMALL = {
    "preset": "demo",
    "federation": {"method": "local"},
    "federation.clients": 2,
    "federation.rounds": 1,
    "search": {"generations": 0, "population": 1, "max_blocks": 3, "widths": [4]},
    "tuning.trials": 0,
}


def test_settings_have_full_names_or_stand_in_sections() -> None:
    given = {"a.b": 1, "a": {"c": 2}, "a.d.e": 3, "seed": 4}
    assert _nested(given) == {"a": {"b": 1, "c": 2, "d": {"e": 3}}, "seed": 4}
    with pytest.raises(BadInput, match="in a section"):
        _nested({"seed": 4, "seed.x": 1})


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    assert dir(dprbft) == ["Release", "RunView", "simulate", "view_run"]
    for settings, says in (
        ({"data.datset": "x.npz"}, "datset"),
        ({"data.dataset": "missing.npz"}, "missing.npz"),
        ({"preset": "large"}, "preset"),
        ({"federation.hub": str(tmp_path)}, "hub"),
    ):
        with pytest.raises(BadInput, match=says):
            dprbft.simulate(tmp_path / "run", settings)
    with pytest.raises(BadInput, match="device"):
        dprbft.simulate(tmp_path / "run", {}, device="tpu")
    with pytest.raises(BadInput, match="at least 1 worker"):
        dprbft.simulate(tmp_path / "run", {}, workers=0)
    with pytest.raises(BadInput, match="settings as a mapping"):
        dprbft.simulate(tmp_path / "run", [("preset", "demo")])  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_of_ones_own_arrays_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=160)
    x = rng.integers(0, 100, (160, 8, 8)) + 100 * y[:, None, None]
    np.savez("mine.npz", images=x.astype("uint8"), labels=y)
    settings = {**SMALL, "data.dataset": "mine.npz", "data.public_fraction": 0.2}
    seen: list[object] = []
    summary = dprbft.simulate("run", settings, progress=seen.append)
    assert seen
    assert all(len(str(event)) < 1000 for event in seen)
    assert [c["name"] for c in summary["clients"]] == ["client-000", "client-001"]
    assert all(c["epsilon"]["spent"] <= 8 for c in summary["clients"])
    assert load_config(Path("run")).data.source.dataset == str(tmp_path / "mine.npz")
    monkeypatch.chdir("/")
    again = dprbft.simulate(
        tmp_path / "run", {**settings, "data.dataset": str(tmp_path / "mine.npz")}
    )
    assert [c["ledger"] for c in again["clients"]] == [c["ledger"] for c in summary["clients"]]
    assert read_json(tmp_path / "run" / "summary.json") == again


@pytest.mark.slow
def test_a_view_shows_what_each_site_holds_and_sent(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected a run directory"):
        dprbft.view_run(tmp_path)
    settings = {
        **{name: value for name, value in SMALL.items() if name != "federation.rounds"},
        "federation": {"method": "joined", "baselines": False},
        "privacy.epsilon": 8.0,
        "data.dataset": "digits",
        "training.student_steps": 10,
        "search.student_steps": 10,
    }
    dprbft.simulate(tmp_path / "run", settings)
    view = dprbft.view_run(tmp_path / "run")
    phi, release = view.feature_map, view.release(1)
    assert phi is not None
    assert (release.site, release.round, release.kind) == (1, 1, "moments")
    assert release.arrays["B"].shape == (10, phi.width)
    sent = view.sites[1].home / "releases/round-001.safetensors"
    assert release.to_bytes() == sent.read_bytes()
    assert len(view.site(1).train) > 0
    with pytest.raises(BadInput, match="a release of round 2 by client-001, found none"):
        view.release(1, 2)
