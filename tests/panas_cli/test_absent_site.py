"""A site whose folder is moved away: the commands go on, say so in a line, and take it up again."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dprbft.paths import home, read_sites
from panas.runtime.store import read_json

AWAY = (
    "warning: client-001 is not there, or does not answer (its node.log says why): {} goes on "
    "without it; --resume takes it up again"
)
UNKNOWN = "client-001 did not finish; --resume continues"


@pytest.mark.slow
def test_a_search_of_several_goes_on_without_one_and_of_one_does_not(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run, both = tmp_path / "r", ("--client", 0, "--client", 1)
    assert cli("search", "--out", run, "--client", 0, *tiny()).code == 0
    read_sites(run)[1].folder.rename(tmp_path / "aside")
    outcome = cli("search", "--out", run, *both, "--json")
    assert outcome.code == 0
    assert AWAY.format("the run") in outcome.err
    assert [c["client"] for c in json.loads(outcome.out)["clients"]] == [0]
    alone = cli("search", "--out", run, "--client", 1)
    assert alone.code == 2
    assert alone.errors[-1].startswith("error: expected site client-001 at ")
    assert [c["client"] for c in json.loads(cli("ledger", run, "--json").out)["clients"]] == [0]


@pytest.fixture
def two_sites(cli: Callable, tmp_path: Path) -> Path:
    """A folder of two sites."""
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        data = tmp_path / f"{name}.npz"
        np.savez(data, images=rng.integers(0, 255, (90, 8, 8), np.uint8), labels=np.arange(90) % 3)
        words = ("--data", data, "--epsilon", 4, "--delta", 1e-4)
        assert cli("site", "init", tmp_path / "sites" / name, *words).code == 0
    return tmp_path / "sites"


@pytest.mark.slow
def test_a_folder_of_sites_is_resumed_without_one(
    cli: Callable, tiny: Callable, two_sites: Path, tmp_path: Path
):
    run = tmp_path / "r"
    words = ("--sites", two_sites, "--epsilon", 2, "--delta", 1e-4, "--out", run)
    # Those of `tiny` with --set federation.clients would contradict the folder's own number.
    options = tiny(federation__clients=2)
    assert cli("search", "--client", 0, *words, *options).code == 0
    (two_sites / "south").rename(tmp_path / "aside")
    outcome = cli("search", "--client", 0, "--client", 1, *words, "--workers", 1)
    assert outcome.code == 0, outcome.err
    assert AWAY.format("the run").replace("client-001", "south") in outcome.err
    (tmp_path / "aside").rename(two_sites / "south")
    one = ("--sites", two_sites / "north", *words[2:])  # leaving one out is another run
    assert cli("search", "--client", 0, *one, "--workers", 1).code == 2


@pytest.mark.thorough
def test_a_run_of_an_absent_site_is_shown_read_and_resumed(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run, options = tmp_path / "r", [*tiny(), "--preset", "demo"]
    assert cli("search", "--out", run, "--client", 0, *options).code == 0
    folder, aside = read_sites(run)[1].folder, tmp_path / "aside"
    folder.rename(aside)
    outcome = cli("run", "--out", run, "--resume")
    assert outcome.code == 0
    for what in ("the run", "the search"):
        assert sum(AWAY.format(what) in line for line in outcome.err.splitlines()) == 1
    assert AWAY.format("training") in outcome.err
    assert UNKNOWN in " ".join(outcome.out.split())
    summary = read_json(run / "summary.json")
    assert summary["absent"] == ["client-001"]
    assert [c["name"] for c in summary["clients"]] == ["client-000"]
    for words in (("report", run), ("ledger", run), ("audit", run)):
        outcome = cli(*words)
        assert outcome.code == 0, words
        assert "client-001" not in outcome.out.replace(UNKNOWN, "") or words[0] == "report"
    first = home(run, 0) / "state.safetensors"
    before = first.read_bytes()
    assert not folder.exists()
    aside.rename(folder)
    outcome = cli("run", "--out", run, "--resume", "--json")
    assert outcome.code == 0
    summary = json.loads(outcome.out)
    assert (summary["absent"], summary["finished"]) == ([], True)
    assert [c["name"] for c in summary["clients"]] == ["client-000", "client-001"]
    assert len(read_json(run / "audit.json")["clients"]) == 2
    assert first.read_bytes() == before
