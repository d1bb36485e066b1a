from pathlib import Path

import pytest
from audited_run import (
    audited_config,
    fabricate,
    put_release,
    received_file,
)

import attacks
from attacks.audit import run as audit
from attacks.audit.records import ClientAudit, DrawnAudit
from attacks.audit.resume import AuditCheckpoint, digest
from attacks.audit.run import audit_run


@pytest.mark.thorough
def test_an_interrupted_audit_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fabricate(tmp_path, audited_config("raw_rows"))
    asked: list[int] = []
    whole = audit._audit_client

    def interrupted(work: audit._Work, id: int) -> DrawnAudit:
        asked.append(id)
        if asked == [0, 1]:
            raise KeyboardInterrupt
        return whole(work, id)

    monkeypatch.setattr(audit, "_audit_client", interrupted)
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
    about = ClientAudit(
        id=0, name="north", epsilon=None, verdict="nothing left", evidence="nothing"
    )
    found = DrawnAudit(about, {"images": b"png"})
    AuditCheckpoint(tmp_path / "kept", now).keep(found)
    assert AuditCheckpoint(tmp_path / "kept", now).known(0) == found
    assert AuditCheckpoint(tmp_path / "kept", digest(files, {"shadows": 2})).known(0) is None
    put_release(tmp_path, 0, b"another release")
    assert AuditCheckpoint(tmp_path / "kept", digest(files, {"shadows": 0})).known(0) is None
    kept = tmp_path / "kept" / "client-000.safetensors"
    kept.write_bytes(kept.read_bytes()[:-1])
    assert AuditCheckpoint(tmp_path / "kept", now).known(0) is None


def test_every_attack_decides_what_an_audit_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabricate(tmp_path, audited_config("raw_rows"), clients=(0,))
    monkeypatch.setattr(audit, "digest", lambda files, settings: "\n".join(map(str, files)))
    named = set(audit._about(tmp_path, 0).splitlines())
    assert str(received_file(tmp_path, 0)) in named
    assert named >= {str(p) for p in Path(attacks.__file__).parent.rglob("*.py")}
