"""The commands as a user types them: what they print, write and return."""

import json
import re
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import MOMENTS, charge, contents, ledger_lines, ledgers

from dprbft.paths import home, model_file, search_file
from panas.privacy.accounting.events import Gaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.store import read_json, read_lines
from panas.training.checkpoint import load_network
from panas_cli.text.ending import LINES
from panas_cli.text.printing import WIDTH

NAMES = {
    "config.toml",
    "facts.json",
    "public.safetensors",
    "sites.json",
    "sites",
    "server",
    "stages.json",
    "summary.json",
    "ladder.png",
    "audit.json",
    "audit",
}


def one_object(text: str) -> dict:
    """Exactly one JSON object on one line, without tokens that are no JSON."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    assert text.endswith("\n")
    assert text.count("\n") == 1
    record = json.loads(text, parse_constant=refuse)
    assert isinstance(record, dict)
    return record


def test_a_run_leaves_the_files_of_the_contract(run: Path):
    assert {p.name for p in run.iterdir() if p.name[0] != "."} == NAMES
    assert len(list((run / "sites").iterdir())) == 2
    for i in range(2):
        site = run / "sites" / f"client-{i:03d}"
        for name in ("site.toml", "split.key", "ledger.jsonl", "samples.safetensors"):
            assert (site / name).is_file()
        home = site / "runs" / "simulated"
        assert read_json(home / "search" / "best.json")["genome"]
        assert read_json(home / "tune" / "best.json")["setting"]
        for name in ("network", "last"):
            load_network(home / "models" / f"{name}.safetensors")
        # What the server received is what the site sent.
        received = run / "server" / "round-001" / f"site-{i:04d}.safetensors"
        sent = home / "releases" / "round-001.safetensors"
        assert received.read_bytes() == sent.read_bytes()
    assert read_json(run / "server" / "latest.json") == {"round": 1}
    assert len(read_lines(run / "server" / "rounds.jsonl")) == 1
    assert not list(run.rglob("*.pt")) + list(run.rglob("*.pkl")) + list(run.rglob(".*.tmp*"))
    assert len(ledger_lines(run)) > 4
    assert tomllib.loads((run / "config.toml").read_text())["preset"] == "sound"


def test_a_run_ends_with_one_screen(run: Path, folder: Path):
    lines = (folder / "stdout").read_text().splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    shown = " ".join(" ".join(lines).split())
    for c in read_json(run / "summary.json")["clients"]:
        assert c["name"] in shown
        assert f"{c['ladder']['joined']:.3f}" in shown
    assert "Whoever sees them is at most" in shown
    assert f"Next: `panas report {run}`" in shown


def test_details_are_tables_of_all_figures_and_the_evidence(run: Path, cli: Callable):
    shown = " ".join(cli("report", run, "--details").out.split())
    for c in read_json(run / "summary.json")["clients"]:
        assert c["genome"] in shown
        assert f"{c['parameters']:,}" in shown
    for word in ("before", "after", "of 8", "mean", "std", "up", "down", "search", "audit"):
        assert word in shown
    for c in read_json(run / "audit.json")["clients"]:
        assert " ".join(f"{c['name']}: {c['verdict']}: {c['evidence']}".split()) in shown
    assert f"run directory: {run}" in shown


def test_progress_is_plain_timed_lines_where_there_is_no_terminal(run: Path, folder: Path):
    unfolded = (folder / "stderr").read_text().replace("\n  ", " ")
    where, result, public, price, time, *lines = unfolded.splitlines()
    assert where == f"run directory: {run}"
    assert result.startswith("digits: 200 samples, 10 classes, grey pictures of 8 x 8; 2 sites of ")
    assert public.startswith("public: ")
    assert re.fullmatch(r"time: (a few seconds|about .*) in all", time)
    assert price.startswith("search price: epsilon")
    assert all(re.match(r"\[ *\d+\.\d s\] (search|tune|train|audit): \S", x) for x in lines)
    assert {x.split("] ")[1].split(":")[0] for x in lines} == {"search", "tune", "train", "audit"}


def test_a_report_shows_the_same_again(run: Path, folder: Path, cli: Callable, tmp_path: Path):
    outcome = cli("report", run, "--out", tmp_path / "page.html")
    assert (outcome.code, outcome.err) == (0, "")
    page = f"report: {tmp_path / 'page.html'}\n"
    assert outcome.out == (folder / "stdout").read_text() + page


@pytest.mark.slow
def test_json_is_one_strict_object_for_every_command(run: Path, cli: Callable):
    for command in ("report", "ledger", "audit"):
        outcome = cli(command, run, "--json")
        assert outcome.code == 0
        one_object(outcome.out)
    outcome = cli("run", "--out", run, "--resume", "--json", "--workers", 1)
    result = one_object(outcome.out)
    assert result["finished"] is True
    assert result["audit"]["verdicts"]
    assert result["run"] == str(run)


def test_a_finished_run_resumes_to_itself(run: Path, cli: Callable):
    before = contents(run), (run / "server" / "rounds.jsonl").read_bytes()
    outcome = cli("run", "--out", run, "--resume", "--workers", 1)
    assert outcome.code == 0
    assert (contents(run), (run / "server" / "rounds.jsonl").read_bytes()) == before


def test_the_ledger_says_who_spent_what_on_what(run: Path, cli: Callable):
    shown = cli("ledger", run).out
    for i in range(2):
        result = rf"^client-00{i}: epsilon = \d\.\d+ of 8\.000 at delta = 1e-05"
        assert re.search(result, shown, re.M)
    for what in ("label-histogram", "dp-sgd", "moments", "noise multiplier", "not covered"):
        assert what in shown
    assert "infinity" not in shown
    assert "reserved" not in shown
    assert all(len(x) <= 80 for x in shown.splitlines())
    for ledger in ledgers(run):
        count, digest = ledger.head()
        assert f"ledger: {count} lines, whole" in shown
        assert digest in shown


def test_the_card_as_json_says_what_was_charged_to_which_samples(run: Path, cli: Callable):
    result = one_object(cli("ledger", run, "--json").out)
    for what in ("takes part", "declared public", "simulator's view"):
        assert any(what in x for x in result["not_covered"])
    for i, row in enumerate(result["clients"]):
        count, digest = ledgers(run)[i].head()
        assert row["chain"] == {"lines": count, "hash": digest}
        assert row["client"] == i
        assert row["unit"] == "one training sample"
        assert row["relation"] == "add-or-remove-one"
        assert row["subsets"] == {"train": row["spent"], "search": 0}
        named = {m["mechanism"]: m for m in row["mechanisms"]}
        assert named.keys() == {"label-histogram", "dp-sgd", "moments"}
        training = named["dp-sgd"]
        assert (training["times"], training["reserved"], training["recipient"]) == (1, 0, "server")
        assert training["event"]["kind"] == "sampled-gaussian"
        assert training["sensitivity"] == [1.0]
        assert training["epsilon"] == pytest.approx(row["training"])
        assert row["reserved"] == 0
        assert "group_epsilon" not in row


def test_the_card_tells_what_a_user_with_several_samples_has(run: Path, cli: Callable):
    (row, *_) = one_object(cli("ledger", run, "--json", "--group", 3).out)["clients"]
    assert 1.5 * row["spent"] < row["group_epsilon"] < 9 * row["spent"]
    assert f"holds 3 samples: epsilon at most {row['group_epsilon']:.3f}" in (
        cli("ledger", run, "--group", 3).out
    )
    outcome = cli("ledger", run, "--group", 0)
    assert outcome.code == 2
    assert outcome.errors == [
        "error: expected a --group of 1 or more, got 0; give how many samples"
    ]


def test_the_card_names_what_was_done_to_the_ledger(cli: Callable, tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open_account(Budget(8.0, 1e-5))
    assert cli("ledger", tmp_path).code == 0
    charge(ledger, Gaussian(1000.0))
    assert "1 reserved, not finished: counted as spent" in cli("ledger", tmp_path).out
    content = (tmp_path / "ledger.jsonl").read_bytes()
    (tmp_path / "ledger.jsonl").write_bytes(
        content.replace(b'"epsilon": 8.0', b'"epsilon": 9.0', 1)
    )
    assert "line 2 was changed" in cli("ledger", tmp_path).refusal
    (tmp_path / "ledger.jsonl").unlink()
    (line,) = cli("ledger", tmp_path).errors
    assert "ledger.head knows of one" in line


def test_the_card_says_where_nothing_bounds_a_sample(cli: Callable, tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open_account(Budget(8.0, 1e-5), allow_unprotected=True)
    rows = replace(MOMENTS, event=Unprotected(), mechanism="raw_rows", sensitivity=None)
    with ledger.charge(rows):
        pass
    row = one_object(cli("ledger", tmp_path, "--json").out)
    assert row["mechanisms"][0]["sensitivity"] is None
    assert "NOT COVERED" in cli("ledger", tmp_path).out


def test_the_card_of_another_runs_ledger_is_not_shown(run: Path, cli: Callable, tmp_path: Path):
    shutil.copytree(run, tmp_path / "r")
    for ledger in ledgers(tmp_path / "r"):
        ledger.path.unlink()
        ledger.path.with_suffix(".head").unlink()
        ledger.open_account(Budget(8.0, 1e-5))
    assert "another copy was put in its place" in cli("ledger", tmp_path / "r").refusal


@pytest.mark.slow
def test_the_card_of_a_site_names_every_run(cli: Callable, tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open_account(Budget(8.0, 1e-5))
    for run in ("first", "second"):
        ledger.begin_run(run, Budget(6.5, 1e-5)).charge(replace(MOMENTS, event=Gaussian(2.0)))
    ledger.begin_run("third", Budget(0.5, 1e-5))
    account = Ledger(tmp_path / "ledger.jsonl").account()
    result = one_object(cli("ledger", tmp_path, "--json").out)
    assert [r["run"] for r in result["runs"]] == ["first", "second", "third"]
    assert [r["budget"] for r in result["runs"]] == [6.5, 6.5, 0.5]
    assert result["left"] == account.left()
    assert result["spent"] == account.spent()
    assert [r["spent"] for r in result["runs"]] == [account.of_run("first").spent()] * 2 + [0]
    shown = " ".join(cli("ledger", tmp_path).out.split())
    assert f"epsilon = {account.spent():.3f} of 8.000" in shown
    own = account.of_run("second").spent()
    assert f"run second: epsilon = {own:.3f} of 6.500 that it asked for" in shown
    assert f"left for a new run: epsilon = {account.left():.3f} at delta = 1e-05" in shown


def test_a_ledger_that_was_copied_says_where_it_lacks_charges(cli: Callable, tmp_path: Path):
    (tmp_path / "a").mkdir()
    ledger = Ledger(tmp_path / "a" / "ledger.jsonl")
    ledger.open_account(Budget(8.0, 1e-5))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert "spent;" not in cli("ledger", tmp_path / "b").out
    charge(ledger, Gaussian(2.0))
    for old in ((), ("--moved",)):  # which older scripts give
        outcome = cli("ledger", tmp_path / "b", *old)
        assert outcome.code == 0
        assert "nothing can be spent" in " ".join(outcome.out.split())
    assert one_object(cli("ledger", tmp_path / "b", "--json").out)["copy"] is True
    assert one_object(cli("ledger", tmp_path / "a", "--json").out)["copy"] is False


@pytest.mark.slow
def test_options_go_over_the_file_and_set_over_options(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    file = tmp_path / "c.toml"
    file.write_text("seed = 5\n[federation]\nrounds = 7\nclients = 3\n")
    pairs = list(zip(tiny()[::2], tiny()[1::2], strict=True))
    kept = [x for pair in pairs if not pair[1].startswith("federation") for x in pair]
    outcome = cli("search", file, "--out", tmp_path / "r", "--rounds", 2, *kept)
    assert outcome.code == 0
    written = tomllib.loads((tmp_path / "r" / "config.toml").read_text())
    assert (written["seed"], written["federation"]["rounds"]) == (5, 2)
    assert written["federation"]["clients"] == 3


@pytest.mark.thorough
def test_stages_one_by_one_find_what_a_run_of_their_configuration_finds(
    cli: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from panas.privacy.noise import ReproducibleNoise
    from panas.runtime.seeds import stream
    from panas.search_modes import public_proxy

    monkeypatch.setattr(
        public_proxy, "SystemNoise", lambda: ReproducibleNoise(stream(0, "histogram"))
    )
    both = ["--client", "0", "--client", "1"]
    one, whole = tmp_path / "one", tmp_path / "whole"
    alone = cli("search", "--out", one, "--client", 1, *tiny())
    assert alone.code == 0
    assert alone.out.startswith("client-001: ")
    first = search_file(home(one, 1)).read_bytes()
    result = one_object(cli("search", "--out", one, *both, "--workers", 1, "--json").out)
    assert [c["client"] for c in result["clients"]] == [0, 1]
    tuned = one_object(cli("tune", "--out", one, *both, "--workers", 1, "--json").out)
    assert [c["client"] for c in tuned["clients"]] == [0, 1]
    summary = one_object(cli("train", "--out", one, "--workers", 1, "--json").out)
    assert cli("run", one / "config.toml", "--out", whole, "--workers", 1, "--json").code == 0
    assert (whole / "config.toml").read_text() == (one / "config.toml").read_text()
    other = read_json(whole / "summary.json")
    for mine, theirs in zip(summary["clients"], other["clients"], strict=True):
        for key in ("genome", "parameters", "setting", "samples"):
            assert mine[key] == theirs[key]
        assert mine["epsilon"]["budget"] == theirs["epsilon"]["budget"]
    # And they leave a run that `run --resume` can finish.
    outcome = cli("run", "--out", one, "--resume", "--workers", 1)
    assert outcome.code == 0
    assert (one / "audit.json").is_file()
    assert search_file(home(one, 1)).read_bytes() == first


@pytest.mark.thorough
def test_the_papers_preset_says_infinity_in_words(cli: Callable, tiny: Callable, tmp_path: Path):
    out = tmp_path / "r"
    options = tiny(
        data__limit=300,
        network__width=16,
        search__min_blocks=3,
        federation__classes_per_client=5,
        federation__partition="dirichlet",
    )
    outcome = cli("run", "--preset", "paper", "--out", out, *options)
    assert outcome.code == 0
    shown = cli("ledger", out).out
    assert all(len(x) <= 80 for x in shown.splitlines())
    card = " ".join(shown.split())
    for phase, words in (
        ("release on train: raw_rows x 1, to server", "reconstruct the sample"),
        ("search on search: search on private samples", "without bound"),
    ):
        _, result, rest = card.partition(phase)
        assert result
        assert "epsilon = infinity, NOT COVERED" in rest[:120]
        assert words in rest[:260]
    for c in read_json(out / "summary.json")["clients"]:
        assert c["epsilon"]["release"] == c["epsilon"]["search"] == "infinity"
    assert "infinity" in outcome.out
    rows = one_object(cli("ledger", out, "--json").out)["clients"]
    assert {r["spent"] for r in rows} == {"infinity"}
    assert all(r["training"] <= 50 for r in rows)


@pytest.mark.slow
@pytest.mark.parametrize("method", [pytest.param("dprbft", marks=pytest.mark.slow), "local"])
def test_without_privacy_if_that_is_said(
    method: str, cli: Callable, tiny: Callable, tmp_path: Path
):
    out = tmp_path / "r"
    options = tiny(privacy__allow_unprotected="true", privacy__epsilon="inf")
    outcome = cli("run", "--method", method, "--out", out, *options, "--json")
    assert outcome.code == 0
    assert one_object(outcome.out)["clients"][0]["epsilon"]["budget"] == "infinity"
    card = cli("ledger", out).out
    assert "trained without noise" in card
    assert tomllib.loads((out / "config.toml").read_text())["privacy"]["epsilon"] == float("inf")
    saved = load_network(model_file(home(out, 0)))
    assert saved.spec.norm == "batch"


@pytest.mark.thorough
def test_a_client_of_one_class_works_and_workers_warn_of_it_once(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    options = tiny(federation__partition="classes", federation__classes_per_client=1)
    outcome = cli("run", "--out", tmp_path / "r", *options, "--workers", 2, "--seed", 23)
    assert outcome.code == 0
    told = [x for x in outcome.errors if "samples of one class only" in x]
    assert len(told) == 1
    assert "client-000" in told[0]
    assert len(outcome.errors) == len(set(outcome.errors))
    assert all(x.startswith("warning: ") for x in outcome.errors)
