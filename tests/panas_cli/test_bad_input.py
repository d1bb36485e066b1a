"""Bad input: one line on stderr, exit 2, nothing half-written."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import assert_kept

from dprbft.paths import home, search_file
from panas.runtime.store import write_json


def npz(path: Path, labels: np.ndarray, n: int = 300, seed: int = 0) -> Path:
    x = np.random.default_rng(seed).integers(0, 255, (n, 8, 8)).astype(np.uint8)
    np.savez(path, train_images=x, train_labels=labels, test_images=x[:5], test_labels=labels[:5])
    return path


def corrupt(folder: Path) -> Path:
    path = npz(folder / "corrupt.npz", np.zeros((300, 1), int))
    content = bytearray(path.read_bytes())
    path.write_bytes(bytes(content[: len(content) // 2]))
    return path


def no_classes(folder: Path) -> Path:
    return npz(folder / "labels.npz", np.linspace(0, 1, 300)[:, None])


JOINED = ["--method", "joined"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dataset", "mnits"], "mnist"),
        (["--dataset", "cifar10"], "--data-root"),
        (["--dataset", "cifar10", "--data-root", "{here}/nowhere"], "nowhere"),
        (["--dataset", "{here}/none.npz"], "none.npz"),
        (["--dataset", "{corrupt}"], "corrupt.npz"),
        (["--unlabelled-data", "{here}/none.npz"], "none.npz"),
        ([*JOINED, "--unlabelled-data", "{corrupt}"], "corrupt.npz"),
        ([*JOINED, "--unlabelled-data", "digits"], "unlabelled data other than"),
        ([*JOINED, "--set", "data.public_labels=-1"], "public labels"),
        (["--dataset", "{no_classes}"], "label"),
        (["--set", "data.limit=4", "--partition", "iid"], "use fewer sites"),
        (["--set", "federation.clients=500", "--partition", "iid"], "500"),
        (["--set", "federation.clients=0"], "federation.clients"),
        (["--epsilon", "0"], "privacy.epsilon"),
        (["--set", "search.rungs=[2]"], "rungs"),
        (["--set", "search.max_parameters=10"], "limits"),
        (["--epsilon", "-3"], "privacy.epsilon"),
        (["--epsilon", "nan"], "privacy.epsilon"),
        (["--epsilon", "much"], "--epsilon"),
        (["--delta", "0.1"], "1/n"),
        (["--delta", "1.5"], "privacy.delta"),
        (["--set", "search.popluation=3"], "search.popluation"),
        (["--set", "sarch.population=3"], "sarch"),
        (["--set", "search.population"], "section.key=value"),
        (["--set", "search.kernels=[4]"], "kernel"),
        (["--preset", "best"], "sound"),
        (["--partition", "fair"], "partition"),
        (["--device", "tpu"], "--device"),
        (["--workers", "0"], "--workers"),
        (["--frobnicate"], "(see panas run --help)"),
        (["{here}/none.toml"], "none.toml"),
        (["{here}/unknown.toml"], "search.popluation"),
        (["{here}/broken.toml"], "TOML"),
        (["--resume"], "resume"),
        (["--sites", "{here}/north", "--sites", "{here}/south"], "site.toml"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_one_line_and_nothing_written(
    arguments: list[str], says: str, cli: Callable, tiny: Callable, tmp_path: Path
):
    places = {"here": str(tmp_path)}
    (tmp_path / "unknown.toml").write_text("[search]\npopluation = 3\n")
    (tmp_path / "broken.toml").write_text("[search\n")
    if "{corrupt}" in arguments:
        places["corrupt"] = str(corrupt(tmp_path))
    if "{no_classes}" in arguments:
        places["no_classes"] = str(no_classes(tmp_path))
    out = tmp_path / "run"
    line = cli("run", "--out", out, *tiny(), *(a.format(**places) for a in arguments)).refusal
    assert line.startswith("error: ")
    assert says in line
    assert not out.exists()


def test_a_run_that_a_site_refuses_leaves_no_directory(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    sites = [tmp_path / name for name in ("north", "south")]
    for seed, site in enumerate(sites):
        data = npz(tmp_path / f"{site.name}.npz", np.arange(300)[:, None] % 3, seed=seed)
        budget = ("--epsilon", 4 - 3 * seed, "--delta", 1e-5)
        assert cli("site", "init", site, "--data", data, *budget).code == 0
    out, before = tmp_path / "new" / "run", set(tmp_path.iterdir())
    options = (*tiny(), "--set", "federation.clients=2", "--epsilon", 2)
    outcome = cli("run", "--sites", *sites, "--out", out, *options)
    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.errors[-1].startswith("error: south: expected a share of at most epsilon")
    assert set(tmp_path.iterdir()) == before
    assert [list(site.glob("runs/*")) for site in sites] == [[], []]


@pytest.mark.parametrize("command", ["audit", "ledger", "report"])
def test_a_folder_that_is_no_run(command: str, cli: Callable, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("x")
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert cli(command, folder).refusal
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_stage_without_the_one_before(
    command: str, cli: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for where in (["--out", tmp_path / "r"], []):
        assert "first" in cli(command, *where, *tiny()).refusal
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["search", "tune"])
def test_a_client_that_is_none(command: str, cli: Callable, tiny: Callable, tmp_path: Path):
    out = tmp_path / "r"
    if command == "tune":
        assert cli("search", "--out", out, *tiny()).code == 0
    before = sorted(out.rglob("*")) if out.exists() else []
    for site in ("2", "-1", "south"):
        outcome = cli(command, "--out", out, "--client", site, *tiny())
        assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
        assert "0 to 1" in outcome.err
        assert "client-000, client-001" in outcome.err
    assert (sorted(out.rglob("*")) if out.exists() else []) == before


def test_an_out_that_cannot_be_made(cli: Callable, tiny: Callable, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        outcome = cli("run", "--out", out, *tiny())
        assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
    assert (tmp_path / "file").read_text() == "mine"


def test_no_command_or_a_wrong_one(cli: Callable):
    for arguments in (["fly"], ["audit"]):
        assert cli(*arguments).refusal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bad_input")


@pytest.fixture
def stopped(
    folder: Path, cli: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run that stopped in round 2; made once, and moved here as a user may move it."""
    if not (folder / "run").exists():
        with monkeypatch.context() as m:
            stop_in_round_two(m)
            assert cli("run", "--out", folder / "run", *tiny(federation__rounds=2)).code == 130
    out = shutil.copytree(folder / "run", tmp_path / "r")
    return out


