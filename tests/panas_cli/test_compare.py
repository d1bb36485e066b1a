"""`panas compare`: one table of several methods, resumable, and what it refuses."""

import csv
import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import carry_out

from dprbft.config.families import method_names
from dprbft.run.comparison.carry_out import Results
from dprbft.run.comparison.plan import Request, plan
from panas.runtime.errors import BudgetExhausted
from panas.runtime.store import read_json
from panas_cli.commands.compare import _comparison, _Display
from panas_cli.options import CompareRequest
from panas_cli.text.comparison import as_markdown
from panas_cli.text.printing import WIDTH

SMALL = """
title = "Two small methods"
source = "this test"
methods = ["fedavg", "local"]
columns = ["sound", "paper"]
[settings]
data.limit = 160
search = { population = 2, min_blocks = 1, max_blocks = 1, widths = [4] }
federation = { clients = 2, rounds = 1 }
training = { epochs = 1, batch_size = 1000 }
[variants.fedavg]
method = "fedavg"
# Full batches are priced in closed form, at once.
settings.federation.options = { epochs = 1, batch_size = 1000, widths = [4], hidden = 8 }
[smoke]
seeds = 2
"""
SUMMED = """
title = "A secure sum"
source = "this test"
methods = ["secure"]
columns = ["sound"]
[settings]
data = { limit = 160, public_limit = 60 }
search = { population = 2, generations = 0, epochs = 1, student_steps = 1, max_blocks = 3 }
network.features = 8
tuning.trials = 0
training.student_steps = 1
federation = { clients = 4 }
privacy.network = "stays"
[variants.secure]
method = "joined"
settings.privacy.trust = "secure-sum"
[smoke]
seeds = 1
"""
PICTURES = {f"accuracy-{against}.png" for against in ("rounds", "bytes", "epsilon")}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two methods in both columns, over two seeds."""
    out = tmp_path_factory.mktemp("compare") / "c"
    small = out.with_suffix(".toml")
    small.write_text(SMALL)
    said = out.with_suffix(".stderr")
    asked = ("compare", small, "--out", out, "--workers", "1")
    assert carry_out(said, *asked) == 0, said.read_text()
    return out


@pytest.mark.thorough
def test_the_table_has_every_method_column_and_seed(compared: Path):
    record = read_json(compared / "compare.json")
    assert list(record["methods"]) == ["fedavg", "local"]
    fedavg, local = record["methods"].values()
    assert list(fedavg["columns"]) == ["sound", "paper"]
    assert list(local["columns"]) == ["sound"]
    assert fedavg["accuracy"] == fedavg["columns"]["sound"]["accuracy"]
    assert fedavg["sites"] == 2 * 2
    assert fedavg["seeds"] == [0, 1]
    assert 7.5 < fedavg["epsilon"] <= 8.0
    assert fedavg["columns"]["paper"]["epsilon"] == "infinity"
    assert fedavg["up_bytes"] > 0 == local["up_bytes"]
    assert fedavg["difference"] is None
    assert local["difference"]["to"] == "fedavg"
    assert local["difference"]["pairs"] == 4


@pytest.mark.slow
def test_the_figures_are_those_of_the_runs(compared: Path):
    record = read_json(compared / "compare.json")["methods"]["fedavg"]
    runs = [compared / f"runs/fedavg/sound/seed-{s}" for s in (0, 1)]
    summaries = [read_json(run / "summary.json") for run in runs]
    own = [c["accuracy"]["selected"] for s in summaries for c in s["clients"]]
    assert record["accuracy"]["mean"] == pytest.approx(sum(own) / 4)
    bytes_ = [s["communication"]["up_bytes"] for s in summaries]
    assert record["up_bytes"] == sum(bytes_) / 2
    last = record["curve"][-1]
    assert last["accuracy"] == pytest.approx(record["accuracy"]["mean"])
    assert (last["up_bytes"], last["epsilon"]) == (record["up_bytes"], record["epsilon"])
    majority = [o for r in runs for o in read_json(r / "outcome.json")["majority"]]
    assert record["majority"] == pytest.approx(sum(majority) / 4)


@pytest.mark.slow
def test_the_same_table_is_there_as_markdown_and_csv_beside_its_pictures(compared: Path):
    rows = list(csv.DictReader((compared / "compare.csv").open()))
    record = read_json(compared / "compare.json")["methods"]
    named = [(row["method"], row["column"]) for row in rows]
    assert named == [("fedavg", "sound"), ("fedavg", "paper"), ("local", "sound")]
    assert float(rows[0]["accuracy.mean"]) == record["fedavg"]["accuracy"]["mean"]
    assert rows[1]["epsilon"] == "infinity"
    assert "difference" not in rows[0]  # its parts have a column each
    assert rows[0]["difference.mean"] == ""
    text = (compared / "compare.md").read_text()
    assert "| fedavg | paper |" in text
    assert "| infinite |" in text
    assert {p.name for p in compared.glob("*.png")} == PICTURES


@pytest.mark.slow
def test_the_figure_that_a_table_begins_with_stands_there_once(compared: Path):
    result = read_json(compared / "compare.json") | {"metric": "macro_f1"}
    head = next(x for x in as_markdown(result).splitlines() if x.startswith("| method"))
    assert head.count("macro F1") == 1
    assert head.startswith("| method | column | macro F1 | accuracy |")


@pytest.mark.slow
def test_what_is_finished_is_not_repeated(compared: Path, cli: Callable, files: Callable):
    before = files(compared / "runs")
    outcome = cli("compare", "--out", compared, "--resume", "--json", "--workers", "1")
    assert outcome.code == 0, outcome.err
    assert files(compared / "runs") == before
    shown = json.loads(outcome.out)
    kept = read_json(compared / "compare.json")
    assert {k: v for k, v in shown.items() if k != "out"} == kept


@pytest.mark.slow
def test_the_text_names_methods_and_what_figures_mean(compared: Path, cli: Callable):
    outcome = cli("compare", "--out", compared, "--resume", "--workers", "1")
    lines = outcome.out.splitlines()
    heads = [line.split() for line in lines if line.startswith("method")]
    assert heads[0][:4] == ["method", "column", "accuracy", "majority"]
    names = [line.split()[0] for line in lines if line.startswith(("fedavg", "local"))]
    assert names == ["fedavg", "fedavg", "local"] * (len(names) // 3)
    assert "the simulator's view" in outcome.out
    assert "epsilon of local, which sent nothing" in outcome.out
    assert max(map(len, lines)) <= WIDTH


def test_runs_that_were_finished_before_tell_how_long_the_others_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    planned = plan(Request(size="smoke", methods=("fedavg",), seeds=3))
    shown = _Display(planned, tmp_path)
    first = planned.runs[0]
    outcome: Any = SimpleNamespace(seconds={"train": 600.0}, accuracy=[0.5])
    shown.ended(first, Results(plan=planned, found={first: outcome}, failed={}))
    assert "about 20 min left in all" in capsys.readouterr().err


@pytest.mark.slow
def test_other_settings_are_refused(compared: Path, cli: Callable, files: Callable):
    before = files(compared)
    for options in (
        ("--resume", "--set", "federation.rounds=2"),
        ("--resume", "--epsilon", "3"),
        ("--methods", "fedavg"),
    ):
        outcome = cli("compare", "--out", compared, "--workers", "1", *options)
        assert outcome.code == 2, options
        assert len(outcome.errors) == 1
    assert files(compared) == before


def test_resuming_keeps_the_settings_that_are_not_said_again():
    known = {"methods": "fedavg", "settings": {"privacy": {"delta": 1e-4}, "seed": 2}}
    request: Any = SimpleNamespace(settings={"privacy": {"epsilon": 4.0}})
    asked = CompareRequest(experiment=None, methods=None, seeds=None, size=None, columns=None)
    result = _comparison(request, asked, known)
    assert result.settings == {"privacy": {"delta": 1e-4, "epsilon": 4.0}}
    assert result.first_seed == 2


@pytest.mark.slow
def test_a_run_of_updates_tells_nothing_of_a_search_or_of_heads(compared: Path, cli: Callable):
    run = compared / "runs/fedavg/sound/seed-0"
    screen, details = cli("report", run), cli("report", run, "--details")
    assert (screen.code, details.code) == (0, 0)
    for absent in ("genome", "before", "head", "search", "tune", "alone", "0.0,"):
        assert absent not in screen.out + details.out, absent
    for told in ("method fedavg", "as sent", "DP-SGD", "MACs", "seconds: train", "in 1 round"):
        assert told in details.out, told
    local = cli("report", compared / "runs/local/sound/seed-0", "--details").out
    assert "genome" in local


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "method": (("--methods", "fedavg,fedavgg"), "fedavgg"),
    "none": (("--methods", ","), "--methods"),
    "nothing": ((), "--methods"),
    "size": (("--methods", "fedavg", "--size", "huge"), "--size"),
    "column": (("--methods", "fedavg", "--columns", "loud"), "--columns"),
    "no column": (("--methods", "local", "--columns", "paper"), "local"),
    "seeds": (("--methods", "fedavg", "--seeds", "0"), "--seeds"),
    "clients": (("--methods", "fedavg", "--clients", "1000"), "fewer sites"),
    "method by setting": (
        ("--methods", "fedavg", "--set", "federation.method=local"),
        "federation.method",
    ),
    "setting": (("--methods", "fedavg", "--set", "federation.roundz=1"), "roundz"),
    "option": (("--methods", "fedavg", "--set", "federation.options.x=1"), "options.x"),
    "experiment": (("nowhere.toml",), "nowhere.toml"),
    "resume": (("--methods", "fedavg", "--resume"), "expected"),
}


@pytest.mark.parametrize("why", BAD)
def test_what_cannot_be_compared_is_refused_in_a_line(why: str, cli: Callable, tmp_path: Path):
    options, says = BAD[why]
    outcome = cli("compare", "--out", tmp_path / "c", "--workers", "1", *options)
    assert outcome.code == 2
    assert len(outcome.errors) == 1, outcome.err
    assert says in outcome.errors[0]
    assert not (tmp_path / "c").exists()


def test_where_no_run_has_an_outcome_there_is_no_table(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def nothing(folder: Path, planned: Any, *_: Any) -> Results:
        failed = {run: BudgetExhausted("expected more, got less") for run in planned.runs}
        return Results(plan=planned, found={}, failed=failed)

    monkeypatch.setattr("panas_cli.commands.compare.carry_out", nothing)
    outcome = cli("compare", "--methods", "local", "--out", tmp_path / "c")
    assert outcome.code == 3
    assert outcome.errors == ["error: expected more, got less"]
    assert [p.name for p in (tmp_path / "c").iterdir() if p.name[0] != "."] == ["request.json"]


@pytest.mark.thorough
def test_what_epsilon_of_a_secure_sum_rests_on_is_in_the_table(tmp_path: Path):
    out, said, asked = tmp_path / "c", tmp_path / "stderr", tmp_path / "asked.toml"
    asked.write_text(SUMMED)
    assert carry_out(said, "compare", asked, "--out", out, "--workers", "1") == 0, said.read_text()
    record = read_json(out / "compare.json")["methods"]["secure"]
    rests = "at most 1 of 4 sites collude with the server or are missing"
    assert record["trust"] == [rests]
    assert f"- epsilon of secure (sound): as long as {rests}" in (out / "compare.md").read_text()


@pytest.mark.thorough
def test_a_killed_comparison_goes_on(compared: Path, tmp_path: Path):
    out, said = tmp_path / "c", tmp_path / "stderr"
    asked = ("compare", compared.with_suffix(".toml"), "--out", out, "--workers", "1")
    # Of the second site of the second run: its order is read, and nothing is trained.
    death = ("dprbft.methods.once", "check_round", 4, "before")
    assert carry_out(said, *asked, death=death) == -signal.SIGKILL, said.read_text()
    done = [p.parent for p in out.rglob("outcome.json")]
    assert len(done) == 1
    assert (out / "runs/fedavg/paper/seed-0/config.toml").is_file()
    assert not (out / "compare.json").exists()
    before = (done[0] / "summary.json").read_bytes()
    assert carry_out(said, *asked) == 2  # without --resume
    assert carry_out(said, "compare", "--out", out, "--resume", "--workers", "1") == 0
    assert (done[0] / "summary.json").read_bytes() == before
    record: dict[str, Any] = read_json(out / "compare.json")["methods"]
    whole = read_json(compared / "compare.json")["methods"]
    assert list(record) == list(whole)
    # Without noise a run that was killed comes to what it would have come to.
    paper = [each["fedavg"]["columns"]["paper"] for each in (record, whole)]
    assert paper[0]["accuracy"] == paper[1]["accuracy"]
    assert paper[0]["curve"] == paper[1]["curve"]
    for entry in record.values():
        assert entry["epsilon"] <= 8.0


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_method_learns_on_every_site_within_its_budget(tmp_path: Path):
    out, said = tmp_path / "c", tmp_path / "stderr"
    asked = ("--methods", "all", "--size", "smoke", "--json", "--workers", "1")
    assert carry_out(said, "compare", "--out", out, *asked) == 0, said.read_text()[-3000:]
    table = read_json(out / "compare.json")
    assert sorted(table["methods"]) == method_names()
    assert not table["left_out"]
    assert not table["failed"]
    for name, result in table["methods"].items():
        assert result["beats_majority"], (name, result["accuracy"], result["majority"])
        assert result["epsilon"] <= 8.0, name
        assert (result["up_bytes"] > 0) == (name != "local"), name
        assert result["accuracy"]["mean"] > result["majority"] + 0.1, name
