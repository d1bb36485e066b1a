"""The audit of a run whose sites release moments of a common map, and keep no network."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from audited_run import audited_config, fabricate, put_release, received_file

from attacks.audit.client import audit_client
from attacks.audit.records import ClientAudit
from dprbft.config.schema import RunConfig
from dprbft.config.sections import FederationSettings
from dprbft.messages import Release
from dprbft.paths import map_file
from dprbft.simulation.federation import load_federation
from panas.features.map import FeatureMap, fit_map
from panas.runtime.errors import BadInput

D = 32


@pytest.fixture
def joins_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As method `joined` says of itself."""
    monkeypatch.setattr(FederationSettings, "joins_first", True, raising=False)


def config() -> RunConfig:
    return audited_config("moments", threats=("shadow", "leaked pairs"))


def digits_map() -> FeatureMap:
    federation = load_federation(config())
    return fit_map(federation.facts, federation.public, D)


def audited(run: Path) -> ClientAudit:
    return audit_client(run, 0, shadows=0, on_progress=lambda _: None).audit


@pytest.mark.usefixtures("joins_first")
def test_moments_of_a_map_are_attacked_through_the_map(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(0,), common=digits_map())
    found = audited(tmp_path)
    assert [a.name for a in found.attacks] == [
        *("ridge", "decoder", "ridge on noise", "optimise"),
        *("ridge (leaked pairs)", "decoder (leaked pairs)"),  # and no shadow: the map is public
    ]
    assert found.control("ceiling") is not None
    assert found.control("random extractor") is None
    assert found.network is None
    assert found.verdict == "no better than blind", found.evidence
    assert found.claim is not None
    assert not found.claim.refuted


@pytest.mark.usefixtures("joins_first")
def test_half_the_noise_on_moments_of_a_map_is_found(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(0,), common=digits_map())
    sent = Release.from_bytes(received_file(tmp_path, 0).read_bytes(), width=D, classes=10)
    quiet = {name: array / 2 for name, array in sent.arrays.items()}
    put_release(tmp_path, 0, replace(sent, arrays=quiet).to_bytes())
    found = audited(tmp_path)
    assert found.verdict == "leaks"
    assert found.claim is not None
    assert found.claim.refuted


@pytest.mark.usefixtures("joins_first")
def test_a_run_without_its_map_is_refused(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(0,), common=digits_map())
    map_file(tmp_path).unlink()
    with pytest.raises(BadInput, match=r"map\.safetensors"):
        audited(tmp_path)


def test_a_map_that_the_method_does_not_use_made_nothing(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(0,), common=digits_map())
    with pytest.raises(BadInput, match="expected arrays"):  # of the network's width
        audited(tmp_path)
    assert torch.is_grad_enabled()
