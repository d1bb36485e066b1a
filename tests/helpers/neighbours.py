"""Neighbouring data sets of a site, and all that an observer of the wire sees of it.

A hub's requests to a site are recorded once, with honest data at the site, and then asked of sites
that differ in their data alone: same owner, same declared facts, same split key.
"""

import json
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from elsewhere import lead, opened, with_keys
from node_sites import serving
from tiny_runs import SEARCH

from dprbft.config.files import build_config, merge, without_unread
from dprbft.config.schema import RunConfig
from dprbft.engines.flower.app.client_app import carried
from dprbft.engines.frames import Answer, Request
from dprbft.engines.node.daemon import Node, Served
from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import Code, Hello, Verb
from dprbft.methods.serve import Machine, serve
from dprbft.paths import SitePaths
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site
from panas.runtime.errors import PanasError

SITE = "a"
"""The site whose data differ; others of a run keep theirs."""
CLASSES = ("w", "x", "y", "z")
"""What owners declare; nobody has "w"."""
RANGES = {"age": (0.0, 100.0), "dose": (-4.0, 4.0), "size": (0.0, 1.0)}
HEADER = (*RANGES, "label")

Rows = list[list[str]]
Pictures = tuple[np.ndarray, np.ndarray]


def rows(n: int, seed: int = 1) -> Rows:
    """Rows of a table of three classes that two columns tell apart."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        k = i % 3
        cells = (50 + 15 * rng.normal(), 1.5 * (k - 1) + 0.4 * rng.normal(), rng.random())
        made.append([*(f"{cell:.4f}" for cell in cells), CLASSES[1 + k]])
    return made


def write_rows(path: Path, table: Rows, more: Sequence[str] = ()) -> None:
    """A table as a file; of further columns, two rows each have the same text."""
    texts = [[f"p{i // 2}" for _ in more] for i in range(len(table))]
    lines = [",".join(row) for row in [[*more, *HEADER], *map(list.__add__, texts, table)]]
    path.write_text("\n".join(lines) + "\n")


def pictures(n: int, seed: int = 1, side: int = 8) -> Pictures:
    """Pictures of classes 1 to 3 of four, in [0, 1], which differ in where they are bright."""
    rng = np.random.default_rng(seed)
    y = 1 + np.arange(n) % 3
    x = rng.random((n, side, side)) * 0.4
    x[np.arange(n), 2 * y] += 0.5
    return x.astype(np.float32), y


def write_pictures(path: Path, made: Pictures) -> None:
    """Pictures as a file."""
    np.savez(path, images=made[0], labels=made[1])


N = 60
PLAIN = ["51.5000", "0.2000", "0.5000", "y"]
"""An ordinary row that no table has."""


def row_with(paths: int, cell: str) -> list[str]:
    """The ordinary row with another cell."""
    return [*PLAIN[:paths], cell, *PLAIN[paths + 1 :]]


def tables() -> dict[str, Rows]:
    """Tables of declared columns and classes, each a row from the first one, or from another."""
    base = rows(N)
    alone = [row for row in rows(3 * N) if row[3] == "x"]
    return {
        "one more": [*base, PLAIN],
        "not a number": [*base, row_with(1, "nan")],
        "one row": rows(1),
        "of extreme values, of a class nobody has": [*base, ["1e30", "-1e30", "1e90", "w"]],
        "one class": alone,
        "six rows": rows(6),
        "of extreme values": [*base, ["1e30", "-1e30", "1e90", "y"]],
        "of a class nobody has": [*base, row_with(3, "w")],
        "a duplicate": [*base, base[0]],
        "all missing": [*base, ["", "", "", "y"]],
        "of whole numbers": [*base, ["51", "1", "0", "y"]],
        "another class in one": [*alone, PLAIN],
        "one less": base[:-1],
        "one first": [PLAIN, *base],
        "two rows": rows(2),
        "three rows": rows(3),
        "four rows": rows(4),
        "five rows": rows(5),
        "seven rows": rows(7),
        "ten rows": rows(10),
        "thirteen rows": rows(13),
    }


def unreadable_tables() -> dict[str, Rows]:
    """Tables with a row, or without any, that does not fit what the owner declares."""
    base = rows(N)
    more = {
        "infinite": row_with(1, "inf"),
        "above what squares hold": row_with(1, "1e200"),
        "a text among numbers": row_with(0, "unknown"),
        "a date among numbers": row_with(0, "2020-01-31"),
        "of a class nobody declared": row_with(3, "q"),
        "of no class": row_with(3, ""),
        "of a class as a number": row_with(3, "1"),
        "of too many cells": [*PLAIN, "1"],
        "of too few cells": PLAIN[:2],
    }
    return {"no row": []} | {name: [*base, row] for name, row in more.items()}


def _more(image: np.ndarray, label: int) -> Pictures:
    x, y = pictures(N)
    return np.concatenate([x, image.astype(np.float32)]), np.append(y, label)


def images() -> dict[str, Pictures]:
    """The same of pictures in [0, 1]."""
    (x, y), one = pictures(N), pictures(1, 7)[0]
    alone = pictures(3 * N)
    kept = alone[1] == 2
    return {
        "one more": _more(one, 2),
        "white, of a class nobody has": _more(one * 0 + 1, 0),
        "one picture": (x[:1], y[:1]),
        "one class": (alone[0][kept], alone[1][kept]),
        "white": _more(one * 0 + 1, 2),
        "six pictures": (x[:6], y[:6]),
        "black": _more(one * 0, 2),
        "a duplicate": _more(x[:1], int(y[0])),
        "one less": (x[:-1], y[:-1]),
        "three pictures": (x[:3], y[:3]),
        "thirteen pictures": (x[:13], y[:13]),
    }


def unreadable_images() -> dict[str, Pictures]:
    """Pictures of which one is beyond [0, 1], or of no declared class."""
    one = pictures(1, 7)[0]
    return {
        "beyond white": _more(one * 0 + 1e30, 2),
        "infinite": _more(one * np.inf, 2),
        "not a number": _more(one * np.nan, 2),
        "of a class nobody declared": _more(one, 9),
        "of a class below zero": _more(one, -1),
    }


@dataclass(frozen=True)
class Owner:
    """How an owner keeps a site: its files by kind of data, and settings of its site.toml."""

    table: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()  # of a table, besides; each group has two rows

    def put(self, path: Path, data: Any) -> None:
        """Data as the owner's file."""
        if self.table:
            write_rows(path, data, self.columns)
        else:
            write_pictures(path, data)

    def write(self, folder: Path, data: Any, honest: Any) -> Path:
        """A site with data, whose facts were declared when it held `honest` data."""
        folder.mkdir(parents=True)
        path = folder / ("data.csv" if self.table else "data.npz")
        self.put(path, honest)
        classes = CLASSES if self.table else tuple(str(i) for i in range(len(CLASSES)))
        ranges: dict[str, Any] = {"ranges": RANGES} if self.table else {}
        given = {"epsilon": 8.0, "delta": 1e-3, "classes": classes, **ranges}
        settings = SiteSettings(name=folder.name, data=path.name, **(given | dict(self.settings)))
        facts, _ = declared(folder, settings)
        write_site(folder, settings, facts=facts, key=folder.name.encode().ljust(32))
        self.put(path, data)
        return folder