@pytest.mark.slow
def test_what_holds_a_run_is_not_touched_by_another(
    stopped: Path, cli: Callable, tiny: Callable, files: Callable
):
    out, before = stopped, files(stopped)
    for arguments, says in (
        (["run", "--out", out, *tiny()], "--resume"),
        (["run", "--out", out, "--resume", "--epsilon", "4"], "settings"),
        (["run", "--out", out, "--resume", "--seed", "1"], "settings"),
        (["search", "--out", out, "--seed", "1"], "settings"),
        (["train", "--out", out], "--resume"),
    ):
        assert says in cli(*arguments).refusal
    assert files(out) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "victim",
    [
        "sites/client-001/runs/simulated/search/best.json",
        "sites/client-000/runs/simulated/tune/best.json",
        "sites/client-000/runs/simulated/state.safetensors",
        "server/latest.json",
        "server/round-001/broadcast.safetensors",
        "config.toml",
        "sites/client-000/site.toml",
        "sites/client-000/samples.safetensors",
        "sites/client-000/ledger.jsonl",
        "sites.json",
        "facts.json",
        "public.safetensors",
    ],
)
def test_a_damaged_file_is_named_and_stops_the_run(victim: str, stopped: Path, cli: Callable):
    out, path = stopped, stopped / victim
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    before = {ledger: ledger.read_bytes() for ledger in out.rglob("ledger.jsonl")}
    outcome = cli("run", "--out", out, "--resume", "--workers", 1)
    assert outcome.code == 2
    (line,) = outcome.errors
    assert path.name in line
    # Nothing may be lost of what was spent.
    assert_kept(before)


def stop_in_round_two(monkeypatch: pytest.MonkeyPatch) -> None:
    from dprbft.server.rounds import Server

    real = Server._round

    def stopping(server: Server, round: int, *sites: Any) -> None:
        if round == 2:
            raise KeyboardInterrupt
        real(server, round, *sites)

    monkeypatch.setattr(Server, "_round", stopping)


@pytest.mark.slow
def test_a_json_of_nan_is_no_best(cli: Callable, tiny: Callable, tmp_path: Path):
    out = tmp_path / "r"
    assert cli("search", "--out", out, "--client", 0, "--client", 1, *tiny()).code == 0
    best = search_file(home(out, 0))
    best.write_text('{"genome": NaN}')
    outcome = cli("tune", "--out", out, "--workers", 1)
    assert outcome.code == 2
    assert "best.json" in outcome.errors[0]
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(best, {"genome": float("nan")})


@pytest.mark.thorough
def test_one_class_only_works_with_a_warning(cli: Callable, tiny: Callable, tmp_path: Path):
    data = npz(tmp_path / "one.npz", np.zeros((300, 1), int))
    outcome = cli("run", "--out", tmp_path / "r", "--dataset", data, *tiny())
    assert outcome.code == 0
    warned = [x for x in outcome.errors if x.startswith("warning: ")]
    assert warned
    assert all("one class" in x for x in warned)
    (result,) = (x for x in outcome.errors if x not in warned)
    assert result.startswith("one.npz: 200 samples, 1 class, ")
