"""The summary: every field of the contract, with the words for what has no number."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from dprbft.config.schema import RunConfig
from dprbft.paths import home, model_file
from dprbft.run.sites.plan import plan_sites
from dprbft.run.summary import summarise
from dprbft.simulation.federation import load_federation
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json
from panas.training.checkpoint import load_network
from panas.training.evaluate import accuracy

TOP = {
    "preset": str,
    "dataset": str,
    "seed": int,
    "class_names": list,
    "clients": list,
    "accuracy": dict,
    "communication": dict,
    "seconds": dict,
    "versions": dict,
}
CLIENT = {"id", "genome", "parameters", "bytes", "accuracy", "epsilon"}


def strict(text: str) -> dict:
    """JSON without the tokens that only some readers know."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.slow
def test_the_summary_has_every_field_of_the_contract(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    run, config = tmp_path / "r", tiny(federation__baselines=True)
    carry(run, config)
    summary = summarise(run, config)
    strict((run / "summary.json").read_text())
    assert summary == read_json(run / "summary.json")
    for key, kind in TOP.items():
        assert isinstance(summary[key], kind), key
    assert summary["finished"] is True
    assert summary["accuracy"].keys() >= {"mean", "std"}
    assert summary["communication"]["up_bytes"] > 0
    assert summary["communication"]["down_bytes"] > 0
    assert summary["seconds"].keys() == {"search", "tune", "train", "audit"}
    assert "simulator" in summary["view"]
    for c, data in zip(summary["clients"], load_federation(config).clients, strict=True):
        assert c.keys() >= CLIENT
        assert c["accuracy"].keys() >= {"local_last", "global_last", "best", "selected"}
        assert c["epsilon"].keys() >= {"budget", "spent", "release", "search"}
        assert c["epsilon"]["spent"] <= c["epsilon"]["budget"] == 8.0
        saved = load_network(model_file(home(run, data.id)))
        assert c["accuracy"]["selected"] == accuracy(saved.bottom, saved.head, data.test)
        assert c["accuracy"]["best"] >= c["accuracy"]["selected"]
        held = [
            sum(p.numel() for p in module.parameters()) for module in (saved.bottom, saved.head)
        ]
        assert 0 <= c["parameters"] - held[0] <= held[1]
        # As written to the site's own report, on the same test samples.
        assert c["metrics"]["accuracy"] == c["accuracy"]["selected"]
        assert 0 <= c["baselines"]["majority"] <= 1
        assert c["samples"] == {p: len(getattr(data, p)) for p in c["samples"]}
    ladder = summary["accuracy"]["ladder"]
    assert list(ladder) == ["majority", "public", "alone", "joined"]
    assert all(0 <= step <= 1 for step in ladder.values())
    assert summary["accuracy"]["pooled"] is None  # without a common map
    assert (run / "ladder.png").read_bytes().startswith(b"\x89PNG")
    mean = sum(c["accuracy"]["selected"] for c in summary["clients"]) / 2
    assert summary["accuracy"]["mean"] == pytest.approx(mean)


UNACCOUNTED = {"privacy__release": "raw_rows", "privacy__search": "unaccounted"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "infinite"),
    [(UNACCOUNTED, {"release", "search", "spent"}), ({"privacy__epsilon": math.inf}, {"budget"})],
)
def test_what_is_infinite_is_said_in_words(
    changes: dict,
    infinite: set[str],
    tiny: Callable[..., RunConfig],
    carry: Callable[..., None],
    tmp_path: Path,
):
    run, config = tmp_path / "r", tiny(privacy__allow_unprotected=True, **changes)
    carry(run, config)
    summarise(run, config)
    for c in strict((run / "summary.json").read_text())["clients"]:
        assert {c["epsilon"][part] for part in infinite} == {"infinity"}
        assert "budget" in infinite or 0 < c["epsilon"]["training"] <= 8.0


def test_there_is_no_summary_before_training(tiny: Callable[..., RunConfig], tmp_path: Path):
    with pytest.raises(BadInput):
        summarise(tmp_path, tiny())
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_which_no_site_has_trained_names_the_command_that_goes_on(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    plan_sites(tmp_path / "run", tiny()).write(tmp_path / "run")
    with pytest.raises(BadInput, match="which none has; go on with `panas run --resume --out"):
        summarise(tmp_path / "run", tiny())
