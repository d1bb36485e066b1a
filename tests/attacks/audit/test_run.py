import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audited_run import (
    WIDTH,
    audited_config,
    fabricate,
    put_release,
    received_file,
    round_record,
    untrained,
)
from torch import Tensor

from attacks.audit.records import RunAudit
from attacks.audit.run import audit_run
from attacks.audit.verdict import judge
from attacks.reconstruction.metrics import ReconstructionScore
from attacks.reconstruction.suite import SuiteConfig, attack_release
from attacks.threats.observation import Observation, WhiteBox
from dprbft.config.files import build_config, save_config, without_unread
from dprbft.messages import Release
from dprbft.paths import home, last_model_file, server_folder
from dprbft.run.sites.plan import plan_sites
from dprbft.server.records import read_rounds, write_rounds
from dprbft.simulation.federation import load_federation
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import kind_named, noise_scale
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json
from panas.training.evaluate import represent


def _tampered(run: Path, arrays: dict[str, Tensor], site: int = 0) -> None:
    put_release(run, 0, Release(site, 3, "raw_rows", None, "0" * 32, arrays).to_bytes())


@pytest.mark.thorough
def test_raw_rows_leak_and_the_record_says_so(tmp_path: Path) -> None:
    fabricate(tmp_path, audited_config("raw_rows", threats=("shadow", "leaked pairs")))
    texts: list[str] = []
    record = audit_run(tmp_path, on_progress=texts.append).to_json()
    assert read_json(tmp_path / "audit.json") == json.loads(json.dumps(record))
    assert RunAudit.from_json(record).to_json() == record
    assert {text.split(":")[0] for text in texts} == {"client-000", "client-001"}
    assert [c["name"] for c in record["clients"]] == ["client-000", "client-001"]
    assert record["scale"] == "[-1, 1]"
    assert record["summary"]["verdicts"] == {"leaks": 2}
    assert record["summary"]["best_attack_r2"] == record["summary"]["ceiling_r2"]
    for id, site in enumerate(record["clients"]):
        assert (site["id"], site["release"], site["round"]) == (id, "raw_rows", 3)
        assert (site["noise_multiplier"], site["epsilon"]) == (None, "infinity")
        assert [(a["name"], a["threat"]) for a in site["attacks"]] == [
            *((name, "white-box") for name in ("ridge", "decoder", "optimise")),
            *((f"{name} (shadow)", "shadow") for name in ("ridge", "decoder")),
            *((f"{name} (leaked pairs)", "leaked pairs") for name in ("ridge", "decoder")),
            *((f"{name} (all others)", "all others") for name in ("ridge", "decoder", "optimise")),
        ]
        r2 = {s["name"]: s["r2"] for s in site["controls"]}
        assert r2["mean image"] == 0.0
        assert r2["shuffled"] <= 0
        assert r2["unrelated image"] <= 0
        assert r2["random extractor"] > r2["same-class mean"]
        assert {"held-out class mean", "leaked regression", "others' regression"} <= r2.keys()
        assert r2[site["bar"]] >= r2["same-class mean"]
        metrics = {"mse", "r2", "psnr", "ssim", "reidentified"}
        keys = {"name", *metrics, *(f"{m}_interval" for m in metrics)}
        assert all(set(s) == keys for s in site["controls"])
        assert all(set(s) == keys | {"threat"} for s in site["attacks"])
        best = max(site["attacks"], key=lambda s: s["r2"])
        assert best["reidentified_interval"][0] > 0.1  # chance
        assert site["claim"] is None
        assert (tmp_path / "audit" / f"client-{id:03d}-images.png").stat().st_size > 1000


@pytest.mark.thorough
def test_moments_at_the_demo_s_noise_are_no_better_than_blind(tmp_path: Path) -> None:
    fabricate(tmp_path, audited_config("moments"), clients=(1,))
    record = audit_run(tmp_path).to_json()
    silent, attacked = record["clients"]
    assert (silent["verdict"], silent["release"], silent["attacks"]) == ("nothing left", None, [])
    assert attacked["verdict"] == "no better than blind", attacked["evidence"]
    assert attacked["noise_multiplier"] == 2.5
    assert 0 < attacked["epsilon"] < 8
    assert "ridge on noise" in [a["name"] for a in attacked["attacks"]]
    assert record["summary"]["ceiling_r2"] > record["summary"]["best_attack_r2"]


