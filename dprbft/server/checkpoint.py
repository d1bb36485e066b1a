"""What the server keeps: `round-NNN/`, with every release as it arrived, and the answer to them.

`latest.json` is moved to a round once its answer has reached its sites, so that a killed server
goes on with the last whole one. Releases are on disk one at a time: none of a round that died is
asked for again, and an audit attacks exactly what arrived.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dprbft.messages import Broadcast, Release, digest_of, largest_release
from dprbft.paths import latest_file, round_folder
from dprbft.server.records import RoundRecord, read_rounds, write_rounds
from panas.privacy.release.compression import Compression
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, read_json, write_bytes, write_json

BROADCAST, RELEASE, ABSENT = "broadcast.safetensors", "site-{:04d}.safetensors", "absent.json"


@dataclass(frozen=True)
class ServerFiles:
    """The server's folder; `width` and `classes` are the sizes of every message."""

    folder: Path
    width: int
    classes: int
    kind: str | None = None  # of release that sites may send; None: any
    compression: Compression = "none"  # of those releases

    def latest(self) -> int | None:
        """The number of the last whole round; 0 before the first, None before the beginning."""
        path = latest_file(self.folder)
        return int(read_json(path)["round"]) if path.exists() else None

    def begin(self, broadcast: Broadcast) -> None:
        """Keep the head before round 1."""
        self.put_broadcast(broadcast)
        self._end(0, ())

    def put_broadcast(self, broadcast: Broadcast) -> None:
        """Keep the answer of its round."""
        path = round_folder(self.folder, broadcast.round) / BROADCAST
        write_bytes(path, broadcast.to_bytes())

    def put_answer(self, broadcast: Broadcast, absent: Sequence[int]) -> None:
        """Keep the answer of a round, and before it which of its sites it was made without."""
        write_json(round_folder(self.folder, broadcast.round) / ABSENT, {"sites": list(absent)})
        self.put_broadcast(broadcast)

    def absent(self, round: int) -> list[int]:
        """The sites that the answer of a round was made without."""
        return list(read_json(round_folder(self.folder, round) / ABSENT)["sites"])

    def broadcast(self, round: int) -> Broadcast:
        """The answer of a round; BadInput if it is damaged."""
        path = round_folder(self.folder, round) / BROADCAST
        content = read_bytes(path)
        texts = [r.broadcast for r in read_rounds(self.folder) if r.round == round]
        if texts and digest_of(content) != texts[0]:
            raise BadInput(f"expected {path} as it was written, got a damaged file; start anew")
        try:
            return Broadcast.from_bytes(content, width=self.width, classes=self.classes)
        except BadInput as e:
            raise BadInput(f"{path}: {e}; start a new run") from e

    def answered(self, round: int) -> bool:
        """Whether the server has computed the answer of a round."""
        return (round_folder(self.folder, round) / BROADCAST).exists()

    def put_release(self, round: int, site: int, content: bytes) -> None:
        """Keep a site's release, if it is one; BadInput, and nothing kept, if it is not.

        Args:
            round: from 1.
            site: number of the site that sent it.
            content: untrusted; its size is looked at before it is decoded.
        """
        most = largest_release(self.kind, width=self.width, classes=self.classes)
        if len(content) > most:
            raise BadInput(f"expected a release of at most {most} bytes, got {len(content)}")
        release = Release.from_bytes(content, width=self.width, classes=self.classes)
        if self.kind not in (None, release.kind):
            raise BadInput(f"expected a release of {self.kind}, got {release.kind}")
        if release.compression != self.compression:
            raise BadInput(
                f"expected a release with compression {self.compression}, got one with "
                f"{release.compression}"
            )
        if (release.site, release.round) != (site, round):
            raise BadInput(
                f"expected a release of site {site} in round {round}, got one of site "
                f"{release.site} in round {release.round}"
            )
        write_bytes(self._release(round, site), content)

    def has_release(self, round: int, site: int) -> bool:
        """Whether a site's release has arrived."""
        return self._release(round, site).exists()

    def releases(self, round: int, sites: Sequence[int]) -> Iterator[Release]:
        """What the sites released in a round, one at a time."""
        for site in sites:
            path = self._release(round, site)
            if path.exists():
                size = {"width": self.width, "classes": self.classes}
                try:
                    release = Release.from_bytes(path.read_bytes(), **size)
                except BadInput as e:
                    raise BadInput(f"{path}: {e}; start a new run") from e
                yield release

    def end(self, record: RoundRecord) -> None:
        """Note that a round is whole."""
        records = [r for r in read_rounds(self.folder) if r.round < record.round]
        self._end(record.round, (*records, record))

    def repair(self) -> None:
        """Make rounds.jsonl end with the last whole round, whatever died in between."""
        latest = self.latest() or 0
        records = [r for r in read_rounds(self.folder) if r.round <= latest]
        write_rounds(self.folder, records)

    def _end(self, round: int, records: Sequence[RoundRecord]) -> None:
        # The line first: a round that is whole has its line.
        write_rounds(self.folder, records)
        write_json(latest_file(self.folder), {"round": round})

    def _release(self, round: int, site: int) -> Path:
        return round_folder(self.folder, round) / RELEASE.format(site)


def received(server: Path, site: int) -> tuple[Path, RoundRecord] | None:
    """The last release that arrived from a site, and the record of its round; None for none."""
    for record in reversed(read_rounds(server)):
        if site in record.releases:
            return round_folder(server, record.round) / RELEASE.format(site), record
    return None
