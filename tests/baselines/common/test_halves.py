"""Two parts of a site's training samples: disjoint, whole, stable, and apart in the ledger."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import baselines.common.halves as module
from baselines.common.halves import halves, planned_halves
from panas.data.samples import Samples, content_hashes
from panas.runtime.errors import BadInput


@pytest.fixture
def site_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A site with these training samples, whose key is made up."""
    monkeypatch.setattr(module, "key_of", lambda place: b"key")
    return lambda train, remote=(): SimpleNamespace(
        paths=SimpleNamespace(name="site"),
        data=SimpleNamespace(train=train),
        budget=SimpleNamespace(private=False),
        config=SimpleNamespace(federation=SimpleNamespace(remote=remote)),
    )


def samples(n: int = 300) -> Samples:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n, 1, 2, 2), generator=g).to(torch.uint8)
    return Samples(x, torch.randint(3, (n,), generator=g), 3)


def names(part: Samples) -> set[int]:
    return set(content_hashes(part).tolist())


def test_every_sample_is_in_one_part_by_itself_alone(site_of: Callable[..., Any]) -> None:
    whole = samples()
    result = halves(site_of(whole), 0.4)
    assert names(result.weights) | names(result.architecture) == names(whole)
    assert not names(result.weights) & names(result.architecture)
    assert 0.3 < len(result.architecture) / len(whole) < 0.5
    fewer = halves(site_of(whole.take(np.arange(1, len(whole)))), 0.4)
    first = names(whole.take([0]))
    assert names(fewer.weights) == names(result.weights) - first
    assert names(fewer.architecture) == names(result.architecture) - first


def test_groups_go_together(site_of: Callable[..., Any]) -> None:
    whole = replace(samples(), groups=torch.arange(300) // 5)
    result = halves(site_of(whole))
    assert result.weights.units + result.architecture.units == whole.units == 60


def test_the_share_does_not_depend_on_the_split_before(site_of: Callable[..., Any]) -> None:
    """The samples left for training by a hash under the same key are shared out evenly still."""
    whole = samples(1000)
    upper = content_hashes(whole, b"key") > 2**63
    result = halves(site_of(whole.take(np.flatnonzero(upper))), 0.5)
    assert 0.4 < len(result.weights) / int(upper.sum()) < 0.6


def test_a_part_without_samples_is_refused(site_of: Callable[..., Any]) -> None:
    with pytest.raises(BadInput, match="for weights and for the architecture of site"):
        halves(site_of(samples(1)))


@pytest.mark.parametrize("n", [0, 1])
def test_among_machines_a_part_may_be_empty(n: int, site_of: Callable[..., Any]) -> None:
    """A refusal would tell of the number of samples; plans are for one unit at least."""
    site = site_of(samples(n), ("site", "other"))
    assert sorted(map(len, halves(site))) == [0, n]
    assert planned_halves(site) == (1, 1)
