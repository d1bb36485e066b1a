"""The audit of a run with an encoder: the sum's noise is judged by embeddings that sites keep."""

from pathlib import Path

import pytest
from tiny_encoder import write_onnx
from tiny_runs import carry_out, joined_config

from attacks.audit.masked import masked_evidence
from dprbft.run.view import RunView


@pytest.mark.slow
def test_the_noise_of_a_sum_of_embeddings_is_as_claimed(tmp_path: Path) -> None:
    encoder = write_onnx(tmp_path / "tiny.onnx")
    config = joined_config(
        network={"encoder": str(encoder)},
        federation={"clients": 4},
        search={"population": 1},
    )
    carry_out(tmp_path / "run", config)
    evidence = masked_evidence(RunView(tmp_path / "run", config), 0)
    assert evidence is not None
    assert "of its claim" in evidence.promised
    assert evidence.fault is None
