"""What needs no library: help, the version, and refusals of what is plainly wrong."""

import json
import resource
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from panas_cli.front import COMMANDS
from panas_cli.options import split_data, with_options

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "scipy", "sklearn", "matplotlib")

WITHOUT = f"""
import os
import sys
import tomllib
import warnings
sys.argv = ["panas", *sys.argv[1:]]
from panas_cli.main import main
try:
    main()
finally:
    assert not [name for name in {HEAVY!r} if name in sys.modules]
    assert os.environ["GOMP_SPINCOUNT"]  # which torch reads once, when it is imported
"""


def fresh(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`panas ARGS` in a process of its own, which must not load what is heavy."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *(str(a) for a in arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_help_of_all_takes_less_than_a_second_and_names_every_command():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = fresh("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    for command in COMMANDS:
        assert command.__name__.replace("_", "-") in done.stdout


@pytest.mark.slow
def test_no_command_loads_a_library_for_its_help(cli: Callable):
    for command in COMMANDS:
        name = command.__name__.replace("_", "-")
        outcome = cli(name, "--help")
        assert outcome.code == 0
        assert name in outcome.out
    assert fresh("run", "--help").returncode == 0


def test_the_version_is_that_of_the_package(cli: Callable):
    assert cli("--version") == (0, f"panas {version('panas')}\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--seed", "1", "--seed", "1"], "--seed once"),
        (["run", "--json", "--json"], "--json once"),
        (["run", "--set", "data.limit=200", "--set", "data.limit=100"], "data.limit once"),
        (["epsilon", "--q", ".1", "--q", ".2", "--sigma", "1"], "--q once"),
        (["run", "--dataset", "nowhere/a.npz"], "nowhere/a.npz"),
        (["run", "--public-data", "b.csv"], "b.csv"),
        (["run", "none.toml"], "none.toml"),
        (["run", "--device", "tpu"], "--device"),
        (["ledger", "nowhere"], "nowhere"),
        (["audit", "nowhere"], "nowhere"),
        (["audit-model", "a", "--data", "b", "--mean", "x"], "--mean"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_one_line_refuses_what_is_plainly_wrong(arguments: list[str], says: str, cli: Callable):
    assert says in cli(*arguments).refusal


def test_a_refusal_of_arguments_comes_before_any_library_is_loaded():
    done = fresh("run", "--dataset", "nowhere/a.npz")
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_may_be_repeated_may_be_repeated(cli: Callable):
    """Both are read, and the second is refused for what it says."""
    outcome = cli("run", "--set", "data.limit=200", "--set", "data.limt=3", "--workers", "0")
    assert "--workers" in outcome.err


def test_config_is_a_file_of_settings_that_can_be_given_back(cli: Callable, tmp_path: Path):
    options = ("--preset", "demo", "--set", "search.population=7", "--epsilon", "4")
    outcome = cli("config", *options)
    assert outcome.code == 0
    settings = {"preset": "demo", "search": {"population": 7}, "privacy": {"epsilon": 4.0}}
    given = {k: v for k, v in tomllib.loads(outcome.out).items() if v}
    assert given == settings
    assert "# generations = 1  # whole number" in outcome.out
    (tmp_path / "mine.toml").write_text(outcome.out)
    assert cli("config", tmp_path / "mine.toml").out == outcome.out
    listed = json.loads(cli("config", tmp_path / "mine.toml", "--json").out)["settings"]
    assert {s["key"] for s in listed if s["is_set"]} == {
        "preset",
        "search.population",
        "privacy.epsilon",
    }


def test_an_unknown_key_is_told_where_all_are_listed(cli: Callable):
    outcome = cli("config", "--set", "search.popluation=3")
    assert (outcome.code, outcome.out) == (2, "")
    assert "`panas config` lists all" in outcome.err


@pytest.mark.parametrize(("epsilon", "warned"), [(50, False), (51, True), ("inf", False)])
def test_a_budget_that_bounds_nothing_is_warned_of(
    epsilon: object, warned: bool, cli: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("panas_cli.commands.job.prepare", stop)
    allowed = "privacy.allow_unprotected=true"
    outcome = cli("run", "--out", tmp_path / "r", "--epsilon", epsilon, "--set", allowed)
    assert ("bounds next to nothing" in outcome.err) == warned


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run",), "A TOML file of settings"),
        (("audit-model",), "only files that you trust"),
        (("ledger",), "A run directory, or a site's folder."),
        (("site", "show"), "The site's directory."),
        (("deploy", "renew"), "What `init` wrote."),
    ],
)
def test_the_help_of_a_command_has_that_of_its_argument(
    words: tuple[str, ...], says: str, cli: Callable, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    assert says in cli(*words, "--help").out


def test_a_sentence_that_names_a_setting_is_told_with_its_option():
    text = with_options("give data.public_data, or data.ranges; set privacy.epsilon=3")
    assert text == "give data.public_data (--public-data), or data.ranges; set privacy.epsilon=3"


def test_a_warning_is_told_once_a_command(
    cli: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def warned(*_: object, **__: object) -> None:
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.warn("read as texts: 'ward'", stacklevel=1)

    monkeypatch.setattr("panas_cli.commands.ledger.ledger", warned)
    for _ in range(2):
        assert cli("ledger", tmp_path).err.splitlines() == ["warning: read as texts: 'ward'"]


def test_what_systems_add_to_a_folder_is_no_data_of_a_site(tmp_path: Path):
    for name in ("a.csv", "b.csv", "._a.csv", ".DS_Store", "__MACOSX", "Thumbs.db"):
        (tmp_path / name).touch()
    files = split_data(None, [str(tmp_path)])["federation.client_data"]
    assert files == [str(tmp_path)]  # one folder of pictures
    given = split_data([str(tmp_path)], None)["federation.client_data"]
    assert [Path(name).name for name in given] == ["a.csv", "b.csv"]
