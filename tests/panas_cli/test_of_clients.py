"""What `panas search` and `panas tune` end with, for one site and for several."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dprbft.paths import home, search_file
from panas.runtime.store import read_json
from panas_cli.text.printing import print_table


@pytest.mark.slow
def test_a_search_ends_with_genome_costs_and_files(cli: Callable, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    outcome = cli("search", "--out", run, "--client", 0, "--client", "client-001", *tiny())
    assert outcome.code == 0
    assert "time: a few seconds in all" in outcome.err.splitlines()
    lines = outcome.out.splitlines()
    starts = [k for k, line in enumerate(lines) if line.startswith("client-")]
    assert [lines[k].split(":")[0] for k in starts] == ["client-000", "client-001"]
    for i, part in enumerate((lines[: starts[1]], lines[starts[1] :])):
        record = read_json(search_file(home(run, i)))
        assert part[0] == f"client-{i:03d}: {record['genome']}, fitness {record['fitness']:.3f}"
        blocks = record["genome"].split("-")
        table = part[1 : len(blocks) + 5]
        assert table[0].split() == ["layer", "output", "parameters", "MACs", "bytes"]
        rows = [line.split("  ") for line in table[1:]]
        assert [row[0] for row in rows] == [*blocks, "adapt", "head", "all"]
        numbers = [[int(n.replace(",", "")) for n in line.split()[-3:]] for line in table[1:]]
        assert [sum(column) for column in zip(*numbers[:-1], strict=True)] == numbers[-1]
        assert numbers[-1] == [record["cost"][k] for k in ("parameters", "macs", "bytes")]
        ends = {len(line) for line in table}
        assert len(ends) == 1  # aligned
        files = [Path(line.strip()) for line in part[len(blocks) + 5 :]]
        assert all(file.is_file() and file.parent.parent == home(run, i) for file in files)
        assert "best.json" in {file.name for file in files}
    assert json.loads(cli("search", "--out", run, "--client", 1, "--json").out)["clients"] == [
        read_json(search_file(home(run, 1)))
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "last"), [("genetic", "1/1"), ("random", "0/0")])
def test_a_search_counts_its_generations(
    algorithm: str, last: str, cli: Callable, tiny: Callable, tmp_path: Path
):
    options = tiny(search__algorithm=algorithm, search__generations=1)
    outcome = cli("search", "--out", tmp_path / "r", *options)
    assert outcome.code == 0
    lines = [line for line in outcome.err.splitlines() if "generation" in line]
    assert f"client-000:  generation {last}  best" in lines[-1]
    assert "left" not in lines[-1]


@pytest.mark.slow
def test_tuning_ends_with_the_setting_and_files_and_training_says_its_time(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    assert cli("search", "--out", run, *tiny()).code == 0
    outcome = cli("tune", "--out", run)
    assert outcome.code == 0
    assert "time: a few seconds in all" in outcome.err.splitlines()
    setting, *files = outcome.out.splitlines()
    assert setting == (
        "client-000: learning rate 0.5, noise multiplier the least that the budget needs, clip 1, "
        "batch 1000"
    )
    assert [Path(f.strip()).name for f in files] == ["best.json"]
    assert "time: " not in cli("search", "--out", run).err  # it has its architecture
    for stage in ("search", "tune"):
        assert cli(stage, "--out", run, "--client", 1).code == 0
    assert "time: a few seconds in all" in cli("train", "--out", run).err.splitlines()


def test_a_table_keeps_long_cells_whole(capsys: pytest.CaptureFixture):
    print_table(("layer", "output", "bytes"), [("x" * 40, "256 x 32 x 32", "9" * 12)], left=2)
    head, row = capsys.readouterr().out.splitlines()
    assert row.split("  ")[0] == "x" * 40
    assert head.endswith("bytes")
    assert len(head) == len(row)
