"""Embeddings of samples, computed once: kept in files of `CHUNK` of them, by encoder and picture.

A vector is found by what its picture is made of: the bytes of its file, or of its array. So a
second run, another split or one sample more computes nothing again but what is new, and a process
that is killed loses at most one chunk.

Privacy: the folder of a site is private to its owner, as its samples are. It may be deleted: the
next run computes the embeddings again.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from panas.data.encoder import EncoderFacts
from panas.data.samples import Samples
from panas.features.encoders.encoder import Encoder, file_of
from panas.runtime.errors import BadInput
from panas.runtime.store import exclusive, read_tensors, write_tensors

CHUNK = 256  # samples of a file, at most
SECONDS = 10.0  # after which a file is written, though it is not full
DIGEST = 16  # bytes

OnProgress = Callable[[int, int], None]
"""Told how many of how many samples are through, after each."""


def with_embeddings(
    samples: Samples, encoder: Encoder, folder: Path, on_progress: OnProgress | None = None
) -> Samples:
    """The samples with their embeddings: what the folder lacks is computed, and kept there.

    Args:
        samples: with arrays, and files where they have some.
        encoder: that makes the vectors.
        folder: private where the samples are; made if it is not there.
        on_progress: told of each sample that is computed; None: nobody.

    Privacy: a vector depends on its picture alone.
    """
    keys, place = _digests(samples), folder / _name(encoder.facts)
    with exclusive(place / "lock"):
        known = _read(place, encoder.facts)
        fresh = [i for i, key in enumerate(keys) if key not in known]
        fresh = list({keys[i]: i for i in reversed(fresh)}.values())[::-1]  # equal ones once
        for at, vectors in _computed(samples, encoder, fresh, on_progress):
            _write(place, [keys[i] for i in at], vectors)
            known |= zip((keys[i] for i in at), vectors, strict=True)
    rows = [known[key] for key in keys]
    empty = torch.empty(0, encoder.facts.outputs)
    return replace(samples, embeddings=torch.stack(rows) if rows else empty)


def missing(samples: Samples, facts: EncoderFacts, folder: Path) -> int:
    """How many different samples' embeddings the folder lacks.

    Args:
        samples: with arrays, and files where they have some.
        facts: of the encoder.
        folder: as of `with_embeddings`.
    """
    known = _read(folder / _name(facts), facts)
    return len({key for key in _digests(samples) if key not in known})


def _computed(
    samples: Samples, encoder: Encoder, fresh: list[int], on_progress: OnProgress | None
) -> Iterator[tuple[list[int], Float32[Tensor, "n e"]]]:
    """Positions and vectors of a chunk after the other; memory holds one."""
    begun, at, rows = time.monotonic(), list[int](), list[Tensor]()
    for done, i in enumerate(fresh, start=1):
        at.append(i)
        rows.append(encoder.of(samples.take([i]))[0])
        if on_progress is not None:
            on_progress(done, len(fresh))
        if len(at) == CHUNK or done == len(fresh) or time.monotonic() - begun > SECONDS:
            yield at, torch.stack(rows)
            begun, at, rows = time.monotonic(), [], []


def _name(facts: EncoderFacts) -> str:
    """Stands for all that decides a vector but its picture."""
    decided = {k: v for k, v in facts.to_json().items() if k != "name"}
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:32]


def _digests(samples: Samples) -> list[bytes]:
    """What each sample's picture is made of: its file, if it has one, else its array."""
    x, results = samples.x.contiguous().numpy(), []
    for i in range(len(samples)):
        content = f"{x[i].dtype}{x[i].shape}".encode() + x[i].tobytes()
        if file := file_of(samples, i):
            with contextlib.suppress(OSError):  # it is gone: its array serves
                content = b"file" + Path(file).read_bytes()
        results.append(hashlib.blake2b(content, digest_size=DIGEST).digest())
    return results


def _read(place: Path, facts: EncoderFacts) -> dict[bytes, Float32[Tensor, "e"]]:
    """Vectors by the digests of their pictures; a damaged file counts as none."""
    known = dict[bytes, Tensor]()
    for path in sorted(place.glob("*.safetensors")) if place.is_dir() else ():
        try:
            tensors, _ = read_tensors(path)
        except BadInput:
            continue
        keys, vectors = tensors["digests"], tensors["vectors"]
        if vectors.shape == (len(keys), facts.outputs) and keys.shape == (len(keys), DIGEST):
            known |= zip(map(bytes, keys.numpy()), vectors, strict=True)
    return known


def _write(place: Path, keys: list[bytes], vectors: Float32[Tensor, "n e"]) -> None:
    name = hashlib.sha256(b"".join(keys)).hexdigest()[:16]
    digests = torch.from_numpy(np.frombuffer(b"".join(keys), np.uint8).copy())
    tensors = {"digests": digests.view(len(keys), DIGEST), "vectors": vectors}
    write_tensors(place / f"{name}.safetensors", tensors, {})
