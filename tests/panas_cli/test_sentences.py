"""The first and the last lines of a run, and its tables, from figures alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from summaries import site_of, summary_of

from attacks.audit.named import in_people
from attacks.audit.records import RunAudit, SiteAudit
from attacks.reconstruction.metrics import ReconstructionScore
from attacks.threats.controls import PUBLIC
from dprbft.site.results.seen import SeenSamples
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas_cli.text import output
from panas_cli.text.comparison import meaning
from panas_cli.text.output import show_audit
from panas_cli.text.sentences import PublicSamples, data_lines, seen_text


def facts(shape: tuple[int, int, int] = (1, 8, 8), columns: int = 0) -> Facts:
    names = tuple(str(k) for k in range(3))
    return Facts(
        class_names=names,
        shape=shape,
        dtype="float32" if columns else "uint8",
        columns=tuple(Column(name=f"c{k}") for k in range(columns)),
    )


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (
            facts(),
            "1,300 samples, 3 classes, grey pictures of 8 x 8; 2 sites of 600 to 700",
        ),
        (facts((3, 32, 32)), "colour pictures of 32 x 32"),
        (facts((5, 4, 4)), "pictures of 4 x 4 with 5 channels"),
        (facts((1, 2, 2), columns=4), "a table of 4 columns"),
    ],
)
def test_the_first_line_says_what_was_found(what: Facts, says: str):
    first, second = data_lines("digits", what, 2, [600, 700], PublicSamples(labelled=100))
    assert says in first
    assert second == "public: 100 samples, apart from those of the sites"


def test_samples_without_protection_are_told_in_capitals():
    public = PublicSamples(labelled=100, unprotected=True)
    lines = data_lines("mine.csv", facts(), 1, [600], public)
    assert lines[1] == "public: 100 samples of this data set, which have NO protection"
    assert "1 site of 600 samples" in lines[0]
    none = PublicSamples(labelled=0, unprotected=True)
    assert "no samples" in data_lines("mine.csv", facts(), 1, [600], none)[1]
    assert data_lines("a", facts(), 1000, [], none)[0].endswith("8 x 8; 1,000 sites")


@pytest.mark.parametrize("labelled", [0, 100])
def test_public_samples_without_labels_are_counted_apart(labelled: int):
    public = PublicSamples(labelled=labelled, unlabelled=2000)
    lines = data_lines("mine.csv", facts(), 1, [600], public)
    assert ("100 samples" if labelled else "no labels") in lines[1]
    assert lines[2:] == ["public, without labels: 2,000 samples"]


def test_a_comparison_says_what_its_epsilon_rests_on():
    def figures(*trust: str) -> dict[str, Any]:
        return {"columns": {"sound": {"trust": list(trust), "up_bytes": 8}}}

    rests = "at most 1 of 4 sites collude with the server or are missing"
    methods = {"joined": figures(rests), "fedavg": figures()}
    results = {"methods": methods, "rows": [], "first": "joined", "seeds": [0]}
    lines = [line for line in meaning(results) if "as long as" in line]
    assert lines == [f"epsilon of joined (sound): as long as {rests}"]


def test_an_audit_calls_a_site_by_its_name(capsys: pytest.CaptureFixture):
    audit = SiteAudit(id=0, name="north", epsilon=8.0, verdict="nothing left", evidence="it sent")
    show_audit(RunAudit(seconds=1.0, clients=(audit,)))
    assert capsys.readouterr().out.startswith("north: nothing left: it sent\n")


def test_an_audit_gives_its_reason_and_people_first_and_all_evidence_on_request(
    capsys: pytest.CaptureFixture,
):
    evidence = f"the reason; {in_people(1.0, 1e-5)}; figures"
    audit = SiteAudit(id=0, name="north", epsilon=1.0, verdict="inconclusive", evidence=evidence)
    run = RunAudit(seconds=1.0, clients=(audit,))

    def shown(run: RunAudit, *, details: bool = False) -> str:
        show_audit(run, details=details)
        return " ".join(capsys.readouterr().out.split())

    assert "the reason; by its claim, of 100 people" in shown(run)
    assert "at most 73 really took part" in shown(run)
    assert "figures" not in shown(run)
    assert "panas report RUN --details" in shown(run)
    assert "figures" in shown(run, details=True)
    leak = replace(run, clients=(replace(audit, verdict="leaks"),))
    assert "figures" in shown(leak)  # whatever fired may be anywhere in it


@pytest.mark.parametrize(
    ("runs", "ledgers", "says"),
    [
        (1, ("a",), "up to epsilon 12.16 in 1 earlier run (ledger a); together up to 14.20"),
        (3, ("a",), "up to epsilon 12.16 in 3 earlier runs (ledger a); together up to 14.20"),
        # One run of two sites: each of their ledgers counts it.
        (2, ("a", "b"), "up to epsilon 12.16 in earlier runs of 2 ledgers (one is a); together"),
    ],
)
def test_runs_are_counted_where_one_ledger_knows_them_all(
    runs: int, ledgers: tuple[str, ...], says: str
):
    text = seen_text(SeenSamples(80, 80, runs, 12.16, 14.2, ledgers))
    assert text.startswith("these samples have spent")
    assert says in text


def test_an_audit_of_a_table_speaks_of_samples(capsys: pytest.CaptureFixture):
    score = ReconstructionScore("ridge", 1.0, 0.0, 0.0, 0.0, 0.1, {}, torch.ones(3))
    audit = SiteAudit(
        id=0,
        name="north",
        release="class_sums",
        epsilon=8.0,
        attacks=(score,),
        controls=(replace(score, name=PUBLIC[0], r2=0.0),),
        verdict="inconclusive",
        evidence="few",
    )
    show_audit(RunAudit(seconds=1.0, clients=(audit,)))
    out = capsys.readouterr().out
    assert "samples" in out
    assert "image" not in out


def test_a_report_shows_the_rivals_and_what_accuracy_hides(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    output.show(tmp_path, summary_of(site_of(0.9)), json=False, details=True)
    text = capsys.readouterr().out
    for word in (
        "forest,",
        "not private",
        "0.750",
        "0.990",
        "0.912",
        "0.123 (class 2)",
        "north",
        "0.700",
    ):
        assert word in text
    named = summary_of(site_of(0.9)) | {"class_names": ["3", "7", "11"]}
    output.show(tmp_path, named, json=False, details=True)
    assert "0.123 (class 11)" in capsys.readouterr().out
    output.show(
        tmp_path, summary_of(site_of(0.9, baselines=None, metrics=None)), json=False, details=True
    )
    assert "AUROC" not in capsys.readouterr().out
