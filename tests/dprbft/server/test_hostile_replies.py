"""Hostile replies: each is refused with a reason, and the head stays what it is without its site.

What is mutated on its way no key has signed. What a site itself sends may be another release of its
own, with other numbers, noise or receipt, which nothing can tell from a right one; all else of it
is refused.
"""

import resource
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile import CLASSES, CORPUS, RELEASE, WIDTH, corpus, mutations
from hypothesis import HealthCheck, given, settings

from dprbft.config.schema import RunConfig
from dprbft.engines.framed import AROUND, Framed
from dprbft.engines.frames import Answer, Request
from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import Broadcast, Release, Verb, largest_release
from dprbft.secure_sum.identity import new_key, public_of, sign
from dprbft.server.checkpoint import ServerFiles
from dprbft.server.events import Event, SiteAbsent
from dprbft.server.records import read_rounds
from dprbft.server.rounds import Server
from panas.runtime.errors import BadInput

NAMES = ("a", "b")
HEAD = Broadcast(0, torch.zeros(CLASSES, WIDTH), torch.zeros(CLASSES))
LARGEST = largest_release("moments", width=WIDTH, classes=CLASSES)
CAPS = {Verb.READY: 0, Verb.ROUND: LARGEST}
ROOM = 8 << 20
"""Bytes that the refusal of one message may take, at most."""


class Hostile:
    """A carrier of two sites; what site b says of a round is changed on its way."""

    def __init__(self, change: Callable[[Answer], Iterable[bytes]], key: bytes = b"") -> None:
        self.change, self.key = change, key

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        for name in reversed(list(frames)):
            request = Request.from_bytes(frames[name])
            answer = self._answer(request)
            hostile = name == "b" and request.verb == "round"
            for content in self.change(answer) if hostile else [answer.to_bytes()]:
                yield name, content

    def _answer(self, request: Request) -> Answer:
        about = (request.run, request.site, request.verb, request.nonce)
        release = replace(RELEASE, site=request.number) if request.verb == "round" else None
        answer = Answer(*about, 0, release.to_bytes() if release else b"")
        if self.key:
            answer = replace(answer, signature=sign(self.key, answer.signed_part()))
        return answer


def framed(carrier: Hostile, refused: list[tuple[str, str]], keys: object = None) -> Framed:
    return Framed(
        carrier=carrier,
        run="trial",
        names=NAMES,
        caps=CAPS,
        keys=keys,  # type: ignore[arg-type]
        refused=lambda site, verb, why: refused.append((site, str(why))),
    )


def summed(
    releases: Iterable[Release], head: Broadcast, round: int, rng: np.random.Generator
) -> Broadcast:
    return Broadcast(round, head.weight + sum(r.arrays["B"] for r in releases), head.bias)


def trained(
    folder: Path, config: RunConfig, carrier: Hostile, keys: object = None
) -> tuple[Broadcast, list[str]]:
    """The head after a round, and why replies were refused: by the engine or by the server."""
    files, heard, refused = ServerFiles(folder, WIDTH, CLASSES, "moments"), list[Event](), []
    Server(
        files=files,
        config=config,
        sites=frozenset({0, 1}),
        engine=framed(carrier, refused, keys),
        answer=summed,
        first=HEAD,
        listener=heard.append,
    ).train()
    late = [e.refused for e in heard if isinstance(e, SiteAbsent) and e.refused]
    assert not [why for why in late if ", got" in why]
    return files.broadcast(1), [*(why for _, why in refused), *late]


@pytest.mark.parametrize("name", [*CORPUS, *(f"frame: {n}" for n in ("nothing", "another run"))])
def test_a_known_attack_is_refused_and_the_head_is_that_of_the_others(
    name: str, tiny: Callable[..., RunConfig], tmp_path: Path
):
    def change(answer: Answer) -> list[bytes]:
        return [dict(corpus(answer))[name]]

    head, reasons = trained(tmp_path, tiny(), Hostile(change))
    (record,) = read_rounds(tmp_path)
    assert (record.sites, record.absent) == ((0,), (1,))
    assert torch.equal(head.weight, torch.ones(CLASSES, WIDTH))
    assert len(reasons) == 1
    assert reasons[0].startswith("expected ")


def answer_of(content: bytes | None = None) -> Answer:
    content = RELEASE.to_bytes() if content is None else content
    return Answer("trial", "b", "round", NONCE, 0, content)


def refusal(frame: bytes, request: Request, files: ServerFiles, engine: Framed) -> str:
    """Why a frame is refused; empty if it is not. Other errors than BadInput are raised."""
    try:
        content = engine._checked(request, Verb.ROUND, frame).content
        if content:
            files.put_release(1, 1, content)
    except BadInput as e:
        return str(e)
    return ""


NONCE = "f" * 32
REQUEST = Request("trial", "b", 1, "round", NONCE, b"")


@pytest.mark.parametrize("name", [name for name, _ in corpus(answer_of())])
def test_a_known_attack_takes_little_memory_to_refuse(name: str, tmp_path: Path):
    frame = dict(corpus(answer_of()))[name]
    files, engine = ServerFiles(tmp_path, WIDTH, CLASSES, "moments"), framed(Hostile(list), [])
    tracemalloc.start()
    why = refusal(frame, REQUEST, files, engine)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert why.startswith("expected ")
    assert peak < ROOM
    assert not files.has_release(1, 1)


