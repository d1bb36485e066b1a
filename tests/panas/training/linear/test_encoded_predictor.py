"""A predictor on an encoder's vectors: its file names the encoder, and takes no other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_encoder import embedded, write_onnx

import panas
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.encoders.files import load_encoder
from panas.features.map import fit_map
from panas.runtime.errors import BadInput
from panas.training.linear.predictor import Candidates, Predictor, weighed, write_predictor

X = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)


def samples_of(facts: Facts) -> Samples:
    x = torch.from_numpy(X)[:, None]
    return Samples(x, torch.arange(len(x)) % 2, facts.classes)


def test_a_predictor_asks_for_its_encoder_and_takes_no_other(tmp_path: Path):
    path, other = write_onnx(tmp_path / "a.onnx"), write_onnx(tmp_path / "b.onnx", seed=1)
    encoder = load_encoder(str(path))
    facts = Facts(class_names=("cat", "dog"), shape=(1, 8, 8), dtype="uint8")
    facts = replace(facts, encoder=encoder.facts)
    samples = embedded(samples_of(facts), encoder)
    phi = fit_map(facts, samples, 6)
    assert torch.equal(phi.of(samples), phi(samples.embeddings))
    heads = {"shared": torch.randn(2, 6, generator=torch.Generator().manual_seed(0)).double()}
    candidates = Candidates(phi=phi, heads=heads, log_prior=torch.zeros(2))
    predictor = weighed(candidates, samples, {"facts": facts.to_json()}, worth=0.0)
    file = tmp_path / "predictor.safetensors"
    write_predictor(file, predictor)
    alone = panas.load(file)
    assert isinstance(alone, Predictor)
    assert alone.encoder_facts == encoder.facts
    with pytest.raises(BadInput, match=r"a\.onnx.*--encoder"):
        alone.predict(X)
    with pytest.raises(BadInput, match="SHA-256"):
        panas.load(file, encoder=str(other))
    ready = panas.load(file, encoder=str(path))
    assert isinstance(ready, Predictor)
    expected = predictor.probabilities_of(samples)
    torch.testing.assert_close(ready.probabilities(X), expected)
    torch.testing.assert_close(ready.probabilities_of(replace(samples, embeddings=None)), expected)