SMALL: dict[str, Any] = {
    "network": {"width": 8, "features": 8},
    "search": SEARCH,
    "training": {
        **{"epochs": 1, "warm_epochs": 1, "batch_size": 1000, "student_steps": 1},
    },
    "tuning": {"trials": 0, "batch_sizes": [1000]},
    "federation": {"baselines": False, "rounds": 2},
    "privacy": {"epsilon": 4.0, "delta": 1e-3},
}


@dataclass(frozen=True)
class Trial:
    """A run of a method, and the owner whose data it is tried on."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    owner: Owner = Owner()
    others: int = 1  # sites beside the one
    noised: tuple[str, ...] = ()  # verbs whose answer's size follows from noise or a signature
    public: int = 40  # public samples; 0 for none

    def data(self, n: int = N, seed: int = 1) -> Any:
        """Honest data of a site."""
        return rows(n, seed) if self.owner.table else pictures(n, seed)

    @property
    def in_sum(self) -> bool:
        """Whether the server sees sums alone."""
        return self.settings.get("privacy", {}).get("trust") == "secure-sum"

    @property
    def names(self) -> tuple[str, ...]:
        """All sites of the run."""
        return (SITE, *(f"b{i}" for i in range(self.others)))

    def config(self, folder: Path) -> RunConfig:
        """Settings of the run; public files are in the folder."""
        record: dict[str, Any] = {
            "method": self.method,
            "remote": list(self.names),
            "clients": len(self.names),
            "facts": str(folder / "sites" / SITE / "facts.json"),
        }
        public: dict[str, Any] = {}
        if self.public:
            path = folder / ("public.csv" if self.owner.table else "public.npz")
            Owner(table=self.owner.table).put(path, self.data(self.public, 99))
            public = {"public_data": str(path), "public_limit": self.public}
        whole = {"federation": record, "data": public}
        return build_config(without_unread(merge(SMALL, whole, dict(self.settings))))


@dataclass(frozen=True)
class Seen:
    """What crossed in answer to one request; `where` is for who mends it, and crosses nowhere."""

    verb: str
    code: str
    size: int
    known: str | None = ""  # of the message, all that is no noised number; None: all is noised
    where: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.verb}: {self.code}, {self.size} bytes" + f" [{self.where}]" * bool(
            self.where
        )


@dataclass
class Watched:
    """A carrier to nodes of this process, which keeps all requests of one site and what it saw."""

    sites: Mapping[str, Path]
    asked: list[Request] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        for name, frame in frames.items():
            request, told = Request.from_bytes(frame), list[Served]()
            answer = Node({name: self.sites[name]}, tell=told.append).answer(frame)
            if name == SITE:
                self.asked.append(request)
                self.seen.append(seen_of(request.verb, answer, told))
            if answer is not None:
                yield name, answer


def seen_of(verb: str, frame: bytes | None, told: Sequence[Served]) -> Seen:
    """What a frame shows to whoever carries it."""
    where = told[-1].reason if told else ""
    if frame is None:
        return Seen(verb, "nothing", 0, where=where)
    answer = Answer.from_bytes(frame)
    code = Code(answer.code).name
    return Seen(verb, code, len(answer.content), known_part(answer.content), where)


NUMBER = re.compile(r"[0-9a-f]{32,}")
NOISY = re.compile(r"-?\d+\.\d+(e-?\d+)?")
COUNT = re.compile(r'(samples\\*": )\d+')  # noised, and rounded: two draws may be equal


def known_part(content: bytes) -> str:
    """Of a message, what is no array, no fraction, no noised count and no number of a charge."""
    if not content:
        return ""
    try:
        end = 8 + int.from_bytes(content[:8], "little")
        text = content[8:end].decode() if end <= len(content) else content.decode()
        json.loads(text)
    except (ValueError, UnicodeDecodeError):
        text = content.decode(errors="replace")
    return " ".join(COUNT.sub(r"\1~", NOISY.sub("~", NUMBER.sub("#", text))).split())


@dataclass(frozen=True)
class Recorded:
    """An honest run: what its hub asked of the site, and where the run's public files are."""

    trial: Trial
    folder: Path
    asked: tuple[Request, ...]
    seen: tuple[Seen, ...]

    @property
    def run(self) -> Path:
        """The hub's directory of the run."""
        return self.folder / "hub" / "trial"

    def noised_as(self, again: Sequence[Seen]) -> "Recorded":
        """The same without texts that the same data do not show again: noise decides them."""
        both = zip(self.seen, again, strict=False)
        seen = tuple(replace(a, known=a.known if a.known == b.known else None) for a, b in both)
        return replace(self, seen=seen)


