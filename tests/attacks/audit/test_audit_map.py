"""The audit of a run whose sites release moments of a common map, and keep no network."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from audited_run import audited_config, fabricate, put_release, received_file, round_record

from attacks.audit.client import audit_client
from attacks.audit.records import ClientAudit
from attacks.audit.run import audit_run
from dprbft.config.files import build_config, without_unread
from dprbft.config.schema import RunConfig
from dprbft.messages import NoisedHistogram, Release
from dprbft.paths import ledger_file, map_file, places_of, server_folder
from dprbft.server.records import write_rounds
from dprbft.simulation.federation import load_federation
from panas.features.map import FeatureMap, fit_map
from panas.privacy.accounting.events import Gaussian
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.histogram import label_histogram
from panas.runtime.errors import BadInput

D = 32


def config(method: str = "joined") -> RunConfig:
    return audited_config("moments", method, threats=("shadow", "leaked pairs"))


def unattacked() -> RunConfig:
    """With too few public samples to learn an attack from, so that it takes no time."""
    few = {"data": {"limit": 500, "public_limit": 4}}
    return build_config(without_unread({**config().model_dump(), **few}))


def digits_map(of: RunConfig | None = None) -> FeatureMap:
    federation = load_federation(of or config())
    return fit_map(federation.facts, federation.public, D)


def audited(run: Path) -> ClientAudit:
    return audit_client(run, 0, shadows=0, on_progress=lambda _: None).audit


@pytest.mark.slow
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


@pytest.mark.slow
def test_half_the_noise_on_moments_of_a_map_is_found(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(0,), common=digits_map())
    sent = Release.from_bytes(received_file(tmp_path, 0).read_bytes(), width=D, classes=10)
    quiet = {name: array / 2 for name, array in sent.arrays.items()}
    put_release(tmp_path, 0, replace(sent, arrays=quiet).to_bytes())
    found = audited(tmp_path)
    assert found.verdict == "leaks"
    assert found.claim is not None
    assert found.claim.refuted


def test_a_run_in_which_nothing_left_is_no_mistake(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(), common=digits_map())
    with pytest.raises(BadInput, match="train the run first"):
        audit_run(tmp_path, workers=1)
    write_rounds(server_folder(tmp_path), [round_record(1, {})])  # nobody's release paid
    found = audit_run(tmp_path, workers=1)
    assert [c.verdict for c in found.clients] == ["nothing left"] * 2


def test_a_run_without_its_map_is_refused(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(0,), common=digits_map())
    map_file(tmp_path).unlink()
    with pytest.raises(BadInput, match=r"map\.safetensors"):
        audited(tmp_path)


def test_a_map_that_the_method_does_not_use_made_nothing(tmp_path: Path) -> None:
    fabricate(tmp_path, config("dprbft"), clients=(0,), common=digits_map())
    with pytest.raises(BadInput, match="expected arrays"):  # of the network's width
        audited(tmp_path)


def with_histogram(
    run: Path,
    of: RunConfig,
    receipt: str | None = None,
    noise: float = 1.0,
    said: float | None = None,
) -> ClientAudit:
    """The audit of a release with label counts beside it, whose noise is `noise` of its charge."""
    fabricate(run, of, clients=(0,), common=digits_map(of))
    place, train = places_of(run)[0], load_federation(of).clients[0].train
    ledger = Ledger(ledger_file(place.folder), place.run)
    sent = Release.from_bytes(received_file(run, 0).read_bytes(), width=D, classes=10)
    exact = train.histogram().float()
    counts = label_histogram(
        lambda: (train.y, None),
        classes=10,
        event=Gaussian(4.0),
        ledger=ledger,
        noise=ReproducibleNoise(np.random.default_rng(0)),
    )
    charged = next(e for e in ledger.account().entries if e.charge.mechanism == "label-histogram")
    receipt = {None: charged.id, "of the moments": sent.receipt}.get(receipt, receipt)
    assert receipt is not None
    beside = NoisedHistogram(exact + noise * (counts - exact), receipt, said)
    put_release(run, 0, replace(sent, histogram=beside).to_bytes())
    return audited(run)


@pytest.mark.slow
def test_a_histogram_beside_the_release_tells_of_labels_what_it_costs(tmp_path: Path) -> None:
    found = with_histogram(tmp_path, config())
    assert found.verdict == "no better than blind", found.evidence
    assert found.labels is not None
    assert found.labels.histogram.distance < 0.15


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("receipt", "noise", "fault"),
    [
        ("f" * 32, 1.0, "the receipt of its histogram is not in the ledger"),
        ("of the moments", 1.0, "the receipt of its histogram is for moments, which does not"),
        (None, 0.0, "the noise of its label histogram is 0.000"),
        (None, 20.0, "the noise of its label histogram is"),
        (None, 1.0, "it says of its histogram noise of 400, and the ledger 4"),
    ],
)
def test_a_histogram_must_keep_what_the_ledger_was_charged_for(
    tmp_path: Path, receipt: str | None, noise: float, fault: str
) -> None:
    said = 400.0 if "says" in fault else None
    found = with_histogram(tmp_path, unattacked(), receipt, noise, said)
    assert found.verdict == "leaks"
    assert fault in found.evidence
