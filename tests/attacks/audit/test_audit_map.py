"""The audit of a run whose sites release moments of a common map; interrupted, it goes on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from audited_run import audited_config, fabricate, put_release, received_file, round_record

import attacks
from attacks.audit import run as audit
from attacks.audit.records import DrawnAudit, SiteAudit
from attacks.audit.run import AuditCheckpoint, audit_run, digest
from attacks.audit.site import audit_site
from dprbft.config.files import build_config, without_unread
from dprbft.config.schema import RunConfig
from dprbft.messages import NoisedHistogram, Release
from dprbft.paths import ledger_file, map_file, read_sites, server_folder
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


def audited(run: Path) -> SiteAudit:
    return audit_site(run, 0, shadows=0, on_progress=lambda _: None).audit


@pytest.mark.slow
def test_moments_of_a_map_are_attacked_through_the_map(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(0,), common=digits_map())
    result = audited(tmp_path)
    assert [a.name for a in result.attacks] == [
        *("ridge", "decoder", "ridge on noise", "optimise"),
        *("ridge (leaked pairs)", "decoder (leaked pairs)"),  # and no shadow: the map is public
    ]
    assert result.control("ceiling") is not None
    assert result.control("random extractor") is None
    assert result.network is None
    assert result.verdict == "no better than blind", result.evidence
    assert result.claim is not None
    assert not result.claim.refuted


@pytest.mark.slow
def test_half_the_noise_on_moments_of_a_map_is_found(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(0,), common=digits_map())
    sent = Release.from_bytes(received_file(tmp_path, 0).read_bytes(), width=D, classes=10)
    quiet = {name: array / 2 for name, array in sent.arrays.items()}
    put_release(tmp_path, 0, replace(sent, arrays=quiet).to_bytes())
    result = audited(tmp_path)
    assert result.verdict == "leaks"
    assert result.claim is not None
    assert result.claim.refuted


@pytest.mark.slow
def test_a_run_in_which_nothing_left_is_no_mistake(tmp_path: Path) -> None:
    fabricate(tmp_path, config(), clients=(), common=digits_map())
    with pytest.raises(BadInput, match="train the run first"):
        audit_run(tmp_path, workers=1)
    write_rounds(server_folder(tmp_path), [round_record(1, {})])  # nobody's release paid
    result = audit_run(tmp_path, workers=1)
    assert [c.verdict for c in result.clients] == ["nothing left"] * 2


@pytest.mark.slow
def test_a_run_without_its_map_or_with_another_method_s_is_refused(tmp_path: Path) -> None:
    fabricate(tmp_path / "own", config(), clients=(0,), common=digits_map())
    map_file(tmp_path / "own").unlink()
    with pytest.raises(BadInput, match=r"map\.safetensors"):
        audited(tmp_path / "own")
    fabricate(tmp_path / "other", config("dprbft"), clients=(0,), common=digits_map())
    with pytest.raises(BadInput, match="expected arrays"):  # of the network's width
        audited(tmp_path / "other")


def with_histogram(
    run: Path,
    of: RunConfig,
    receipt: str | None = None,
    noise: float = 1.0,
    said: float | None = None,
) -> SiteAudit:
    """The audit of a release with label counts beside it, whose noise is `noise` of its charge."""
    fabricate(run, of, clients=(0,), common=digits_map(of))
    paths, train = read_sites(run)[0], load_federation(of).clients[0].train
    ledger = Ledger(ledger_file(paths.folder), paths.run)
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
    result = with_histogram(tmp_path, config())
    assert result.verdict == "no better than blind", result.evidence
    assert result.labels is not None
    assert result.labels.histogram.distance < 0.15


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("receipt", "noise", "fault"),
    [
        ("f" * 32, 1.0, "the receipt of its histogram is not in the ledger"),
        ("of the moments", 1.0, "the receipt of its histogram is for moments, which does not"),
        (None, 0.0, "the noise of its label histogram is 0.000"),
        (None, 20.0, "the noise of its label histogram is"),
        (None, 1.0, "it states histogram noise of 400, and the ledger 4"),
    ],
)
def test_a_histogram_must_keep_what_the_ledger_was_charged_for(
    tmp_path: Path, receipt: str | None, noise: float, fault: str
) -> None:
    said = 400.0 if "states" in fault else None
    result = with_histogram(tmp_path, unattacked(), receipt, noise, said)
    assert result.verdict == "leaks"
    assert fault in result.evidence


@pytest.mark.thorough
def test_an_interrupted_audit_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fabricate(tmp_path, audited_config("raw_rows"))
    asked: list[int] = []
    whole = audit._audit_site

    def interrupted(work: audit._Work, id: int) -> DrawnAudit:
        asked.append(id)
        if asked == [0, 1]:
            raise KeyboardInterrupt
        return whole(work, id)

    monkeypatch.setattr(audit, "_audit_site", interrupted)
    with pytest.raises(KeyboardInterrupt):
        audit_run(tmp_path)
    assert not (tmp_path / "audit.json").exists()
    assert not [*(tmp_path / "audit").glob("*.png")]
    first = audit_run(tmp_path).to_json()
    assert asked == [0, 1, 1]
    assert not (tmp_path / "audit" / "unfinished").exists()
    assert [c["id"] for c in first["clients"]] == [0, 1]
    assert (tmp_path / "audit" / "client-000-images.png").is_file()
    again = audit_run(tmp_path).to_json()  # a whole audit is made anew
    assert asked == [0, 1, 1, 0, 1]
    assert first["clients"] == again["clients"]


def test_what_was_kept_of_another_audit_is_not_taken(tmp_path: Path) -> None:
    fabricate(tmp_path, audited_config("raw_rows"))
    files = [tmp_path / "config.toml", received_file(tmp_path, 0)]
    now = digest(files, {"shadows": 0})
    assert now == digest(files[::-1], {"shadows": 0})
    about = SiteAudit(id=0, name="north", epsilon=None, verdict="nothing left", evidence="nothing")
    result = DrawnAudit(about, {"images": b"png"})
    AuditCheckpoint(tmp_path / "kept", now).keep(result)
    assert AuditCheckpoint(tmp_path / "kept", now).known(0) == result
    assert AuditCheckpoint(tmp_path / "kept", digest(files, {"shadows": 2})).known(0) is None
    put_release(tmp_path, 0, b"another release")
    assert AuditCheckpoint(tmp_path / "kept", digest(files, {"shadows": 0})).known(0) is None
    kept = tmp_path / "kept" / "client-000.safetensors"
    kept.write_bytes(kept.read_bytes()[:-1])
    assert AuditCheckpoint(tmp_path / "kept", now).known(0) is None


def test_every_attack_decides_what_an_audit_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fabricate(tmp_path, audited_config("raw_rows"), clients=(0,))
    monkeypatch.setattr(audit, "digest", lambda files, settings: "\n".join(map(str, files)))
    named = set(audit._about(tmp_path, 0).splitlines())
    assert str(received_file(tmp_path, 0)) in named
    assert named >= {str(p) for p in Path(attacks.__file__).parent.rglob("*.py")}
