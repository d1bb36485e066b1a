"""Two sites of one owner that differ in one row, and the requests of an honest hub's runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dprbft.config.files import build_config, merge, without_unread
from dprbft.config.hub import HubSettings
from dprbft.config.schema import RunConfig
from dprbft.engines.frames import Request
from dprbft.engines.node.daemon import Node
from dprbft.run.directory import Ground, prepare
from dprbft.run.hub import Wire, open_hub
from dprbft.run.stages import (
    begin,
    exchange_stage,
    search_stage,
    stages_of,
    train_stage,
    tune_stage,
)
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site

Kind = Literal["table", "pictures"]
KINDS: tuple[Kind, ...] = ("table", "pictures")
NAME = "north"
METHODS = ("joined", "local", "dprbft", "fedavg")
"""What the owner allows: methods whose answers have a size that no noise decides."""
CLASSES = ("w", "x", "y", "z")
RANGES = {"age": (0.0, 100.0), "dose": (-4.0, 4.0)}
TARGET = 51.5
"""A cell that the second site alone has, and that the hub guesses."""
EPSILON, PER_RUN, DELTA = 40.0, 0.5, 1e-3

SMALL: dict[str, Any] = {
    "network": {"width": 8, "features": 8},
    "search": {
        **{"population": 2, "generations": 0, "epochs": 1, "student_steps": 1},
        **{"max_blocks": 3, "widths": [16]},
    },
    "training": {"epochs": 1, "warm_epochs": 1, "batch_size": 1000, "student_steps": 1},
    "tuning": {"trials": 0, "batch_sizes": [1000]},
    "federation": {"rounds": 1, "baselines": True},
    "privacy": {"epsilon": PER_RUN, "delta": DELTA},
}
OPTIONS = {"fedavg": {"widths": [4], "hidden": 8, "batch_size": 1000}}


@dataclass(frozen=True)
class Pair:
    """Folders of two sites, each called `NAME`, and of the hub's files."""

    kind: Kind
    folder: Path

    @property
    def sites(self) -> tuple[Path, Path]:
        """The first one, and the one with a row more."""
        return self.folder / "a" / NAME, self.folder / "b" / NAME


def make_pair(folder: Path, kind: Kind, samples: int = 60) -> Pair:
    """Write both sites, as `panas site init` does, with one split key."""
    pair = Pair(kind, folder)
    for more, site in enumerate(pair.sites):
        make_site(site, kind, samples, more=bool(more))
    write_data(public_file(pair), kind, samples=12, seed=99)
    return pair


def public_file(pair: Pair) -> Path:
    """The hub's own samples."""
    return pair.folder / f"public{_suffix(pair.kind)}"


def make_site(folder: Path, kind: Kind, samples: int, *, more: bool) -> None:
    """One site; `more` adds the row that the other one lacks once the owner has declared."""
    folder.mkdir(parents=True)
    path = folder / f"data{_suffix(kind)}"
    write_data(path, kind, samples)
    classes = CLASSES if kind == "table" else tuple(str(i) for i in range(len(CLASSES)))
    depth: dict[str, Any] = {"ranges": RANGES} if kind == "table" else {"bits": 16}
    settings = SiteSettings(
        name=NAME,
        data=path.name,
        classes=classes,
        epsilon=EPSILON,
        delta=DELTA,
        epsilon_per_run=PER_RUN,
        methods=METHODS,
        releases=("moments", "class_sums", "label-histogram", "fedavg"),
        run_limit=10**6,
        **depth,
    )
    facts, _ = declared(folder, settings)
    write_site(folder, settings, facts=facts, key=bytes(32))
    write_data(path, kind, samples, more=more)


def state_of(site: Path) -> Path:
    """The state folder of a site's owner: two sites of one key are no copies of each other."""
    return site.parent / "state"


def write_data(path: Path, kind: Kind, samples: int, seed: int = 1, *, more: bool = False) -> None:
    """A file of samples of three classes; the one more is of the fourth, with a rare value."""
    rng = np.random.default_rng(seed)
    y = 1 + np.arange(samples) % 3
    if kind == "table":
        age, dose = rng.uniform(20, 80, samples), 1.5 * (y - 2) + rng.normal(size=samples) / 3
        lines = [f"{a:.4f},{b:.4f},{CLASSES[c]}" for a, b, c in zip(age, dose, y, strict=True)]
        lines += [f"{TARGET},4.0,w"] * more
        path.write_text("\n".join(["age,dose,label", *lines]) + "\n")
        return
    x = rng.integers(0, 1000, (samples, 8, 8)).astype(np.uint16)
    x[np.arange(samples), 2 * y] += 1000
    if more:  # brighter than all others
        x, y = np.concatenate([x, np.full((1, 8, 8), 40_000, np.uint16)]), np.append(y, 0)
    np.savez(path, images=x, labels=y)


def _suffix(kind: Kind) -> str:
    return ".csv" if kind == "table" else ".npz"


def config_of(pair: Pair, method: str, **changes: Any) -> RunConfig:
    """Settings of an honest hub's small run of one site."""
    settings = {
        "method": method,
        "remote": [NAME, "south"],
        "clients": 2,
        "facts": str(pair.sites[0] / "facts.json"),
        "options": OPTIONS.get(method, {}),
    }
    public = {"public_data": str(public_file(pair)), "public_limit": 12}
    if method == "joined":
        changes = merge({"privacy": {"network": "stays"}}, changes)
    return build_config(
        without_unread(merge(SMALL, {"federation": settings, "data": public}, changes))
    )


@dataclass
class Recorder:
    """A carrier to one node of this process that keeps what is asked."""

    folder: Path
    asked: list[Request]
    codes: list[int]

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        """As `Carrier.carry`; nobody else is there."""
        if frame := frames.get(NAME):
            self.asked.append(Request.from_bytes(frame))
            answer = Node({NAME: self.folder}).answer(frame)
            if answer is not None:
                yield NAME, answer


def honest(run: Path, pair: Pair, folder: Path, method: str) -> list[Request]:
    """Lead a hub's whole run of a site; returns its requests, each once.

    BadInput if the site refuses.
    """
    config, carrier = config_of(pair, method), Recorder(folder, [], [])
    prepare(run, config, resume=False)
    opened = open_hub(
        run, config, HubSettings(names=config.federation.remote, minimum=1), Wire(carrier)
    )
    there = begin(opened, Ground.of(run))
    exchange_stage(opened)
    stages = stages_of(config)
    if "search" in stages:
        there = search_stage(opened)
    if "tune" in stages:
        tune_stage(opened, there)
    train_stage(opened)
    return _first_of_each(carrier.asked)


def _first_of_each(asked: list[Request]) -> list[Request]:
    """Requests without those that repeat a verb and its message; a hello comes with its files."""
    kept: dict[tuple[str, bytes], Request] = {}
    for request in asked:
        kept.setdefault((request.verb, request.content), request)
    return list(kept.values())