def mutated(examples: int, folder: Path) -> None:
    """Mutate so many answers on their way, and as many releases at their site; refuse each."""
    key, files = new_key(), ServerFiles(folder, WIDTH, CLASSES, "moments")
    keys = dict.fromkeys(NAMES, public_of(key))
    signing, plain = framed(Hostile(list), [], keys), framed(Hostile(list), [])
    right = replace(answer_of(), signature=sign(key, answer_of().signed_part())).to_bytes()
    assert signing._checked(REQUEST, Verb.ROUND, right).content == RELEASE.to_bytes()
    seen = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mutations())
    def mutate(change: Callable[[bytes], bytes]) -> None:
        nonlocal seen
        frame, content = change(right), change(RELEASE.to_bytes())[: 2 * LARGEST]
        assert frame == right or refusal(frame, REQUEST, files, signing).startswith("expected ")
        if not is_another(content):
            why = refusal(answer_of(content).to_bytes(), REQUEST, files, plain)
            assert why.startswith("expected ")
            assert len(why) < 1000
        seen += 2

    mutate()
    assert seen >= 2 * examples
    assert not list(folder.rglob("site-*"))


def is_another(content: bytes) -> bool:
    """Whether a site could have sent these bytes as its release of this round."""
    try:
        release = Release.from_bytes(content, width=WIDTH, classes=CLASSES)
    except BadInput:
        return content == b""
    return (release.site, release.round, release.kind) == (1, 1, "moments")


@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(1_000, marks=pytest.mark.slow),
        pytest.param(5_000, marks=pytest.mark.thorough),
    ],
)
def test_thousands_of_mutated_replies_are_refused(examples: int, tmp_path: Path):
    """Each example is two of them."""
    mutated(50, tmp_path)  # all that is loaded once is there
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mutated(examples, tmp_path)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 8 * ROOM / 1024  # kilobytes


@pytest.mark.parametrize("numbers", [False, True])
def test_what_is_not_signed_as_it_came_is_refused(
    numbers: bool, tiny: Callable[..., RunConfig], tmp_path: Path
):
    """With keys a change of numbers is found, too, and so is another site's signature."""
    keys = {name: new_key() for name in NAMES}
    public = {name: public_of(key) for name, key in keys.items()}

    def change(answer: Answer) -> list[bytes]:
        if numbers:
            frame = answer.to_bytes()
            content = bytearray(answer.content)
            content[-1] ^= 1
            return [frame.replace(answer.content, bytes(content))]
        other = replace(answer, signature=sign(keys["a"], answer.signed_part()))
        return [other.to_bytes(), replace(answer, signature=b"").to_bytes()]

    class Signed(Hostile):
        def _answer(self, request: Request) -> Answer:
            self.key = keys[request.site]
            return super()._answer(request)

    head, reasons = trained(tmp_path / "a", tiny(), Signed(change), public)
    assert torch.equal(head.weight, torch.ones(CLASSES, WIDTH))
    assert {why.split(",")[0] for why in reasons} == {
        "expected the signature of the site under its answer"
    }
    right, none = trained(tmp_path / "b", tiny(), Signed(lambda a: [a.to_bytes()]), public)
    assert torch.equal(right.weight, 2 * torch.ones(CLASSES, WIDTH))
    assert none == []


def test_an_answer_that_comes_twice_or_late_counts_once(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    """Junk before the right answer does not cost the site the round; a second one is refused."""
    before = list[bytes]()

    class Slow(Hostile):
        def carry(
            self, frames: Mapping[str, bytes], seconds: float | None, cap: int
        ) -> Iterator[tuple[str, bytes]]:
            for name, content in super().carry(frames, seconds, cap):
                yield from [("b", old) for old in before]  # of a request that is over
                yield name, content
                before[:] = [content]

    def change(answer: Answer) -> list[bytes]:
        return [b"junk", answer.to_bytes(), answer.to_bytes()]

    head, reasons = trained(tmp_path, tiny(), Slow(change))
    assert torch.equal(head.weight, 2 * torch.ones(CLASSES, WIDTH))
    (record,) = read_rounds(tmp_path)
    assert record.absent == ()
    junk = [why for why in reasons if "in its one form" in why]
    late = [why for why in reasons if "late or twice" in why]
    assert len(late) > 3
    assert len(junk) + len(late) == len(reasons)


def test_the_room_around_a_message_holds_every_answer():
    answer = replace(answer_of(b"x" * LARGEST), signature=b"s" * 1024, site="b" * 64, run="r" * 64)
    assert len(answer.to_bytes()) <= LARGEST + AROUND


def test_where_all_replies_are_bad_there_is_no_round(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    class AllBad(Hostile):
        def _answer(self, request: Request) -> Answer:
            answer = super()._answer(request)
            return replace(answer, content=b"junk") if answer.content else answer

    with pytest.raises(SiteRefusal):
        trained(tmp_path, tiny(), AllBad(lambda answer: [answer.to_bytes()]))
    assert read_rounds(tmp_path) == []


def test_the_largest_release_of_a_kind_holds_every_release_of_it():
    assert len(replace(RELEASE, site=2**31 - 1).to_bytes()) <= LARGEST
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
