"""A sample's way in method joined passes the files that CONTRIBUTING lists, and no others."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import joined_config
from traced_rows import Trace, traced

from dprbft.engines import inprocess
from dprbft.engines.inprocess import InProcess
from dprbft.methods.serve import serve
from dprbft.paths import SitePaths, read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, train_stage, tune_stage

CONTRIBUTING = Path(__file__).parents[4] / "CONTRIBUTING.md"


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("SHAPES") != "unchecked", reason="shape checks wrap functions")
def test_private_rows_pass_the_files_that_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    trace, of_release = Trace(), list[str]()

    def watched(paths: SitePaths, *request: Any) -> Any:
        if paths.index > 0:
            return serve(paths, *request)
        with traced(trace):
            return serve(paths, *request)

    monkeypatch.setattr(inprocess, "serve", watched)
    run, config = tmp_path / "run", joined_config()
    prepare(run, config, resume=False)
    with InProcess(read_sites(run), 1) as engine:
        opened = OpenRun(run, config, engine)
        search_stage(opened)  # sites join, and release, before they search
        of_release += trace.files
        tune_stage(opened)
        train_stage(opened)
    lists = re.split(
        r"^One sample|^Then to the predictor|^On the way", CONTRIBUTING.read_text(), flags=re.M
    )
    to_release, to_predictor = (re.findall(r"^\d+\. `([^`]+)`", part, re.M) for part in lists[1:3])
    assert len(to_release) <= 16
    assert sorted(to_release) == sorted(of_release)
    assert len(to_release + to_predictor) <= 24
    assert sorted(to_predictor) == sorted(set(trace.files) - set(of_release))
