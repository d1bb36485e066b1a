"""Images of a site and of a hub: their files are linted, and name what the project has."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from panas_cli.main import app

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
PAGE = (ROOT / "docs" / "how-to" / "deploy.md").read_text().split("## Containers")[1]

Stage = dict[str, list[str]]


def stages(text: str) -> dict[str, Stage]:
    """Instructions of each stage with those of the stages that it builds on, by their keyword."""
    result: dict[str, Stage] = {}
    current: Stage = {}
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        keyword, rest = line.split(maxsplit=1)
        if keyword == "FROM":
            base, _, name = rest.split()
            current = {k: [*v] for k, v in result.get(base, {"FROM": [base]}).items()}
            result[name] = current
        else:
            current.setdefault(keyword, []).append(rest)
    return result


STAGES = stages(DOCKERFILE.read_text())
IMAGES = ("site", "hub", "node")


def call_of(stage: Stage) -> list[str]:
    """What a container of an image executes."""
    return [*json.loads(stage["ENTRYPOINT"][-1]), *json.loads(stage["CMD"][-1])]


def parse(words: list[str]) -> None:
    """Fails if the command line has no such command, or no such option of it."""
    program, name, *rest = words
    assert program == "panas"
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    if name in ("deploy", "site"):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(name, [*rest])


@pytest.mark.parametrize("image", IMAGES)
def test_a_container_executes_a_command_that_there_is_on_folders_that_it_has(image: str):
    stage = STAGES[image]
    words = call_of(stage)
    parse(words)
    volumes = {path for text in stage["VOLUME"] for path in json.loads(text)}
    assert {word for word in words if word.startswith("/")} <= volumes
    (owner,) = stage["USER"]
    assert int(owner) >= 1000
    made = " ".join(stage["RUN"])
    assert f"-o {owner}" in made
    assert all(re.search(rf" {path}\b", made) for path in volumes), "root would own a new volume"


def test_a_site_keeps_its_ledger_data_and_state_in_volumes():
    for image in ("site", "node"):
        assert json.loads(STAGES[image]["VOLUME"][-1]) == ["/site", "/data", "/state"]
        assert "PANAS_STATE=/state" in STAGES[image]["ENV"]
        assert "EXPOSE" not in STAGES[image], "a site opens no port"
    assert STAGES["hub"]["EXPOSE"] == ["8000"]


def test_bases_are_pinned_and_nothing_is_cached():
    assert {stage["FROM"][0] for stage in STAGES.values()} == {"python:3.11-slim-bookworm"}
    installs = [run for run in STAGES["build"]["RUN"] if "pip install" in run]
    assert installs
    assert all("--no-cache-dir" in run for run in installs)


def test_a_command_that_there_is_not_is_refused():
    for words in (["panas", "deploy", "begin"], ["panas", "node", "--sites", "/site"]):
        with pytest.raises((KeyError, typer.BadParameter.__base__)):  # type: ignore[arg-type]
            parse(words)


def linted(file: Path) -> subprocess.CompletedProcess:
    hadolint = Path(sys.executable).parent / "hadolint"
    words = [hadolint, "--no-color", "--failure-threshold", "warning", file]
    return subprocess.run(words, capture_output=True, text=True)


def test_the_linter_of_images_finds_nothing(tmp_path: Path):
    done = linted(DOCKERFILE)
    assert done.returncode == 0, done.stdout
    careless = tmp_path / "Dockerfile"
    careless.write_text("FROM python\nRUN cd /src && pip install torch\nUSER root\n")
    found = linted(careless)
    assert found.returncode == 1
    assert all(rule in found.stdout for rule in ("DL3002", "DL3006", "DL3042"))


def test_nothing_but_what_a_wheel_is_made_of_goes_to_the_builder():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and line[0] != "#"]
    assert rules[0] == "*"
    sent = {line[1:] for line in rules if line[0] == "!"}
    packages = {path.parent.name for path in ROOT.glob("*/py.typed")}
    assert sent == packages | {"pyproject.toml", "README.md", "LICENSE"}


def test_the_page_names_images_volumes_and_commands_that_there_are():
    calls = [shlex.split(code) for code in re.findall(r"`(docker [^`]+)`", PAGE)]
    (build,) = (words for words in calls if words[1] == "build")
    assert (ROOT / build[build.index("-f") + 1]) == DOCKERFILE
    assert build[build.index("--target") + 1] in IMAGES
    runs = [words for words in calls if words[1] == "run" and len(words) > 2]
    assert {words[-1] for words in runs} == {"panas-site", "panas-hub"}
    for words in runs:
        stage = STAGES[words[-1].removeprefix("panas-")]
        mounted = [words[i + 1].split(":")[1] for i, w in enumerate(words) if w == "-v"]
        assert mounted == json.loads(stage["VOLUME"][-1])
    (inside,) = (words[3:] for words in calls if words[1] == "exec")
    parse(inside)
    (other,) = re.findall(r"`panas-site ([^`]+)`", PAGE)
    parse(["panas", *shlex.split(other)])
    assert re.search(r"--build-arg (\w+)=", PAGE).group(1) in STAGES["build"]["ARG"][0]  # type: ignore[union-attr]
