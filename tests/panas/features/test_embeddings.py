"""Embeddings are computed once, a kill loses one chunk, and files are their owner's alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_encoder import OUTPUTS, encoder_facts, network, tiny_encoder

from panas.data.samples import Samples
from panas.features.encoders import cache
from panas.features.encoders.cache import missing, with_embeddings
from panas.features.encoders.encoder import Encoder


class Counted:
    """A network that counts the pictures it has read."""

    def __init__(self) -> None:
        self.read, self.network = 0, network()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.read += 1
        return self.network(x)


def samples_of(n: int, seed: int = 0) -> Samples:
    x = np.random.default_rng(seed).integers(0, 256, (n, 1, 8, 8), dtype=np.uint8)
    return Samples(torch.from_numpy(x), torch.arange(n) % 2, 2)


def counted() -> tuple[Counted, Encoder]:
    read = Counted()
    return read, Encoder(encoder_facts(), read)


def test_what_is_there_is_not_computed_again(tmp_path: Path):
    (read, encoder), samples = counted(), samples_of(30)
    first = with_embeddings(samples, encoder, tmp_path)
    assert read.read == 30
    assert torch.equal(first.embeddings, tiny_encoder().of(samples))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    again = with_embeddings(samples.take(order), encoder, tmp_path)
    assert read.read == 30
    assert torch.equal(again.embeddings, first.embeddings[order])
    one_more = samples_of(31)
    assert missing(one_more, encoder.facts, tmp_path) == 1
    assert torch.equal(
        with_embeddings(one_more, encoder, tmp_path).embeddings[:30], first.embeddings
    )
    assert read.read == 31
    other = Encoder(replace(encoder.facts, sha256="b" * 64), read)
    with_embeddings(samples, other, tmp_path)
    assert read.read == 61


def test_equal_pictures_are_computed_once_and_none_is_none(tmp_path: Path):
    read, encoder = counted()
    result = with_embeddings(samples_of(3).take([0, 0, 1, 0]), encoder, tmp_path)
    assert read.read == 2
    assert torch.equal(result.embeddings[0], result.embeddings[3])
    assert with_embeddings(samples_of(0), encoder, tmp_path).embeddings.shape == (0, OUTPUTS)


def test_a_kill_loses_at_most_one_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache, "CHUNK", 8)
    (read, encoder), samples = counted(), samples_of(30)

    def dies(done: int, of: int) -> None:
        assert of == 30
        if done == 21:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_embeddings(samples, encoder, tmp_path, dies)
    assert missing(samples, encoder.facts, tmp_path) == 30 - 16
    result = with_embeddings(samples, encoder, tmp_path)
    assert read.read == 21 + 14
    assert torch.equal(result.embeddings, tiny_encoder().of(samples))


def test_a_damaged_file_is_computed_again_and_files_are_private(tmp_path: Path):
    (read, encoder), samples = counted(), samples_of(5)
    with_embeddings(samples, encoder, tmp_path)
    (file,) = tmp_path.rglob("*.safetensors")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.write_bytes(file.read_bytes()[:-4] + b"abcd")
    result = with_embeddings(samples, encoder, tmp_path)
    assert read.read == 10
    assert torch.equal(result.embeddings, tiny_encoder().of(samples))


def test_embeddings_follow_their_samples(tmp_path: Path):
    from panas.data.samples import concat

    _, encoder = counted()
    samples = with_embeddings(samples_of(6), encoder, tmp_path)
    assert torch.equal(samples.take([4, 1]).embeddings, samples.embeddings[[4, 1]])
    both = concat([samples.take([0]), samples.take([5])])
    assert torch.equal(both.embeddings, samples.embeddings[[0, 5]])
    assert concat([samples, samples_of(1)]).embeddings is None
    files = replace(samples_of(2), files=np.array(["a", "b"]))
    assert concat([files, samples_of(1)]).files.tolist() == ["a", "b", ""]
    assert files.take([1]).files.tolist() == ["b"]