def _resent(run: Path, **changes: Any) -> None:
    """Client 0's release with something else in it."""
    got = Release.from_bytes(received_file(run, 0).read_bytes(), width=WIDTH, classes=10)
    put_release(run, 0, replace(got, **changes).to_bytes())


def _audited(run: Path, kind: str, /, **changes: Any) -> dict[str, Any]:
    """The record of site 0, which alone has sent a release, with something else in it."""
    fabricate(run, audited_config(kind), clients=(0,))
    if changes:
        save_config(run, audited_config("moments"))
        _resent(run, **changes)
    return audit_run(run).to_json()["clients"][0]


def _drawn(noise_multiplier: float) -> dict[str, Tensor]:
    """The arrays that site 0 would have sent with other noise."""
    federation = load_federation(audited_config("moments"))
    bottom, samples = untrained(federation.facts.shape, 0), federation.clients[0].train
    source = ReproducibleNoise(np.random.default_rng(5))
    kind, rows = kind_named("moments"), Rows(represent(bottom, samples), samples.y)
    return kind.run(rows, federation.facts.classes, noise_scale(kind, noise_multiplier), source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "said", "fault"),
    [
        (1.25, 2.5, None),  # half the noise
        (0.0, None, "it states no noise, and the ledger noise multiplier 2.5"),
        (0.02, 0.02, "it states noise multiplier 0.02, and the ledger"),
        (2.5, 5.0, "it states noise multiplier 5"),  # true, but not what it says
    ],
)
def test_a_release_must_keep_what_the_ledger_was_charged_for(
    tmp_path: Path, sent: float, said: float | None, fault: str | None
) -> None:
    record = _audited(tmp_path, "moments", arrays=_drawn(sent), noise_multiplier=said)
    assert record["verdict"] == "leaks"
    assert record["claim"]["refuted"] == (sent < 2.5)
    assert record["claim"]["noise_over_claim"] == pytest.approx(sent / 2.5, rel=0.15)
    assert fault is None or fault in record["evidence"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"receipt": "f" * 32}, "its receipt is not in the ledger"),
        ({"round": 2}, "its receipt is that of round 3"),
    ],
)
def test_a_release_without_a_charge_of_its_own_leaks(
    tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    record = _audited(tmp_path, "moments", **changes)
    assert record["verdict"] == "leaks"
    assert fault in record["evidence"]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["public_rows", "class_sums"])
def test_a_charge_for_another_kind_covers_nothing(tmp_path: Path, kind: str) -> None:
    changes = {"kind": "moments", "arrays": _drawn(2.5), "noise_multiplier": 2.5}
    record = _audited(tmp_path, kind, **changes)
    assert record["verdict"] == "leaks"
    assert f"its receipt is for {kind}, which does not cover moments" in record["evidence"]


@pytest.mark.thorough
def test_the_claim_is_audited_where_nothing_can_be_attacked(tmp_path: Path) -> None:
    config = audited_config("moments")
    data = {"data": {"limit": 500, "public_limit": 4}}
    few = build_config(without_unread({**config.model_dump(), **data}))
    fabricate(tmp_path, few, clients=(0,))
    assert audit_run(tmp_path).clients[0].verdict == "inconclusive"
    got = Release.from_bytes(received_file(tmp_path, 0).read_bytes(), width=WIDTH, classes=10)
    quiet = {k: v / 2 for k, v in got.arrays.items()}
    _resent(tmp_path, arrays=quiet)
    record = audit_run(tmp_path).to_json()["clients"][0]
    assert (record["attacks"], record["claim"]["refuted"]) == ([], True)
    assert record["verdict"] == "leaks"


@pytest.mark.thorough
def test_a_release_that_is_gone_or_damaged_is_refused(tmp_path: Path) -> None:
    fabricate(tmp_path, audited_config("moments"))
    server, other = server_folder(tmp_path), round_record(2, {0: "of another round"})
    # Rounds before, and after in which the site did not take part, decide nothing.
    write_rounds(server, [other, *read_rounds(server), round_record(4, {})])
    audit_run(tmp_path)
    whole = received_file(tmp_path, 1).read_bytes()
    received_file(tmp_path, 1).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(BadInput, match="as it was sent in round 3, got a damaged"):
        audit_run(tmp_path)
    received_file(tmp_path, 1).unlink()
    with pytest.raises(BadInput, match=r"site-0001.safetensors, which was sent"):
        audit_run(tmp_path)


