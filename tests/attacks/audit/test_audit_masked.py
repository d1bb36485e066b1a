"""The audit of a run whose server learnt the sum of all sites' releases alone."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ledgers import MOMENTS
from summed_runs import begun, joined_by, summed_config

from attacks.audit.masked import _fault as fault_of
from attacks.audit.masked import _noise_of_sum
from attacks.audit.run import audit_run
from attacks.threats.observation import rows_of
from dprbft.paths import arrived_file, server_folder, sum_folder
from dprbft.run.view import RunView
from dprbft.secure_sum.messages import MaskedRelease, SumPlan
from dprbft.secure_sum.release import noise_of
from panas.privacy.accounting.events import Gaussian
from panas.privacy.ledger.charge import Charge, Entry
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds import moments
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, write_tensors

CONFIG = summed_config()


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("audited") / "r"
    joined_by(begun(run, CONFIG), run, CONFIG)
    return run


@pytest.fixture
def run(joined: Path) -> Path:
    """The same run each time, whatever a test has done to it; its ledgers know the folder."""
    kept = joined.parent / "kept"
    if not kept.exists():
        shutil.copytree(joined / "server", kept)
    shutil.rmtree(joined / "server")
    shutil.copytree(kept, joined / "server")
    return joined


@pytest.mark.slow
def test_a_masked_vector_holds_nothing_and_the_sum_keeps_its_noise(run: Path):
    audit = audit_run(run)
    for site in audit.clients:
        assert site.verdict == "masked"
        assert "what it sent is uniform; the seeds of its mask were not tested" in site.evidence
        assert "at most 1 of 4 sites collude" in site.evidence
        assert "tests of the noise and masks of what it sent found nothing" in site.evidence
        assert "claimed epsilon" in site.evidence


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.0, 0.5, 1.6, None])
def test_a_sum_with_other_noise_than_was_charged_for_is_found(run: Path, part: float | None):
    path = sum_folder(server_folder(run), 1) / "sum.safetensors"
    sums, about = read_tensors(path)
    exact = _noise_of_sum(run)
    assert not exact.wrong
    view = RunView(run, CONFIG)
    phi = view.feature_map
    assert phi is not None
    numbers = []
    for paths in view.sites:
        train = view.site(paths.index).train
        numbers.append(moments.numbers(Rows(rows_of(phi, train), train.y), 10))
    bare = moments.from_numbers(torch.stack(numbers).sum(0), 10, 0.0)
    assert bare.counts is not None
    without = {"A": bare.A, "B": bare.B, "counts": bare.counts}
    if part is None:  # noise on B alone
        changed = without | {"B": sums["B"]}
    else:
        factor = part / exact.ratio  # so that noise is this part of its claim, whatever was drawn
        changed = {name: x + factor * (sums[name] - x) for name, x in without.items()}
    write_tensors(path, changed, about)
    audit = audit_run(run)
    assert {c.verdict for c in audit.clients} == {"leaks"}
    assert "not the noise which was charged for" in audit.clients[0].evidence


@pytest.mark.slow
def test_a_vector_without_its_mask_leaks(run: Path, monkeypatch: pytest.MonkeyPatch):
    read = MaskedRelease.from_bytes

    def bare(content: bytes, size: int) -> MaskedRelease:
        message = read(content, size)
        if message.site:
            return message
        steps = np.random.default_rng(0).normal(0, 2.0**26, size).astype(np.int64)
        return replace(message, numbers=steps.view(np.uint64))

    monkeypatch.setattr(MaskedRelease, "from_bytes", bare)
    first, *others = audit_run(run).clients
    assert first.verdict == "leaks"
    assert "its masked vector is not uniform" in first.evidence
    assert "what it sent is uniform" not in first.evidence
    assert {c.verdict for c in others} == {"masked"}


def test_a_vector_that_was_edited_is_refused(run: Path):
    path = arrived_file(server_folder(run), 1, 0)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BadInput, match="damaged or edited"):
        audit_run(run)


NOISE = noise_of(SumPlan("0" * 32, 1, (0, 1, 2, 3), 1, 2.0), 8, 10)
CHARGE = replace(MOMENTS, event=NOISE.event, round=1, trust=NOISE.trust)


@pytest.mark.parametrize(
    ("charge", "told"),
    [
        (CHARGE, None),
        (None, "its receipt is not in the ledger"),
        (replace(CHARGE, mechanism="dp-sgd"), "its receipt is for dp-sgd"),
        (replace(CHARGE, round=2), "its receipt is for moments"),
        (replace(CHARGE, event=Gaussian(3.0)), "another noise, or another trust"),
        (replace(CHARGE, trust=None), "another noise, or another trust"),
    ],
)
def test_a_vector_that_no_charge_covers_is_a_fault(charge: Charge | None, told: str | None):
    message = MaskedRelease(0, 1, "a" * 32, np.zeros(3, np.uint64))
    entries = {} if charge is None else {"a" * 32: Entry("a" * 32, 0.0, charge)}
    result = fault_of(entries, message, NOISE)
    assert (result is None) == (told is None)
    assert told is None or told in str(result)