def recorded(folder: Path, trial: Trial) -> Recorded:
    """Lead an honest run of all sites of a trial, and keep what was asked of the one."""
    seen, asked = _led(folder, trial, trial.data())
    assert {s.code for s in seen} == {"DONE"}, "\n".join(map(str, seen))
    return Recorded(trial, folder, tuple(asked), tuple(seen))


def _led(folder: Path, trial: Trial, data: Any) -> tuple[list[Seen], list[Request]]:
    """What a hub asks, and what it sees, in a new run of a site with these data and others."""
    sites = {}
    for i, name in enumerate(trial.names):
        own = data if name == SITE else trial.data(N, 1 + i)
        sites[name] = trial.owner.write(folder / "sites" / name, own, trial.data(N, 1 + i))
    if trial.in_sum:
        with_keys(sites)
    config, watched = trial.config(folder), Watched(sites)
    run = folder / "hub" / "trial"
    run.parent.mkdir()
    try:
        lead(opened(run, config, watched, minimum=1))
    except (PanasError, SiteRefusal) as e:
        watched.seen.append(Seen("run", type(e).__name__, 0, where=str(e)))
    return watched.seen, watched.asked


def by_node(folder: Path, of: Recorded, data: Any) -> tuple[Seen, ...]:
    """What a node of a site with these data answers to the recorded requests."""
    site = of.trial.owner.write(folder / SITE, data, of.trial.data())
    told: list[Served] = []
    node = Node({SITE: site}, tell=told.append)
    return tuple(seen_of(r.verb, node.answer(r.to_bytes()), told) for r in of.asked)


