"""A secure sum, the ledger and the gate, played through by an auditor; and faults in them."""

import numpy as np
import pytest

from attacks.conformance.finding import ERROR, alarms
from attacks.replay.charges import findings_of_charges
from attacks.replay.secure import findings_of_sum
from dprbft.secure_sum import masks, party
from panas.privacy.ledger import ledger
from panas.privacy.release import gate


def found() -> set[str]:
    return {f.part for f in alarms(findings_of_sum(), ERROR)}


@pytest.mark.slow
def test_a_sound_sum_passes():
    assert found() == set()


@pytest.mark.slow
def test_masks_that_are_not_there_are_found(monkeypatch: pytest.MonkeyPatch):
    def nothing(*args: object) -> np.ndarray:
        return np.zeros(args[-1], np.uint64)  # type: ignore[call-overload]

    with monkeypatch.context() as m:
        for module in (masks, party):
            m.setattr(module, "self_mask", nothing)
        m.setattr("attacks.replay.secure.self_mask", nothing)
        m.setattr("dprbft.secure_sum.total.self_mask", nothing)
        assert any("without their pair masks" in part for part in found())
    with monkeypatch.context() as m:
        m.setattr(party.Party, "_settle", _any_list)
        assert "another list of survivors" in found()


def _any_list(party_: party.Party, survivors: object) -> None:
    party_._survivors = tuple(sorted(survivors))  # type: ignore[call-overload]


def test_what_is_charged_passes():
    assert [f for f in findings_of_charges() if f.p < 1] == []


def test_a_gate_and_a_ledger_that_let_all_pass_are_found(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as m:
        m.setattr(gate, "_check_event", lambda request, account: None)
        wrong = {f.part for f in findings_of_charges() if f.p < 1}
        assert "raw_rows as PostProcessing()" in wrong
    with monkeypatch.context() as m:
        m.setattr(ledger, "check_fits", lambda account, charge, path: None)
        wrong = {f.part for f in findings_of_charges() if f.p < 1}
        assert {"over the budget", "unprotected"} <= wrong
