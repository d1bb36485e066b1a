"""Whether a verb has failed on private rows is not seen, also not by what is asked afterwards."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from neighbour_trials import TRIALS
from neighbours import SITE, Owner, Recorded, recorded, seen_of

from dprbft.engines.frames import Request, new_nonce
from dprbft.engines.node.daemon import Node, Served
from dprbft.messages import Verb
from dprbft.methods.joined import site as joined
from dprbft.paths import ledger_file
from dprbft.site.site import Site
from panas.privacy.ledger.ledger import Ledger

NAME = "joined without public samples"


@pytest.fixture
def honest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setenv("PANAS_STATE", str(tmp_path / "state"))
    return recorded(
        tmp_path / "honest", replace(TRIALS[NAME], owner=Owner(settings={"epsilon": 4.0}))
    )


def probes(of: Recorded) -> Mapping[str, Request]:
    """Requests that no honest hub makes, after all that one makes."""
    by_verb = {request.verb: request for request in of.asked}
    return {
        "an answer of another round": replace(by_verb["round"], verb="finish"),
        "no broadcast": replace(by_verb["round"], content=b"x"),
        "another broadcast": replace(by_verb["round"], content=by_verb["finish"].content),
        "a verb of a sum": replace(by_verb["round"], verb="unmask", content=b""),
        "the round again": by_verb["round"],
        "ready again": by_verb["ready"],
    }


def answers(of: Recorded, site: Path) -> dict[str, tuple[str, int]]:
    """Code and size of what a node answers to an honest hub, and then to each probe."""
    told: list[Served] = []
    node, result = Node({SITE: site}, tell=told.append), {}
    asked = {f"{i}": r for i, r in enumerate(of.asked)} | dict(probes(of))
    for name, request in asked.items():
        frame = node.answer(replace(request, nonce=new_nonce()).to_bytes())
        seen = seen_of(request.verb, frame, told)
        result[name] = (seen.code, seen.size)
    return result


def breaks_down(site: Site, content: bytes) -> bytes:
    raise ZeroDivisionError(f"at {len(site.data)} samples")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["finish", "train"])
def test_a_failure_is_not_seen_by_what_is_asked_later(
    name: str, honest: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen, failed = [], list[Path]()
    for breaks in (False, True):
        folder = tmp_path / str(breaks)
        monkeypatch.setenv("PANAS_STATE", str(folder / "state"))
        site = honest.trial.owner.write(folder / SITE, honest.trial.data(), honest.trial.data())
        with monkeypatch.context() as only:
            if breaks:
                only.setitem(joined.VERBS, Verb(name), breaks_down)
            seen.append(answers(honest, site))
        failed = list(site.rglob("failed.json"))
    assert seen[0] == seen[1]
    # What a hub asked afterwards has not taken the place of why.
    (path,) = failed
    record = json.loads(path.read_text())
    assert (record["verb"], record["reason"]) == (name, "ZeroDivisionError")


@pytest.mark.slow
def test_a_backup_from_before_the_first_run_is_behind(
    honest: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PANAS_STATE", str(tmp_path / "state of the site"))
    site = honest.trial.owner.write(tmp_path / SITE, honest.trial.data(), honest.trial.data())
    shutil.copytree(site, tmp_path / "backup")
    answers(honest, site)
    spent = Ledger(ledger_file(site)).account().spent()
    assert spent > 3.9
    shutil.rmtree(site)
    shutil.copytree(tmp_path / "backup", site)
    told: list[Served] = []
    node = Node({SITE: site}, tell=told.append)
    frame = node.answer(replace(honest.asked[0], nonce=new_nonce()).to_bytes())
    assert seen_of("hello", frame, told).code == "REFUSED"
    assert "accept" in told[-1].reason
    assert not ledger_file(site).exists()
