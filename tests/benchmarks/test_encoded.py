"""Vectors that `benchmarks.encoded` writes are those of the encoder, in the order of the labels."""

from pathlib import Path

import numpy as np
import torch
from tiny_encoder import write_onnx

from benchmarks.encoded import main
from panas.data.facts import fit, infer
from panas.data.sources import Reading, read
from panas.features.encoders.files import load_encoder


def test_each_vector_is_of_its_label_s_picture(tmp_path: Path) -> None:
    encoder, out = write_onnx(tmp_path / "tiny.onnx"), tmp_path / "vectors.npz"
    options = ["--dataset", "digits", "--samples", "30", "--out", str(out)]
    main([*options, "--encoder", str(encoder)])
    raw = read("digits", Reading())
    samples = fit(raw, infer(raw))
    every = load_encoder(str(encoder)).of(samples)
    with np.load(out) as file:
        for vector, label in zip(file["x"], file["y"], strict=True):
            found = (every == torch.from_numpy(vector)).all(1)
            assert label in samples.y[found].tolist()
        assert file["x"].shape == (30, every.shape[1])
