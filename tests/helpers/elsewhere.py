"""Sites of a hub in this process: folders that only a carrier of frames reaches."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tiny_runs import JOINED

from dprbft.config.files import build_config, merge, without_unread
from dprbft.config.hub import HubSettings
from dprbft.config.schema import RunConfig
from dprbft.engines.frames import Request
from dprbft.engines.node.daemon import Node
from dprbft.messages import Verb
from dprbft.methods import serve as verbs
from dprbft.paths import SitePaths, ledger_file
from dprbft.run.directory import Ground, OpenRun, prepare
from dprbft.run.events import Event
from dprbft.run.hub import Wire, open_hub
from dprbft.run.stages import (
    begin,
    exchange_stage,
    search_stage,
    stages_of,
    train_stage,
    tune_stage,
)
from dprbft.secure_sum.identity import new_key, public_of
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise

NAMES = ("a", "b", "c")
EACH, PUBLIC = 90, 60
SMALL: dict[str, Any] = JOINED | {
    "data": {"public_limit": PUBLIC},
    "tuning": {"trials": 0},
    "federation": {"method": "joined", "baselines": False},
    "privacy": {"delta": 1e-3},
}


def make_sites(folder: Path) -> dict[str, Path]:
    """Three sites with different digits in folders of their own, and public ones beside them."""
    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8) * 15).astype(np.uint8)
    order = np.random.default_rng(0).permutation(len(y))

    def save(path: Path, part: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x=images[part], y=y[part])

    save(folder / "public.npz", order[:PUBLIC])
    sites = {}
    for i, name in enumerate(NAMES):
        data, first = folder / "data" / f"{name}.npz", PUBLIC + i * EACH
        save(data, order[first : first + EACH])
        settings = SiteSettings(name=name, data=str(data), epsilon=8.0, delta=1e-3)
        facts, _ = declared(folder / name, settings)
        write_site(folder / name, settings, facts=facts, key=bytes([i]) * 32)
        sites[name] = folder / name
    return sites


def hub_config(
    folder: Path, *, protected: bool = False, changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """Settings of a small run over the sites that `make_sites` made; the noise of protected
    networks takes half a minute to find."""
    told = {"federation": {"remote": list(NAMES), "clients": len(NAMES)}}
    public = {"data": {"public_data": str(folder / "public.npz")}}
    kept = {"privacy": {"network": "protected" if protected else "stays"}}
    settings = merge(SMALL, public, told, kept, dict(changes or {}))
    return build_config(without_unread(settings))


@dataclass
class InThread:
    """A carrier whose sites answer in this process, the last one first.

    `change` may exchange what site, verb and answer are: None for a site that is not there.
    """

    sites: Mapping[str, Path]
    change: Callable[[str, str, bytes], bytes | None] = lambda site, verb, answer: answer
    before: Callable[[str, str], bool] = lambda site, verb: True  # whether it hears the request
    asked: list[tuple[str, str]] = field(default_factory=list)

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        for name in reversed(list(frames)):
            verb = Request.from_bytes(frames[name]).verb
            if not self.before(name, verb):
                continue
            self.asked.append((name, verb))
            answer = Node({name: self.sites[name]}).answer(frames[name])
            if answer is not None and (changed := self.change(name, verb, answer)) is not None:
                yield name, changed


@dataclass
class Recorded:
    """A carrier that keeps every byte in both directions."""

    carrier: Any
    down: list[Request] = field(default_factory=list)
    up: list[tuple[str, bytes]] = field(default_factory=list)

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        self.down += map(Request.from_bytes, frames.values())
        for name, answer in self.carrier.carry(frames, seconds, cap):
            self.up.append((name, answer))
            yield name, answer


def opened(
    run: Path,
    config: RunConfig,
    carrier: Any,
    heard: list[Event] | None = None,
    *,
    minimum: int = 2,
    resume: bool = False,
) -> OpenRun:
    """A hub's run, made or opened again."""
    prepare(run, config, resume=resume)
    hub = HubSettings(names=config.federation.remote, minimum=minimum)
    return open_hub(
        run, config, hub, Wire(carrier), listener=(heard if heard is not None else []).append
    )


def lead(run: OpenRun) -> None:
    """All stages of a hub's run but the audit, as `panas run` leads them."""
    there = begin(run, Ground.of(run.folder))
    exchange_stage(run)
    stages = stages_of(run.config)
    if "search" in stages:
        there = search_stage(run)
    if "tune" in stages:
        tune_stage(run, there)
    train_stage(run)


def with_keys(sites: Mapping[str, Path]) -> None:
    """Give sites the keys that they sign with in a secure sum."""
    keys = {name: new_key() for name in sites}
    public = {name: public_of(key).decode() for name, key in keys.items()}
    for name, folder in sites.items():
        (folder / "node.key").write_bytes(keys[name])
        about = {"site": name, "hub": "127.0.0.1:8000", "sites": public}
        (folder / "federation.json").write_text(json.dumps(about))


def charges(sites: Mapping[str, Path]) -> dict[str, list[Charge]]:
    """What each site's ledger was charged for."""
    ledgers = {name: Ledger(ledger_file(folder)) for name, folder in sites.items()}
    return {
        name: [e.charge for e in ledger.account().entries] if ledger.path.exists() else []
        for name, ledger in ledgers.items()
    }


def repeat_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each site draw the same noise whenever it answers the same verb, in whatever order."""
    here, answer = threading.local(), verbs._work_of

    def seeded(paths: SitePaths, machine: Any, verb: Verb, content: bytes) -> Callable[[], bytes]:
        seed = [paths.index, list(Verb).index(verb)]
        here.rng = np.random.default_rng(seed)
        return answer(paths, machine, verb, content)

    def uniform(self: SystemNoise, size: int) -> Any:
        return torch.from_numpy(here.rng.random(size))

    monkeypatch.setattr(verbs, "_work_of", seeded)
    monkeypatch.setattr(SystemNoise, "uniform", uniform)
