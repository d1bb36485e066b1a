"""A run that is refused before anything is charged leaves nothing behind, here or at its sites."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from node_sites import owned_site

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import hello_file, ledger_file, read_sites
from dprbft.run.directory import Ground, OpenRun, prepare
from dprbft.run.stages import begin
from dprbft.run.view import RunView
from dprbft.site.joining import join, leave
from dprbft.site.site import open_site
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.state import state_folder


@pytest.fixture
def sites(tmp_path: Path) -> list[Path]:
    """Two sites with a budget for life of 6, and a third that has 1."""
    budgets = {"north": 6.0, "east": 6.0, "south": 1.0}
    return [
        owned_site(tmp_path / name, seed=seed, epsilon=epsilon)
        for seed, (name, epsilon) in enumerate(budgets.items())
    ]


def config_of(sites: list[Path], epsilon: float = 2.0) -> RunConfig:
    federation = {"sites": [str(s) for s in sites], "clients": len(sites)}
    privacy = {"epsilon": epsilon, "delta": 1e-4, "search": "data-free"}
    small = {"network": {"width": 16}, "search": {"widths": [16]}}
    return build_config({"federation": federation, "privacy": privacy, **small})


def started(run: Path, config: RunConfig, *, resume: bool = False) -> None:
    """The beginning of `panas run`."""
    ground = Ground.of(run)
    prepare(run, config, resume=resume)
    with InProcess(read_sites(run)) as engine:
        begin(OpenRun(run, config, engine), ground)


def tags() -> list[Path]:
    return list(state_folder().glob("fingerprints/*.tags"))


def test_a_run_that_one_budget_does_not_hold_is_taken_back_everywhere(
    sites: list[Path], tmp_path: Path
):
    run, before = tmp_path / "runs" / "first", {p: set(p.iterdir()) for p in (tmp_path, *sites)}
    with pytest.raises(BudgetExhausted, match="south"):
        started(run, config_of(sites))
    assert set(tmp_path.iterdir()) == before[tmp_path]
    assert [list((s / "runs").iterdir()) for s in sites] == [[], [], []]
    assert tags() == []
    for site in sites[:2]:  # the line of the run that has begun sets nothing aside
        account = Ledger(ledger_file(site)).account()
        assert (account.runs, account.left(), account.spent()) == (("first",), 6.0, 0.0)
        assert account.admits(Budget(6.0, 1e-4))
    started(run, config_of(sites, epsilon=1.0))  # as the remedy says, under the same name
    assert all(hello_file(paths.home).is_file() for paths in read_sites(run))
    assert tags() == []  # nothing was charged


def test_a_run_whose_data_do_not_fit_is_taken_back(sites: list[Path], tmp_path: Path):
    images = np.zeros((120, 6, 6), np.uint8)  # another shape than its owner has declared
    np.savez(sites[1] / "data.npz", images=images, labels=np.arange(120) % 4)
    run = tmp_path / "first"
    run.mkdir()
    (run / ".notes").write_text("mine")
    with pytest.raises(BadInput, match="east"):
        started(run, config_of(sites[:2]))
    assert [p.name for p in run.iterdir()] == [".notes"]
    assert [list((s / "runs").iterdir()) for s in sites[:2]] == [[], []]


def test_a_simulation_is_taken_back_whole(tiny: Callable[..., RunConfig], tmp_path: Path):
    run = tmp_path / "deep" / "r"
    ground, config = Ground.of(run), tiny()
    prepare(run, config, resume=False)
    read_sites(run)[1].folder.joinpath("samples.safetensors").write_bytes(b"damaged")
    with InProcess(read_sites(run)) as engine, pytest.raises(BadInput, match="client-001"):
        begin(OpenRun(run, config, engine), ground)
    assert list(tmp_path.iterdir()) == []


def test_what_another_command_has_made_stays(sites: list[Path], tmp_path: Path):
    run, config = tmp_path / "first", config_of(sites[:2])
    started(run, config)
    (sites[1] / "site.toml").write_text("name = 3")
    with pytest.raises(BadInput):
        started(run, config, resume=True)
    assert (run / "sites.json").is_file()
    assert all(hello_file(paths.home).is_file() for paths in read_sites(run))


def test_only_a_first_hello_is_taken_back(sites: list[Path], tmp_path: Path):
    run, config = tmp_path / "first", config_of(sites[:2])
    prepare(run, config, resume=False)
    paths, hello = read_sites(run)[0], RunView(run, config).hello(0)
    noted = hello_file(paths.home)
    leave(paths, hello)  # nothing to take back
    join(paths, hello)
    leave(paths, hello.replace(b'"epsilon', b'"Epsilon'))  # of another run
    assert noted.is_file()
    leave(paths, hello)
    assert not paths.home.exists()
    for _ in range(2):  # the second is of another command, which may rely on it
        join(paths, hello)
    leave(paths, hello)
    assert open_site(paths).account.entries == ()
