"""Method joined: whatever dies, a run goes on, and what was whole stays as it was."""

from pathlib import Path
from typing import Any

import pytest
from deaths import SERVER, Death, carry_out, dies
from ledgers import accounts, assert_kept, contents
from tiny_runs import joined_config

from dprbft.engines.inprocess import InProcess
from dprbft.paths import model_file, predictor_file, read_sites, sent_file
from dprbft.run.directory import prepare
from dprbft.run.summary import summarise
from panas.training.checkpoint import load_network
from panas.training.linear.predictor import read_predictor

JOINED = "dprbft.methods.joined.exchange:"
STATE = "dprbft.methods.joined.state:JoinedState.write"
FINISH = "dprbft.methods.joined.finish:"
CLEAN = 3
"""Charges of a site: a histogram, a release, and DP-SGD of a residual."""
SLOW = [
    Death(JOINED + "release", after=True, lost=1),  # charged, and not kept
    Death("dprbft.methods.joined.residual:fit_residual"),  # the same charge pays for it again
    Death(FINISH + "write_predictor"),
]
THOROUGH = [
    Death(STATE, call=2),  # another site's release
    Death(SERVER + "put_answer", after=True),
    Death("dprbft.site.search:write_json", lost=1),
    Death(JOINED + "write_bytes", lost=1),  # charged, and not written
    Death(JOINED + "write_bytes", after=True),
    Death(STATE, after=True),
    Death(SERVER + "put_release"),
    Death(SERVER + "put_release", call=2, after=True),
    Death(SERVER + "end"),
    Death(STATE, call=3, after=True),
    Death("dprbft.methods.joined.student_search:evolve"),
    Death("dprbft.site.results.records:SearchRecord.write", after=True),
    Death("dprbft.site.results.records:TuningRecord.write", call=2),
    Death("dprbft.methods.joined.residual:fit_residual", after=True),
    Death("dprbft.methods.joined.networks:distil", after=True),
    Death("panas.training.common:distil", after=True),
    Death("panas.training.common:write_tensors", after=True),
    Death(FINISH + "save_network", after=True),
    Death("dprbft.site.results.report:SiteReport.write"),
    Death("dprbft.site.results.report:SiteReport.write", call=2, after=True),
]


def whole(run: Path) -> dict[Path, bytes]:
    """Releases that were kept, and records of stages: none of them is made twice."""
    kept = [*run.glob("sites/*/runs/*/releases/*"), *run.glob("sites/*/runs/*/*/best.json")]
    kept += run.glob("server/round-001/site-*")
    return {path: path.read_bytes() for path in kept}


@pytest.mark.slow
@pytest.mark.parametrize(
    "death",
    [*SLOW, *(pytest.param(d, marks=pytest.mark.thorough) for d in THOROUGH)],
    ids=str,
)
def test_a_run_that_joins_goes_on_after_a_death(death: Death, tmp_path: Path):
    run, config = tmp_path / "r", joined_config(federation={"partition": "iid"})
    prepare(run, config, resume=False)
    with dies(death):
        carry_out(run, config, InProcess(read_sites(run)))
    before, spent, made = contents(run), [a.spent() for a in accounts(run)], whole(run)
    prepare(run, config, resume=True)
    with InProcess(read_sites(run)) as engine:
        carry_out(run, config, engine)
    assert_kept(before)
    assert {path: path.read_bytes() for path in made} == made
    for account, least in zip(accounts(run), spent or [0.0, 0.0], strict=True):
        assert least <= account.spent() <= account.budget.epsilon
    lost = [len(a.entries) - CLEAN for a in accounts(run)]
    # What died is paid for again only where the budget still holds it.
    assert all(0 <= more <= death.lost or more == -1 for more in lost)
    assert min(lost) >= -(death.lost > 0)
    result: Any = summarise(run, config)
    assert result["finished"]
    for paths in read_sites(run):
        kept = read_predictor(predictor_file(paths.home)).candidates
        assert kept.network is not None
        assert kept.residual is not None or death.lost
        assert load_network(model_file(paths.home)).classes == 10
        assert sent_file(paths.home, 1).exists() or death.lost
