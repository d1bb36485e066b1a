"""A reply that is no release costs its site the round, and nobody else anything."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dprbft.config.schema import RunConfig
from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import LARGEST, Broadcast, Code, Release, Reply, Verb, largest_release
from dprbft.server.checkpoint import ServerFiles
from dprbft.server.events import Event, SiteAbsent
from dprbft.server.records import read_rounds
from dprbft.server.rounds import Server
from panas.runtime.errors import BadInput

WIDTH, CLASSES = 4, 3
HEAD = Broadcast(0, torch.zeros(CLASSES, WIDTH), torch.zeros(CLASSES))


def release_of(site: int) -> Release:
    arrays = {
        "A": torch.ones(WIDTH * (WIDTH + 1) // 2) + site,
        "B": torch.ones(CLASSES, WIDTH) - site,
    }
    return Release(site, 1, "moments", 1.5, f"{site:032x}", arrays)


class Sites:
    """Sites that release; `change` is made to what site 1 sends."""

    def __init__(self, change: Callable[[bytes], bytes] = bytes) -> None:
        self.change = change

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        for site in messages:
            content = release_of(site).to_bytes() if verb is Verb.ROUND else b""
            yield site, Reply(Code.DONE, self.change(content) if site == 1 else content)


def summed(releases: Iterable[Release], head: Broadcast, round: int, rng: object) -> Broadcast:
    return Broadcast(round, head.weight + sum(r.arrays["B"] for r in releases), head.bias)


def trained(
    folder: Path, config: RunConfig, sites: Sites, asked: Iterable[int] = (0, 1)
) -> tuple[ServerFiles, list[Event]]:
    files, heard = ServerFiles(folder, WIDTH, CLASSES, "moments"), list[Event]()
    Server(
        files=files,
        config=config,
        sites=frozenset(asked),
        engine=sites,
        answer=summed,
        first=HEAD,
        listener=heard.append,
    ).train()
    return files, heard


OTHER = release_of(0).to_bytes()
BAD = {
    "cut off": lambda c: c[:-1],
    "too long": lambda c: c + bytes(largest_release("moments", width=WIDTH, classes=CLASSES)),
    "of another site": lambda c: OTHER,
    "of another kind": lambda c: replace(
        release_of(1),
        kind="class_sums",
        arrays={"S": torch.ones(CLASSES, WIDTH), "counts": torch.ones(CLASSES)},
    ).to_bytes(),
    "too large a number": lambda c: replace(
        release_of(1), arrays={k: 2 * LARGEST * v for k, v in release_of(1).arrays.items()}
    ).to_bytes(),
    "next to no noise": lambda c: replace(release_of(1), noise_multiplier=1e-300).to_bytes(),
}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_release_costs_its_site_alone_the_round(
    how: str, tiny: Callable[..., RunConfig], tmp_path: Path
):
    files, heard = trained(tmp_path / "a", tiny(), Sites(lambda c: c and BAD[how](c)))
    without, _ = trained(tmp_path / "b", tiny(), Sites(), (0,))
    (record,) = read_rounds(tmp_path / "a")
    assert (record.sites, record.absent, set(record.releases)) == ((0,), (1,), {0})
    assert torch.equal(files.broadcast(1).weight, without.broadcast(1).weight)
    (absent,) = [e for e in heard if isinstance(e, SiteAbsent)]
    assert absent.site == 1
    assert absent.refused.startswith("expected ")
    assert ", got" not in absent.refused


def test_a_right_release_counts(tiny: Callable[..., RunConfig], tmp_path: Path):
    files, heard = trained(tmp_path, tiny(), Sites())
    assert torch.equal(files.broadcast(1).weight, torch.ones(CLASSES, WIDTH))
    assert not [e for e in heard if isinstance(e, SiteAbsent)]


def test_where_all_replies_are_bad_there_is_no_round(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    class AllBad(Sites):
        def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
            for site in messages:
                yield site, Reply(Code.DONE, b"junk" if verb is Verb.ROUND else b"")

    with pytest.raises(SiteRefusal):
        trained(tmp_path, tiny(), AllBad())
    assert read_rounds(tmp_path) == []


def test_the_largest_release_of_a_kind_holds_every_release_of_it():
    content = release_of(2**31 - 1).to_bytes()
    assert len(content) <= largest_release("moments", width=WIDTH, classes=CLASSES)
    assert largest_release("raw_rows", width=WIDTH, classes=CLASSES) > 1e9


def test_a_release_that_is_too_large_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def never(*_: object, **__: object) -> Release:
        raise AssertionError

    monkeypatch.setattr(Release, "from_bytes", staticmethod(never))
    files = ServerFiles(tmp_path, WIDTH, CLASSES, "moments")
    with pytest.raises(BadInput, match="at most"):
        files.put_release(1, 0, bytes(1 << 20))
