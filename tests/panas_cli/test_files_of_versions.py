"""Files that every version of panas has written, from the first: this one reads them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from node_sites import write_pictures
from record_fixtures import DATA, FIXTURES

from dprbft.paths import SitePaths, write_sites
from dprbft.wire import own_version

VERSIONS = sorted(path.name for path in (FIXTURES / "files").iterdir())


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run directory and its two sites, moved to this machine."""
    shutil.copytree(FIXTURES / "files" / request.param, tmp_path / "kept")
    folder, names = tmp_path / "kept", ("north", "south")
    write_sites(folder / "run", [SitePaths(i, n, folder / n, "run") for i, n in enumerate(names)])
    for seed, name in enumerate(names):
        write_pictures(folder / name / DATA, 300, seed)
    return folder


def test_files_of_this_version_are_kept():
    assert own_version() in VERSIONS, "record them: python tests/helpers/record_fixtures.py"


def test_a_ledger_is_read_and_composed(kept: Path, cli: Callable):
    of_site = json.loads(cli("ledger", kept / "north", "--json").out)
    spent = {"label-histogram", "dp-sgd", "moments"}
    assert spent <= set(str(of_site).replace("'", " ").split())
    outcome = cli("ledger", kept / "run")
    assert outcome.code == 0
    assert "north: epsilon = 3.990 of 4.000" in outcome.out


def test_a_site_is_shown(kept: Path, cli: Callable):
    outcome = cli("site", "show", kept / "north")
    assert outcome.code == 0
    assert "300 samples" in outcome.out
    assert "6.000 at delta 0.0001 for all runs: 3.990 spent" in outcome.out


@pytest.mark.slow
def test_a_run_is_reported(kept: Path, cli: Callable):
    outcome = cli("report", kept / "run")
    assert outcome.code == 0
    assert "method joined: 2 sites, epsilon 3.99" in outcome.out
    assert (kept / "run" / "report.html").is_file()
