"""Run directories of older versions: refused in one line, and left alone."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from dprbft.config.files import build_config, save_config


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("privacy", "search", "proxy"),
        ("privacy", "search", "dp"),
        ("privacy", "release", "noisy_rows"),
        ("search", "inherit", False),
    ],
)
def test_a_run_of_an_older_version_is_refused(
    section: str, key: str, value: object, cli: Callable, files: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    save_config(run, build_config({"federation": {"method": "dprbft"}}))
    settings = tomllib.loads((run / "config.toml").read_text())
    settings[section][key] = value
    (run / "config.toml").write_text(tomli_w.dumps(settings))
    before = files(run)
    resumed = ["search", "tune", "train", "run"]
    for command in (*([c, "--resume", "--out"] for c in resumed), ["report"], ["audit"]):
        line = cli(*command, run).refusal
        assert "made by an older version" in line
        assert key in line
        assert line.endswith("start a new run")
    assert files(run) == before
