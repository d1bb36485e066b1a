"""What a run of method joined ends with, from figures alone."""

from pathlib import Path
from typing import Any

import pytest
from summaries import site_of, summary_of

from panas_cli.text import output
from panas_cli.text.joining import kept_lines


def site(name: str, alone: float | None, joined: float, **changes: Any) -> dict[str, Any]:
    own = {
        "name": name,
        "samples": {"validation": 48},
        "accuracy": {
            "selected": joined,
            "local_last": alone,
            "global_last": 0.612,
            "network": 0.543,
        },
        "ladder": {"majority": 0.5, "public": 0.55, "alone": alone, "joined": joined},
        "epsilon": {
            "spent": 7.99,
            "budget": 8.0,
            "release": 5.61,
            "search": 0.82,
            "training": 4.73,
        },
        "selected_round": 1,
        "shares": {"shared": 0.2, "shrunk": 0.7, "network": 0.08, "own": 0.02},
        "baselines": {"majority": 0.5, "rivals": []},
    }
    return site_of(joined, **own | changes)


def summary(*clients: dict[str, Any], public: float | None = 0.55) -> dict[str, Any]:
    def mean(step: str) -> float | None:
        results = [x for c in clients if (x := c["ladder"][step]) is not None]
        return sum(results) / len(results) if results else None

    ladder = {"majority": 0.5, "public": public}
    ladder |= {step: mean(step) for step in ("alone", "joined")}
    record = summary_of(*clients, ladder=ladder) | {"method": "joined"}
    record["accuracy"] |= {"local_last": mean("alone"), "global_last": 0.612}
    return record


def shown(tmp_path: Path, capsys: pytest.CaptureFixture, found: dict[str, Any]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        output.show(tmp_path, found, json=False, details=True)
    return capsys.readouterr().out


def test_tables_have_the_columns_of_the_method(tmp_path: Path, capsys: pytest.CaptureFixture):
    text = shown(tmp_path, capsys, summary(site("north", 0.7, 0.8)))
    table = text[: text.index("test accuracy")]
    for word in ("alone", "shared", "network", "kept", "histogram", "DP-SGD"):
        assert word in table
    for number in ("0.700", "0.612", "0.543", "0.800", "0.82", "5.61", "4.73"):
        assert number in table
    for word in ("before", "after", "round 1", "replacement", "the networks that are kept"):
        assert word not in text
    words = " ".join(text.split())
    assert "the shared head by itself 0.612, the sites' own networks 0.543" in words
    assert "what each site predicts with, on test samples" in text


def test_a_site_without_a_network_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture):
    bare = site("north", None, 0.8, genome=None, parameters=None)
    bare["accuracy"]["network"] = None
    text = shown(tmp_path, capsys, summary(bare, public=None))
    (row,) = [line for line in text.splitlines() if line.lstrip().startswith("north  -")]
    assert " ".join(row.split()) == "north - - - 0.612 - 0.800 7.99 of 8 0.82 5.61 4.73"
    assert "there are no networks" in text
    assert "joining" not in text  # nothing to compare with


def test_each_site_says_what_it_predicts_with_and_why():
    lines = kept_lines([site("north", 0.7, 0.8), site("south", 0.7, 0.8, shares={})])
    assert lines == [
        "north predicts with own and shared head 70%, shared head 20%, others 10%, "
        "weighed by its 48 validation samples"
    ]
    (line,) = kept_lines([site("north", 0.7, 0.8, samples={"validation": 0})])
    assert line.endswith("with no validation samples to weigh by")
    (line,) = kept_lines([site("north", 0.7, 0.8, samples={"validation": 1}, shares={"own": 1})])
    assert line == "north predicts with own head 100%, weighed by its 1 validation sample"


def test_models_of_all_samples_are_named_and_called_not_private(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    one = site("north", 0.7, 0.8)
    one["accuracy"] |= {"pooled": 0.837, "pooled_forest": 0.92}
    record = summary(one)
    record["accuracy"] |= {"pooled": 0.837, "pooled_forest": 0.92}
    text = shown(tmp_path, capsys, record)
    table = text[text.index("test accuracy") : text.index("all: fitted on")]
    columns = " ".join(table.split())
    assert "linear head," in columns
    assert "boosted forest," in columns
    assert columns.count("not private") == 4
    assert "0.837 0.920" in columns
    assert "left out" not in text


def test_a_run_without_a_forest_of_all_samples_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    """Of large data, or of an older version, whose summary has no such field."""
    one = site("north", 0.7, 0.8)
    one["accuracy"] |= {"pooled": 0.837}
    record = summary(one)
    record["accuracy"] |= {"pooled": 0.837}
    text = " ".join(shown(tmp_path, capsys, record).split())
    assert "boosted forest is left out of large data, and of runs of older versions" in text
    del one["accuracy"]["pooled"], record["accuracy"]["pooled"]
    text = " ".join(shown(tmp_path, capsys, record).split())
    assert "all: fitted on" not in text