def by_serve(folder: Path, of: Recorded, data: Any) -> tuple[Seen, ...]:
    """The same of the verbs alone, as worker processes of one machine serve them."""
    site = of.trial.owner.write(folder / SITE, data, of.trial.data())
    paths = SitePaths(0, SITE, site, of.run.name)
    return tuple(_served(paths, r, _local(of, r)) for r in of.asked)


def _local(of: Recorded, request: Request) -> bytes:
    """A request's message with the paths of public files in the place of their names."""
    if request.verb not in (Verb.HELLO, Verb.LEAVE):
        return request.content
    hello = Hello.from_bytes(request.content)
    paths = {
        name: str(of.run / f"{name}.safetensors")
        for name in ("public", "unlabelled", "map")
        if getattr(hello, name, "")
    }
    return replace(hello, **paths).to_bytes()


def _served(paths: SitePaths, request: Request, content: bytes) -> Seen:
    try:
        reply = serve(paths, Machine(), Verb(request.verb), content)
    except Exception as e:  # an engine ends with it, or a node says FAILED
        last = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{type(e).__name__} at {Path(last.filename).name}:{last.lineno}"
        return Seen(request.verb, "FAILED", 0, where=where)
    refusal = paths.home / "refused.json"
    where = str(json.loads(refusal.read_text())["reason"]) if refusal.exists() else ""
    text = known_part(reply.release)
    return Seen(request.verb, reply.code.name, len(reply.release), text, where)


def by_relay(folder: Path, of: Recorded, data: Any) -> tuple[Seen, ...]:
    """The same as a Flower relay at the site hands it on, from the node's socket."""
    site = of.trial.owner.write(folder / SITE, data, of.trial.data())
    path = folder / "node.sock"
    with serving(Node({SITE: site}), path):
        return tuple(_relayed(path, r) for r in of.asked)


def _relayed(path: Path, request: Request) -> Seen:
    state, answer, _ = carried(path, request.to_bytes(), 120.0)
    assert state == "answered"
    return seen_of(request.verb, answer, ())


def led_anew(folder: Path, of: Recorded, data: Any) -> tuple[Seen, ...]:
    """The same in a run that a hub leads anew: of a secure sum, whose requests depend on keys."""
    return tuple(_led(folder, of.trial, data)[0])


def differences(first: Sequence[Seen], other: Sequence[Seen], of: Trial) -> list[str]:
    """Where what is seen of one data set differs from what is seen of another."""
    said = []
    for i in range(max(len(first), len(other))):
        a, b = (seen[i] if i < len(seen) else None for seen in (first, other))
        if a is None or b is None or (a.verb, a.code) != (b.verb, b.code):
            said.append(f"{i}: {a} / {b}")
        elif a.verb in of.noised:
            if bool(a.size) != bool(b.size):
                said.append(f"{i}: {a} / {b}")
        elif a.size != b.size:
            said.append(f"{i}: {a} / {b}")
        elif None not in (a.known, b.known) and a.known != b.known:
            said.append(f"{i}: {a.verb}: {_apart(a.known or '', b.known or '')}")
    return said


def _apart(a: str, b: str) -> str:
    """Where two texts begin to differ."""
    at = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    return " / ".join(text[max(0, at - 60) : at + 40] for text in (a, b))
