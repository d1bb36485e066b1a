"""The commands that the documents name are there, each in one wing, and print their figures."""

import csv
import importlib
import json
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tiny_encoder import write_onnx

import benchmarks
from benchmarks.joining_tables import Setting as TableSetting
from benchmarks.joining_tables import Sizes
from benchmarks.joining_world import Setting
from benchmarks.membership_tasks import Size
from panas.evolution.records import EvolutionConfig
from panas.runtime.seeds import stream

ROOT = Path(benchmarks.__file__).parents[1]
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(path for part in ("docs", "notebooks") for path in (ROOT / part).rglob("*.md")),
    *(ROOT / "results").rglob("*.toml"),
    *(
        path
        for part in ("panas", "dprbft", "baselines", "attacks", "benchmarks")
        for path in (ROOT / part).rglob("*.py")
    ),
]
NAMED = sorted(
    {n for text in TEXTS for n in re.findall(r"benchmarks\.([a-z_]+)", text.read_text())}
)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_module_is_found(name: str):
    result = find_spec(f"benchmarks.{name}")
    assert result is not None
    assert result.origin is not None
    assert result.origin.endswith((f"/{name}.py", f"/{name}/__init__.py"))


def test_no_name_is_in_two_wings():
    folders = [Path(benchmarks.__file__).parent, *(Path(p) for p in benchmarks.__path__)]
    names = [path.stem for folder in {*folders} for path in folder.glob("[!_]*.py")]
    assert len(names) == len({*names}) >= 20


SLOW = {
    "compression --seeds 1": "sites rows dataset n epsilon compression bytes accuracy",
    "data_free --genomes 3 --samples 60 --repeats 1": "digits learnability macs accuracies",
    "features digits --public 100 --train 200 --width 16 --seeds 1": "exact secure joined macs",
    "secure_sum --parts cost,trust,audit --sites 4 --repeats 1 --work {}": (
        "cost missing ms_site bytes_up trust left_out audit claim_of_sum bound bound_half_noise"
    ),
    "tabular": "digits learnability validation test",
    "tuning --repetitions 1 --searched 0 --trials 2 --workers 1 --work {}": (
        "median_regret interval accuracy_at over_budget_trials propose_seconds live"
    ),
}
"""Commands at their smallest, and names in the JSON that they print."""

THOROUGH = {
    "heads --seeds 1 --clients 2": "digits moments mean std seeds seconds runs",
    "at_home --encoder {}/tiny.onnx --dataset digits --limit 120 --clients 2 --seeds 1 --workers 1"
    " --set search.population=2 --set search.generations=0 --set search.student_steps=1"
    " --set training.student_steps=1": "rows runs within joined error",
    "attack_membership --seeds 1 --workers 1 --work {}": "one_run lower_bounds f_dp gdp rmia lira",
    "attacks --workers 1 --work {}": "table4 release epsilon attack r2 ceiling_r2 verdict",
    "decnas --seeds 1 --limit 150 --sites 2 --iterations 1 --start 1 --final 1 --parts 3": (
        "accuracy searched macs iterations rounds"
    ),
    "dp_fnas --limit 150 --parties 1 --of 1 --rounds 3 --variances 1": (
        "table_1 table_2 error_percent parameters"
    ),
    "mutants --clean 1 --only bare --workers 1": "mutants killed by_area alive alarms minutes",
    "engines --sites 2 --deployed 0 --rounds 1": "cores ways engine sites seconds bytes_up",
    "feathers --data-root {} --seeds 1 --sites 2 --rounds 4 --positives 1 --epsilons 8 --work {}": (
        "partition epsilon f1 auroc"
    ),
    "hostile_hub --messages 6": "messages seed pairs kind codes charges spent failures",
    "joining_tables --data-root {} --seeds 2 --workers 1 --work {}": "methods auroc alone joined",
    "scale --sites 3 --participation 1 --rounds 1": "costs sites site_seconds server_seconds",
    "search --dataset digits --repetitions 1": "cost_ratio_to_plain_ga parts budgets",
    "students_hold --data-root {} --dataset digits --public 60 --seeds 1 --workers 1"
    " --set training.student_steps=5 --set search.student_steps=5 --set search.population=2"
    " --set search.generations=0": "seed sites seconds predictor network majority bytes ms",
    "students --data-root {} --seeds 1 --workers 1 --work {}": "found runs price sites front macs",
    "table_ranks --data-root {} --genomes 2": "genomes ranks made public accuracy",
    "table_students --data-root {} --seeds 1 --tables digits --public 40 --workers 1": (
        "settings table public majority predictor network near furthest runs"
    ),
}

ROWS = (
    *(("network", "raw_rows", float("inf")), ("network", "raw_rows", 0.5)),
    *(("network", "moments", 8.0), ("map", "raw_rows", float("inf")), ("map", "moments", 8.0)),
)

SMALLER: dict[str, Any] = {
    "attack_table.DECODER_EPOCHS": 1,
    "attack_membership.main.__defaults__": (
        None,
        Size(canaries=100, shadows=2, targets=1, epochs=1),
    ),
    "attack_table.ROWS": ROWS,
    "attacks.ROWS": ROWS,
    "joining_tables.TABLES": {"breast cancer": Sizes(n=40, validation=20, sites=2, test=150)},
    "joining_tables.grid": lambda: [TableSetting("breast cancer", 50, 8.0)],
    "joining_world.PUBLIC": 200,
    "joining_world.TEST": 200,
    "students.APART": 1,
    "students.EVOLUTION": EvolutionConfig(population=2, generations=1),
    "students.SETTING": Setting("digits", 60, 0, 8.0, 2, 0.3),
    "students.SIMILAR": 0.5,
    "students.SITES": (1, 4),
    "students_hold.EACH": 60,
    "students_hold.OTHERS": 100,
    "students_hold.SITES": 2,
    "students_world.SETTING": Setting("digits", 60, 0, 8.0, 2, 0.3),
    "students_world.long_enough": lambda config, *_: config,
}
"""What no option makes smaller."""


def names_in(record: Any) -> Iterator[str]:
    """All keys of a JSON value, however deep."""
    if isinstance(record, dict):
        yield from record
    if isinstance(record, dict | list):
        for x in record.values() if isinstance(record, dict) else record:
            yield from names_in(x)


def write_frauds(folder: Path) -> None:
    """A numbered table of 60 frauds and 140 others."""
    rng = stream(0, "rows")
    rows = [[i, *rng.normal(2.0 * (i < 60), 1.0, 3).round(4), int(i < 60)] for i in range(200)]
    with (folder / "creditcard_made_up.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["", "V1", "V2", "Amount", "Class"], *rows])


@pytest.mark.parametrize(
    ("command", "names"),
    [
        pytest.param(command, names, marks=mark, id=command.split()[0])
        for mark, commands in ((pytest.mark.slow, SLOW), (pytest.mark.thorough, THOROUGH))
        for command, names in commands.items()
    ],
)
def test_a_command_at_its_smallest_prints_its_figures(
    command: str,
    names: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    write_frauds(tmp_path)
    write_onnx(tmp_path / "tiny.onnx")
    for where, value in SMALLER.items():
        monkeypatch.setattr(f"benchmarks.{where}", value)
    name, *arguments = command.replace("{}", str(tmp_path)).split()
    monkeypatch.setattr(sys, "argv", [name, *arguments, "--json"])
    path = f"benchmarks.{name}"
    if (ROOT / "benchmarks" / "federation" / name).is_dir():
        path += ".__main__"
    main = importlib.import_module(path).main
    main()
    assert {*names_in(json.loads(capsys.readouterr().out))} >= {*names.split()}
