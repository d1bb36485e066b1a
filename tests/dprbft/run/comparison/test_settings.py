"""Whose settings a run of a comparison has."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from baselines import fedavg
from baselines.common.options import options_of
from dprbft.config.families import method_names
from dprbft.methods import update_method
from dprbft.run.comparison import plan as planning
from dprbft.run.comparison.experiment import SIZES, Experiment, Size, read_experiment
from dprbft.run.comparison.plan import Request, plan
from dprbft.run.comparison.settings import config_of, entry_named, settings_for
from dprbft.run.sites.plan import plan_sites
from panas.runtime.errors import BadInput

EXPERIMENTS = sorted((Path(__file__).parents[4] / "experiments").glob("*.toml"))


def config(method: str, column: Any = "sound", *, size: Any = "smoke", **user: Any) -> Any:
    entry = entry_named(method)
    return config_of(settings_for(entry, column, size=size, user=user), 0)


def test_names_may_have_either_dash():
    assert entry_named("fedavg").method == "fedavg"
    for name in method_names():
        assert entry_named(name.replace("_", "-")).name == name


def test_a_method_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(BadInput, match=r"fedavg.*got 'fedavgg'"):
        entry_named("fedavgg")


@pytest.mark.slow
@pytest.mark.parametrize("size", ["smoke", "cpu", "full"])
def test_all_methods_and_columns_have_the_same_samples_and_sites(size: str):
    user = {"data": {"public_limit": 40}}
    runs = plan(Request(size=size, methods=("all",), columns=("sound", "paper"), settings=user))
    results = {
        (
            r.config.data.model_dump_json(),
            r.config.federation.clients,
            r.config.federation.partition,
        )
        for r in runs.runs
        if r.seed == 0
    }
    assert len(results) == 1
    assert not any(r.config.federation.baselines for r in runs.runs)


def test_the_user_is_over_the_size_and_the_size_over_the_method():
    assert config("fedavg").federation.rounds == 4
    assert config("fedavg", federation={"rounds": 7}).federation.rounds == 7
    assert config("fedavg", size="full").federation.rounds == 3
    assert config("dprbft", "paper").federation.rounds == 2  # preset paper says 300


def test_the_size_says_how_much_and_the_column_how_it_is_protected(
    monkeypatch: pytest.MonkeyPatch,
):
    published = {"federation": {"rounds": 300}, "privacy": {"epsilon": 3.0}}
    monkeypatch.setattr(fedavg, "COLUMNS", {"sound": published})
    small = {"federation": {"rounds": 2}, "privacy": {"epsilon": 8.0}}
    monkeypatch.setattr(fedavg, "SMOKE", small)
    result = config("fedavg")
    assert (result.federation.rounds, result.privacy.epsilon) == (2, 3.0)
    assert config("fedavg", size="full").federation.rounds == 300


def test_a_column_without_a_budget_keeps_none():
    asked = {"epsilon": 2.0}
    assert config("fedavg", privacy=asked).privacy.epsilon == 2.0
    paper = config("fedavg", "paper", privacy=asked)
    assert math.isinf(paper.privacy.epsilon)
    assert config("dprbft", "paper", privacy=asked).privacy.epsilon == 2.0


def test_a_variant_has_settings_of_its_own():
    record = {
        "title": "t",
        "source": "s",
        "methods": ["fedavg", "slow"],
        "settings": {"federation": {"clients": 3}},
        "variants": {"slow": {"method": "fedavg", "settings": {"federation": {"rounds": 9}}}},
        "rows": [{"name": "a"}, {"name": "b", "settings": {"federation": {"clients": 5}}}],
    }
    runs = plan(Request(size="smoke", experiment=Experiment.model_validate(record))).runs
    results = {
        (r.cell.method, r.cell.row): (r.config.federation.rounds, r.config.federation.clients)
        for r in runs
    }
    assert results == {
        ("fedavg", "a"): (4, 3),
        ("fedavg", "b"): (4, 5),
        ("slow", "a"): (9, 3),
        ("slow", "b"): (9, 5),
    }
    assert {str(r.folder) for r in runs if r.cell.method == "slow"} == {
        "runs/slow/sound/seed-0/a",
        "runs/slow/sound/seed-0/b",
    }


@pytest.mark.parametrize("methods", [("local",), ("local", "fedavg")])
def test_a_column_that_a_method_has_not_is_skipped(methods: tuple[str, ...]):
    columns: Any = ("sound", "paper")
    result = plan(Request(size="smoke", methods=methods, columns=columns)).runs
    assert ("local", "paper") not in {(r.cell.method, r.cell.column) for r in result}
    with pytest.raises(BadInput, match="column paper, got local"):
        plan(Request(size="smoke", methods=("local",), columns=("paper",)))


def test_a_mistake_in_an_experiment_names_its_key(tmp_path: Path):
    path = tmp_path / "x.toml"
    path.write_text('title = "t"\nsource = "s"\nmethods = ["fedavg"]\nrowz = 1\n')
    with pytest.raises(BadInput, match="known keys in the experiment"):
        read_experiment(path)
    path.write_text('title = "t"\nsource = "s"\nmethods = ["a"]\n[smoke]\nrows = ["b"]\n')
    with pytest.raises(BadInput, match="got b"):
        read_experiment(path)


HEAD = 'title = "t"\nsource = "s"\n'
REFUSED = {
    "preset": ('methods = ["fedavg"]\n[settings]\npreset = "paper"\n', "no preset"),
    "seed of a row": ('methods = ["fedavg"]\n[[rows]]\nname = "a"\nsettings.seed = 4\n', "no seed"),
    "method": (
        'methods = ["fedavg"]\n[smoke.settings]\nfederation.method = "local"\n',
        "no federation.method",
    ),
    "sites of a variant": (
        'methods = ["v"]\n[variants.v]\nmethod = "local"\nsizes.cpu.federation.sites = ["n"]\n',
        "one budget for life",
    ),
    "no section": ('methods = ["fedavg"]\n[column.sound]\ndata = 3\n', "got data alone"),
    "metric": ('methods = ["fedavg"]\nmetric = "acuracy"\n', "'acuracy'"),
    "metric without a class": ('methods = ["fedavg"]\nmetric = "f1"\n', "f1:0"),
    "class below 0": ('methods = ["fedavg"]\nmetric = "f1:-1"\n', "'f1:-1'"),
    "no rows": ('methods = ["fedavg"]\n[smoke]\nrows = []\n', "smoke.rows"),
    "no methods": ("methods = []\n", "methods"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_experiment_may_have_is_refused(why: str, tmp_path: Path):
    content, says = REFUSED[why]
    (tmp_path / "x.toml").write_text(HEAD + content)
    with pytest.raises(BadInput, match=says):
        read_experiment(tmp_path / "x.toml")


def test_relative_paths_are_of_the_folder_of_the_experiment(tmp_path: Path):
    content = 'methods = ["fedavg"]\n[settings]\ndata.dataset = "t.csv"\n'
    content += 'federation.client_data = ["n.npz", "/s.npz"]\n'
    (tmp_path / "x.toml").write_text(HEAD + content)
    result = read_experiment(tmp_path / "x.toml").settings
    assert result["data"]["dataset"] == str(tmp_path / "t.csv")
    assert result["federation"]["client_data"] == [str(tmp_path / "n.npz"), "/s.npz"]


@pytest.mark.slow
def test_all_stands_beside_names_which_must_serve(tmp_path: Path):
    result = plan(Request(size="smoke", methods=("local", "all"), columns=("paper", "sound")))
    assert result.methods[:2] == ("local", "fedavg")
    assert {*result.methods} == {*method_names()}
    with pytest.raises(BadInput, match="fedavgg"):
        plan(Request(size="smoke", methods=("all", "fedavgg")))
    with pytest.raises(BadInput, match="column paper, got local"):
        plan(Request(size="smoke", methods=("local", "all"), columns=("paper",)))


def test_data_are_looked_at_for_every_seed(monkeypatch: pytest.MonkeyPatch):
    seen = []

    def looked(run: Path, config: Any) -> Any:
        seen.append(config.seed)
        return plan_sites(run, config)

    monkeypatch.setattr(planning, "plan_sites", looked)
    plan(Request(size="smoke", methods=("fedavg", "local"), seeds=2, first_seed=3))
    assert sorted({*seen}) == [3, 4]


WANTED = (
    *(f"dpfnas-table-{k}" for k in (1, 2, 3, 5, 6)),
    *("dpfnas-figure-6", "dp-fnas-table-1", "dp-fnas-table-2"),
    *("feathers-table-2", "feathers-figure-4"),
    *("decnas-table-3", "decnas-table-4", "decnas-figure-6"),
)
OURS = "joining"  # of which nothing is published


def test_every_table_that_is_rebuilt_has_its_experiment():
    assert {p.stem for p in EXPERIMENTS} == {*WANTED, OURS}


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
@pytest.mark.parametrize("size", SIZES)
def test_all_configurations_of_an_experiment_can_be_built(path: Path, size: Size):
    experiment = read_experiment(path)
    at = experiment.at(size)
    built = 0
    for name in at.methods or experiment.methods:
        entry = entry_named(name, experiment)
        for column in at.columns or experiment.columns:
            for row in experiment.rows_at(size) if column in entry.columns else ():
                settings = settings_for(
                    entry, column, size=size, experiment=experiment, row=row, user={}
                )
                config = config_of(settings, 0)
                built += 1
                if config.federation.family.sends == "updates":
                    options_of(config, update_method(entry.method).Options)
    assert built
    if path.stem == OURS:
        return
    assert all(line.figures for line in experiment.published)
    assert experiment.published
    known = {entry_named(name, experiment).name for name in experiment.methods}
    assert known & {line.method for line in experiment.published}


def test_the_experiment_that_the_document_shows_can_be_carried_out(tmp_path: Path):
    text = (Path(__file__).parents[4] / "docs/how-to/compare.md").read_text()
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", text, re.S | re.M)
    (tmp_path / "shown.toml").write_text(shown)
    result = plan(Request(size="smoke", experiment=read_experiment(tmp_path / "shown.toml")))
    assert result.methods == ("joined", "slow", "fedavg")
    assert result.rows == ("alpha-1",)
    assert len(result.runs) == 3 + 2
    slow = [r.config for r in result.runs if r.cell.method == "slow"]
    assert {c.federation.options["learning_rate"] for c in slow} == {0.05}
    assert {c.federation.alpha for c in slow} == {1.0}
