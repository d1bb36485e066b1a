"""What the server keeps of a secure sum, so that one that died goes on with the same.

`opened.json` has the plan, the keys and the encrypted shares: from there on vectors are masked.
`survivors.json` has whose sum is opened: it is there before anybody is asked to open it, and stays.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dprbft.paths import arrived_file, sum_folder
from dprbft.secure_sum.answer import UnmaskAnswer, read_answer
from dprbft.secure_sum.holders import neighbours
from dprbft.secure_sum.keys import read_keys
from dprbft.secure_sum.messages import Parts, SumPlan
from dprbft.secure_sum.release import ROUND
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, read_json, write_json

SUM = "sum.safetensors"
"""The sum as it was opened, in the folder of `SumFiles`."""


@dataclass(frozen=True)
class Opened:
    """A sum whose sites have shared their secrets: from here on vectors are masked."""

    plan: SumPlan
    present: tuple[int, ...]  # all that take part in the round, with those that send nothing
    keys: Mapping[int, bytes]
    shares: Mapping[int, Mapping[int, bytes]]  # encrypted, by sender and receiver

    @cached_property
    def near(self) -> Mapping[int, set[int]]:
        """The neighbours of each site that announced keys."""
        session = self.plan.session
        return neighbours(session, read_keys(session, self.keys))

    def told(self, site: int) -> bytes:
        """What a site is sent of keys: its neighbours' and its own."""
        return Parts({i: self.keys[i] for i in {site, *self.near[site]}}).to_bytes()

    def received(self, site: int) -> bytes:
        """What a site is sent of its neighbours' shares: nothing of one that has dealt it none."""
        near = self.near[site] & self.shares.keys()
        return Parts({i: self.shares[i].get(site, b"") for i in near}).to_bytes()


@dataclass(frozen=True)
class SumFiles:
    """What the server keeps of one sum."""

    server: Path

    @property
    def folder(self) -> Path:
        """Its folder."""
        return sum_folder(self.server, ROUND)

    def opened(self) -> Opened | None:
        """The sum that goes on; None before its sites have shared their secrets."""
        path = self.folder / "opened.json"
        if not path.exists():
            return None
        r = read_json(path)
        keys, shares = (Parts.from_bytes(r[name].encode()).parts for name in ("keys", "shares"))
        return Opened(
            SumPlan.from_bytes(bytes.fromhex(r["plan"])),
            tuple(r["there"]),
            keys,
            {i: Parts.from_bytes(content).parts for i, content in shares.items()},
        )

    def open(self, opened: Opened) -> None:
        """Keep a sum that goes on."""
        shares = {i: Parts(of).to_bytes() for i, of in opened.shares.items()}
        record = {
            "plan": opened.plan.to_bytes().hex(),
            "there": list(opened.present),
            "keys": Parts(opened.keys).to_bytes().decode(),
            "shares": Parts(shares).to_bytes().decode(),
        }
        write_json(self.folder / "opened.json", record)

    def masked(self, site: int) -> Path:
        """Where a site's masked message is."""
        return arrived_file(self.server, ROUND, site)

    def answer(self, site: int) -> Path:
        """Where a site's answer to the unmasking is."""
        return self.folder / f"unmask-{site:04d}.bin"

    def answers(self, opened: Opened, survivors: tuple[int, ...]) -> dict[int, UnmaskAnswer]:
        """The right answers that have come; a file that is damaged counts as none."""
        session, result = opened.plan.session, dict[int, UnmaskAnswer]()
        for site in survivors:
            if (path := self.answer(site)).exists():
                with contextlib.suppress(BadInput):
                    content = read_bytes(path)
                    result[site] = read_answer(session, content, site, opened.shares, survivors)
        return result

    def survivors(self) -> tuple[int, ...] | None:
        """Whose sum is opened; None before that is known."""
        path = self.folder / "survivors.json"
        return tuple(read_json(path)["sites"]) if path.exists() else None

    def close(self, survivors: Iterable[int], absent: Iterable[int]) -> None:
        """Note whose sum is opened, for good, and who did not answer."""
        record = {"sites": sorted(survivors), "absent": sorted(absent)}
        write_json(self.folder / "survivors.json", record)

    def absent(self) -> set[int]:
        """Who took part, and did not answer when asked for a masked vector."""
        return set(read_json(self.folder / "survivors.json")["absent"])
