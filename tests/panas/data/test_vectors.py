"""Vectors as data: `.npz` and `.npy` of two axes, by their owners' declared facts row by row."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from panas.data.batches import batches_of
from panas.data.facts import Facts, fit, infer
from panas.data.load import DataSettings, load, load_unlabelled, unlabelled
from panas.data.sources import Reading, read, read_rows
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream

E = 7
X = np.random.default_rng(0).normal(0, 3, (40, E)).astype(np.float32)
Y = np.arange(40) % 3


def saved(folder: Path, kind: str, x: np.ndarray = X, y: np.ndarray = Y) -> Path:
    path = folder / f"data.{'npy' if kind == 'npy' else 'npz'}"
    if kind == "npy":
        np.save(path, x)
        np.save(folder / "data.labels.npy", y)
    elif kind == "x":
        np.savez(path, x=x, y=y)
    else:
        np.savez(path, embeddings=x, labels=y)
    return path


@pytest.mark.parametrize("kind", ["x", "embeddings", "npy"])
def test_arrays_of_two_axes_are_vectors_as_they_are(tmp_path: Path, kind: str):
    path = saved(tmp_path, kind)
    source = load(DataSettings(dataset=str(path), public_fraction=0.3), stream(0))
    assert source.facts.vectors
    assert source.facts.shape == (1, 1, E)
    assert len(source.public) > 3
    rows = {tuple(row) for row in X.tolist()}
    kept = torch.cat([source.private.inputs(), source.public.inputs()]).flatten(1)
    assert {tuple(row) for row in kept.tolist()} == rows
    assert Facts.from_json(source.facts.to_json()) == source.facts
    (batch,) = batches_of(str(path), source.facts)
    assert torch.equal(batch.inputs.flatten(1), torch.from_numpy(X))
    raw = unlabelled(X[0], source.facts)
    assert torch.equal(fit(raw, source.facts).inputs().flatten(), torch.from_numpy(X[0]))


def test_unlabelled_vectors_need_no_labels(tmp_path: Path):
    path = saved(tmp_path, "x")
    source = load(DataSettings(dataset=str(path)), stream(0))
    np.save(tmp_path / "more.npy", X[:5] + 1)
    settings = DataSettings(dataset=str(path), unlabelled_data=str(tmp_path / "more.npy"))
    result = load_unlabelled(settings, source.facts, source.public, stream(0))
    assert result.shape == (1, 1, E)
    assert len(result) == 5


def test_rows_of_an_owner_are_judged_one_by_one(tmp_path: Path):
    x, y = X.copy(), Y.copy()
    facts = infer(read(str(saved(tmp_path, "x")), Reading()))
    x[3, 2], x[4, 0], x[5, 1], y[6] = np.nan, np.inf, 1e30, 9
    raw = read_rows(saved(tmp_path, "x", x, y), facts)
    samples = fit(raw, facts)
    assert len(samples) == 39
    assert samples.x.isfinite().all()
    assert samples.x.abs().max() <= 1e6
    clean = np.delete(np.arange(40), [3, 4, 5, 6])
    kept = np.delete(np.arange(39), [3, 4, 5])
    assert torch.equal(samples.x[kept].flatten(1), torch.from_numpy(X[clean]))
    assert any("1 of 40 rows" in note for note in raw.notes)
    assert any("3 of 40 rows" in note for note in raw.notes)


def test_an_infinite_number_of_16_bits_is_brought_into_range(tmp_path: Path):
    facts, x = infer(read(str(saved(tmp_path, "x")), Reading())), X.astype(np.float16)
    x[4, 0] = np.inf
    samples = fit(read_rows(saved(tmp_path, "x", x), facts), facts)
    assert samples.x.abs().max() == 1e6


def test_what_is_no_vector_is_refused(tmp_path: Path):
    facts = infer(read(str(saved(tmp_path, "x")), Reading()))
    images = np.zeros((4, 1, E), np.uint8)
    np.savez(tmp_path / "images.npz", x=images, y=np.arange(4) % 3)
    of_images = read(str(tmp_path / "images.npz"), Reading())
    with pytest.raises(BadInput, match="expected vectors"):
        fit(replace(of_images, x=of_images.x.reshape(4, 1, 1, E)), facts)
    for wrong in (np.full((4, E), np.nan), np.full((4, E), 1e9), np.zeros((4, E), np.complex64)):
        np.savez(tmp_path / "wrong.npz", x=wrong, y=np.arange(4))
        with pytest.raises(BadInput):
            read(str(tmp_path / "wrong.npz"), Reading())
    np.save(tmp_path / "alone.npy", X)
    with pytest.raises(BadInput, match=r"alone\.labels\.npy"):
        read(str(tmp_path / "alone.npy"), Reading())
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(BadInput, match=r"readable \.npy"):
        read(str(tmp_path / "torn.npy"), Reading())
    with pytest.raises(BadInput, match="vectors of 7 numbers"):
        unlabelled(np.zeros(3), facts)
    with pytest.raises(BadInput, match="vectors of shape"):
        replace(facts, shape=(1, 7, 1))
