"""A secure sum between nodes: their keys sign what opens it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from elsewhere import NAMES, InThread, charges, hub_config, make_sites, opened, with_keys

from dprbft.config.files import build_config, without_unread
from dprbft.config.schema import RunConfig
from dprbft.engines.frames import Request
from dprbft.messages import Hello
from dprbft.paths import SitePaths, refusal_file, server_folder, sum_folder
from dprbft.run.directory import Ground, OpenRun
from dprbft.run.stages import begin, exchange_stage
from dprbft.secure_sum.keys import ANNOUNCED_BYTES
from dprbft.server.sum_checkpoint import SumFiles
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json


def summed(folder: Path) -> RunConfig:
    config = hub_config(folder).model_dump()
    config["privacy"] |= {"trust": "secure-sum"}
    config["federation"] |= {"secure_minimum": 3}
    return build_config(without_unread(config))


def begun(folder: Path, carrier: InThread) -> OpenRun:
    """A run whose sites have been greeted."""
    run = folder / "hub" / "trial"
    to_run = opened(run, summed(folder), carrier, minimum=3)
    begin(to_run, Ground.of(run))
    return to_run


@pytest.mark.slow
def test_nodes_sign_their_keys_and_the_list_of_survivors(tmp_path: Path):
    with_keys(sites := make_sites(tmp_path))
    carrier = InThread(sites)
    exchange_stage(opened_run := begun(tmp_path, carrier))
    run = opened_run.folder
    kept = SumFiles(server_folder(run)).opened()
    assert kept is not None
    assert all(len(k) > ANNOUNCED_BYTES for k in kept.keys.values())
    assert (sum_folder(server_folder(run), 1) / "sum.safetensors").is_file()
    unmasked = [name for name, verb in carrier.asked if verb == "unmask"]
    assert sorted(unmasked) == sorted(NAMES * 2)  # to sign, then to open
    assert [len(c) for c in charges(sites).values()] == [2, 2, 2]


@dataclass
class TwoFaced(InThread):
    """A hub that tells the last site other settings than the others."""

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        changed = dict(frames)
        request = Request.from_bytes(frames[NAMES[-1]]) if NAMES[-1] in frames else None
        if request and request.verb == "hello":
            hello = Hello.from_bytes(request.content)
            config = RunConfig.model_validate_json(hello.config).model_copy(update={"seed": 1})
            hello = replace(hello, config=config.model_dump_json())
            changed[NAMES[-1]] = replace(request, content=hello.to_bytes()).to_bytes()
        yield from super().carry(changed, seconds, cap)


@pytest.mark.slow
def test_sites_that_were_told_different_things_send_nothing(tmp_path: Path):
    with_keys(sites := make_sites(tmp_path))
    to_run = begun(tmp_path, TwoFaced(sites))
    with pytest.raises(BadInput):
        exchange_stage(to_run)
    assert not list(sum_folder(server_folder(to_run.folder), 1).glob("masked-*"))
    assert "moments" not in str([c.mechanism for of in charges(sites).values() for c in of])
    home = SitePaths(0, NAMES[0], sites[NAMES[0]], "trial").home
    assert "signed by site" in read_json(refusal_file(home))["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("lacking", ["node.key", "federation.json"])
def test_a_site_without_keys_gives_nothing(lacking: str, tmp_path: Path):
    with_keys(sites := make_sites(tmp_path))
    (sites["b"] / lacking).unlink()
    to_run = begun(tmp_path, InThread(sites))
    with pytest.raises(BadInput, match="got 2 that send"):
        exchange_stage(to_run)
    assert "moments" not in str([c.mechanism for of in charges(sites).values() for c in of])
    reason = read_json(refusal_file(SitePaths(1, "b", sites["b"], "trial").home))["reason"]
    assert "panas deploy init" in reason
