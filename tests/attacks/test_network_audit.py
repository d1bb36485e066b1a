import numpy as np
import pytest
import torch

from attacks.network_audit import audit_network
from panas.data.dataset import Samples
from panas.errors import BadInput


def _samples(n: int, seed: int) -> Samples:
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(256, (n, 1, 4, 4), generator=g).to(torch.uint8)
    return Samples(x, torch.randint(3, (n,), generator=g), 3)


def _remembering(members: Samples, sure: float):
    """A network that answers members with their label, and others with nothing."""
    known = {x.numpy().tobytes(): int(y) for x, y in zip(members.inputs(), members.y, strict=True)}

    def query(x: torch.Tensor) -> torch.Tensor:
        answers = torch.zeros(len(x), 3)
        for i, image in enumerate(x):
            if (label := known.get(image.numpy().tobytes())) is not None:
                answers[i, label] = sure
        return answers + 0.01 * x.mean(dim=(1, 2, 3))[:, None] * torch.tensor([1.0, -1.0, 0.0])

    return query


def test_a_network_that_remembers_leaks() -> None:
    members, others = _samples(60, 0), _samples(60, 1)
    rng = np.random.default_rng(0)
    found = audit_network(_remembering(members, 5.0), members, others, rng=rng, claim=1.0)
    assert found.verdict == "leaks", found.evidence
    assert found.accuracy[0] == 1.0
    record = found.to_json()
    assert record["attacks"][0]["name"] == "loss threshold"
    assert record["attacks"][0]["auc"] > 0.95


def test_a_network_that_never_saw_anyone_does_not() -> None:
    members, others = _samples(400, 0), _samples(400, 1)
    query = _remembering(_samples(400, 2), 5.0)
    found = audit_network(query, members, others, rng=np.random.default_rng(0), claim=1.0)
    assert found.verdict == "no better than blind", found.evidence


def test_few_samples_give_no_verdict() -> None:
    members, others = _samples(10, 0), _samples(10, 1)
    query = _remembering(members, 5.0)
    found = audit_network(query, members, others, rng=np.random.default_rng(0))
    assert found.verdict == "inconclusive"


def test_shadows_without_samples_are_refused() -> None:
    members, others = _samples(30, 0), _samples(30, 1)
    query = _remembering(members, 5.0)
    with pytest.raises(BadInput, match="public samples and a training"):
        audit_network(query, members, others, rng=np.random.default_rng(0), shadows=4)
