import json
from pathlib import Path

import pytest

from benchmarks import attack_table, attacks


@pytest.mark.thorough
def test_the_table_on_the_embedded_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    rows = (
        *(("network", "raw_rows", float("inf")), ("network", "raw_rows", 0.5)),
        *(("network", "moments", 8.0), ("network", "public_rows", 8.0)),
        *(("map", "raw_rows", float("inf")), ("map", "moments", 8.0)),
    )
    for module in (attack_table, attacks):
        monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(attack_table, "DECODER_EPOCHS", 6)
    arguments = ["--json", "--work", str(tmp_path), "--workers", "1"]
    attacks.main([*arguments, "--plot", str(tmp_path / "table.png")])
    record = json.loads(capsys.readouterr().out)
    wanted = {"release", "epsilon", "attack", "r2", "ceiling_r2", "class_mean_r2", "verdict"}
    assert all(set(r) >= wanted and "shown" not in r for r in record["table4"])
    names = ("made_by", "release", "epsilon")
    verdicts = {tuple(r[name] for name in names): r["verdict"] for r in record["table4"]}
    bare = [verdicts["network", "raw_rows", 0.5]]
    bare += [verdicts[made_by, "raw_rows", "infinity"] for made_by in ("network", "map")]
    assert bare == ["leaks"] * 3
    for made_by in ("network", "map"):
        assert verdicts[made_by, "moments", 8.0] == "no better than blind"
    assert record["moments_at_8_beaten"] == []
    assert (tmp_path / "table.png").stat().st_size > 10_000
    # Finished rows are read back.
    monkeypatch.setattr(attacks, "cell", lambda *_: pytest.fail("run again"))
    attacks.main(arguments)
    assert json.loads(capsys.readouterr().out) == record


def test_the_summary_says_whether_the_rows_show_what_they_should():
    def row(release: str, epsilon: float, verdict: str, decoder: float) -> dict[str, object]:
        about = {"dataset": "a set", "made_by": "network", "release": release, "epsilon": epsilon}
        return about | {"verdict": verdict, "decoder_r2": decoder, "ceiling_r2": 0.7, "shown": {}}

    paper, sound = row("raw_rows", 0.5, "leaks", 0.61), row("moments", 8.0, "inconclusive", 0.1)
    result = attacks.summary([paper, sound])
    assert result["paper_release_reaches_ceiling"]
    assert result["moments_at_8_beaten"] == ["a set, network"]  # not shown to hold is not held
    result = attacks.summary([row("raw_rows", 0.5, "leaks", 0.59), sound | {"epsilon": 5.0}])
    assert not result["paper_release_reaches_ceiling"]
    assert result["moments_at_8_beaten"] == []


def test_a_missing_data_set_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert attacks.found_sets(str(tmp_path), None) == {"digits": ""}
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" is left out")[0] for line in said] == ["fashion-mnist", "cifar10"]


@pytest.mark.slow
def test_a_plan_covers_weights_and_release_unless_rows_are_raw():
    assert attack_table.planned("raw_rows", float("inf"), 800) is None
    paper = attack_table.planned("raw_rows", 5.0, 800)
    sound = attack_table.planned("moments", 5.0, 800)
    assert paper is not None
    assert sound is not None
    assert (paper.releases, sound.releases) == (0, 1)
    assert sound.noise_multiplier > paper.noise_multiplier
