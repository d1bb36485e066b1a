"""A whole run with an encoder: private pictures are encoded at their sites, and nowhere else."""

from pathlib import Path

import pytest
import torch
from tiny_encoder import OUTPUTS, write_onnx
from tiny_runs import carry_out, joined_config

import panas
from dprbft.paths import embeddings_folder, predictor_file, read_sites, server_folder
from dprbft.run.outcome import outcome
from dprbft.run.summary import summarise
from dprbft.run.view import RunView
from panas.features.axes import AxesMap
from panas.features.encoders.cache import missing
from panas.runtime.store import read_tensors
from panas.training.linear.predictor import Predictor


def digests(folder: Path) -> set[bytes]:
    files = folder.rglob("*.safetensors")
    kept = [read_tensors(file)[0] for file in files]
    return {bytes(row) for tensors in kept for row in tensors["digests"].numpy()}


@pytest.mark.slow
def test_a_run_keeps_private_embeddings_at_home_and_predicts_with_the_encoder(tmp_path: Path):
    encoder, run = write_onnx(tmp_path / "tiny.onnx"), tmp_path / "run"
    config = joined_config(network={"encoder": str(encoder)}, federation={"baselines": True})
    carry_out(run, config)
    view, sites = RunView(run, config), read_sites(run)
    assert isinstance(view.feature_map, AxesMap)
    assert view.feature_map.outputs == OUTPUTS
    own = [digests(embeddings_folder(paths.folder)) for paths in sites]
    inside = {paths.folder for paths in sites}
    elsewhere = set[bytes]()
    for folder in run.rglob(embeddings_folder(run).name):
        if folder.parent not in inside:
            elsewhere |= digests(folder)
    assert len(elsewhere) > 60  # public samples, and pictures made of them
    assert all(len(each) > 30 and not each & elsewhere for each in own)
    assert not list(server_folder(run).rglob("*embeddings*"))
    for paths in sites:
        data = view.site(paths.index)
        assert data.train.embeddings is None
        encoded = view.encoded_site(paths.index)
        assert view.facts.encoder is not None
        place = embeddings_folder(paths.folder)
        assert missing(data.test, view.facts.encoder, place) == 0
        predictor = panas.load(predictor_file(paths.home), encoder=str(encoder))
        assert isinstance(predictor, Predictor)
        torch.testing.assert_close(
            predictor.probabilities_of(encoded.test), predictor.probabilities_of(data.test)
        )
    summary = summarise(run, config)
    for client in summary["clients"]:
        assert {rival["sees"] for rival in client["baselines"]["rivals"]} == {"embeddings"}
    assert "a regression of public embeddings" in outcome(summary).means