@pytest.mark.slow
def test_public_rows_hold_no_private_row_and_the_verdict_says_so(tmp_path: Path) -> None:
    record = _audited(tmp_path, "public_rows")
    assert record["evidence"].startswith("no private row was released, public rows only")
    assert record["verdict"] == "no better than blind", record["evidence"]
    assert "ridge on noise" not in [a["name"] for a in record["attacks"]]
    assert record["epsilon"] == 0
    got = Release.from_bytes(received_file(tmp_path, 0).read_bytes(), width=WIDTH, classes=10)
    other = {**got.arrays, "y": (got.arrays["y"] + 1) % 10}
    put_release(tmp_path, 0, replace(got, arrays=other).to_bytes())
    with pytest.raises(BadInput, match="public rows of the 400 public samples"):
        audit_run(tmp_path)


def _scores(z: Tensor, seed: int) -> tuple[list[ReconstructionScore], list[ReconstructionScore]]:
    federation = load_federation(audited_config("raw_rows"))
    private = federation.clients[0].train.take(range(len(z)))
    arrays = {"z": z, "y": private.y}
    bottom = untrained(federation.facts.shape, 0)
    seen = Observation("north", "raw_rows", arrays, None, WhiteBox(bottom), federation.public)
    reconstructions = attack_release(
        seen, private, SuiteConfig(epochs=2), rng=np.random.default_rng(seed)
    )
    return reconstructions.attacks, reconstructions.controls


@pytest.mark.thorough
def test_another_client_s_rows_are_no_leak_of_this_one() -> None:
    federation = load_federation(audited_config("raw_rows"))
    bottom = untrained(federation.facts.shape, 0)
    own = represent(bottom, federation.clients[0].train.take(range(80)))
    other = represent(bottom, federation.clients[1].train.take(range(80)))
    verdicts = [judge(*_scores(z, 0), rng=np.random.default_rng(0))[0] for z in (own, other)]
    assert verdicts == ["leaks", "no better than blind"]


@pytest.mark.parametrize(("kind", "method"), [("moments", "local"), ("none", "dprbft")])
def test_a_run_that_sends_nothing_released_nothing(tmp_path: Path, kind: str, method: str) -> None:
    config = audited_config(kind, method=method)
    plan_sites(tmp_path, config).write(tmp_path)
    save_config(tmp_path, config)
    record = audit_run(tmp_path).to_json()
    assert record["summary"]["verdicts"] == {"nothing left": 2}
    assert record["summary"]["best_attack_r2"] is None
    assert record["clients"][0]["epsilon"] is None


@pytest.mark.slow
def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    config = audited_config("raw_rows")
    federation = load_federation(config)
    y = federation.clients[0].train.y
    z = torch.rand(len(y), WIDTH)

    def refused(match: str) -> None:
        with pytest.raises(BadInput, match=match) as error:
            audit_run(tmp_path)
        assert "\n" not in str(error.value)
        assert not (tmp_path / "audit.json").exists()

    refused("run directory")
    plan_sites(tmp_path, config).write(tmp_path)
    save_config(tmp_path, config)
    refused("expected releases")
    fabricate(tmp_path, config)
    _tampered(tmp_path, {"z": z[:-1], "y": y[:-1]})
    refused("raw rows of the")
    _tampered(tmp_path, {"z": z, "y": (y + 1) % federation.facts.classes})
    refused("other labels")
    _tampered(tmp_path, {"z": z / 0, "y": y})
    refused("finite")
    _tampered(tmp_path, {"z": z[:, 1:].contiguous(), "y": y})
    refused("expected arrays")
    _tampered(tmp_path, {"z": z, "y": y}, site=1)
    refused("release of client-000, got one of another site")
    put_release(tmp_path, 0, b"not a message")
    refused("do not decode")
    _tampered(tmp_path, {"z": z, "y": y})
    last_model_file(home(tmp_path, 0)).unlink()
    refused("found no such file")
