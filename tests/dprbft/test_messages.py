"""Messages: what was sent arrives, its size is its bytes, and anything else is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

from dprbft import messages
from dprbft.messages import LARGEST_WEIGHT, Broadcast, Release, padded
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.privacy.release.gate import ReleaseRequest, release
from panas.privacy.release.kind import event_of, is_noised, kind_named, kind_names
from panas.runtime.errors import BadInput

D, CLASSES = 4, 3


ROWS = ("public_rows", "raw_rows")


def arrays_of(kind: str, n: int = 5) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    kind = "raw_rows" if kind in ROWS else kind
    return {
        "moments": {
            "A": torch.randn(D * (D + 1) // 2, generator=g),
            "B": torch.randn(CLASSES, D, generator=g),
        },
        "class_sums": {
            "S": torch.randn(CLASSES, D, generator=g),
            "counts": torch.randn(CLASSES, generator=g),
        },
        "raw_rows": {
            "z": torch.randn(n, D, generator=g),
            "y": torch.randint(CLASSES, (n,), generator=g),
        },
        "broadcast": {
            "weight": torch.randn(CLASSES, D, generator=g),
            "bias": torch.randn(CLASSES, generator=g),
        },
    }[kind]


def about_of(kind: str) -> dict[str, Any]:
    if kind == "broadcast":
        return {"type": "broadcast", "round": 2}
    m = None if kind in ("raw_rows", "public_rows") else 1.5
    return {
        "type": "release",
        "client": 3,
        "round": 2,
        "kind": kind,
        "noise_multiplier": m,
        "receipt": "abc" + "0" * 29,
    }


def packed(arrays: dict[str, Tensor], about: object) -> bytes:
    text = json.dumps(about)
    whole = isinstance(about, dict) and about.get("type") == "release"
    return save(arrays, {"message": padded(text) if whole else text})


def parse(kind: str, content: bytes) -> Broadcast | Release:
    if kind == "broadcast":
        return Broadcast.from_bytes(content, width=D, classes=CLASSES)
    return Release.from_bytes(content, width=D, classes=CLASSES)


def test_a_broadcast_arrives_as_it_was_sent() -> None:
    a = arrays_of("broadcast")
    sent = Broadcast(7, a["weight"].T.contiguous().T, a["bias"])
    content = sent.to_bytes()
    got = Broadcast.from_bytes(content, width=D, classes=CLASSES)
    assert got.round == 7
    assert torch.equal(got.weight, a["weight"])
    assert torch.equal(got.bias, a["bias"])
    numbers = 4 * (CLASSES * D + CLASSES)
    assert numbers < len(content) < numbers + 400
    assert got.to_bytes() == content


@pytest.mark.parametrize("kind", kind_names())
def test_a_release_arrives_as_it_was_released(tmp_path: Path, kind: str) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.open_account(Budget(8.0, 1e-5), allow_unprotected=True)
    a, event = arrays_of("raw_rows"), event_of(kind_named(kind), 2.0)
    released = release(
        ReleaseRequest(kind=kind, event=event, site=3, round=5, classes=CLASSES),
        lambda: (a["z"], a["y"]),
        ledger=ledger,
        noise=SystemNoise(),
    )
    sent = Release.of(released)
    content = sent.to_bytes()
    got = Release.from_bytes(content, width=D, classes=CLASSES)
    assert (got.site, got.round, got.kind) == (3, 5, kind)
    assert got.noise_multiplier == (2.0 if is_noised(kind_named(kind)) else None)
    assert got.receipt == ledger.account().entries[0].id
    assert got.arrays.keys() == released.arrays.keys()
    assert all(torch.equal(got.arrays[k], v) for k, v in released.arrays.items())
    assert got.to_bytes() == content
    numbers = sum(v.numel() * v.element_size() for v in released.arrays.values())
    assert numbers < len(content) < numbers + 900


@pytest.mark.parametrize("kind", [*kind_names(), "broadcast"])
def test_the_hand_made_message_is_accepted(kind: str) -> None:
    assert parse(kind, packed(arrays_of(kind), about_of(kind))) is not None


@pytest.mark.parametrize("kind", ROWS)
def test_no_rows_are_a_release_too(kind: str) -> None:
    content = packed(arrays_of(kind, n=0), about_of(kind))
    assert len(Release.from_bytes(content, width=D, classes=CLASSES).arrays["z"]) == 0


@pytest.mark.parametrize("kind", [*kind_names(), "broadcast"])
def test_wrong_arrays_are_refused(kind: str) -> None:
    about = about_of(kind)
    for name, array in arrays_of(kind).items():
        good = arrays_of(kind)
        bads: list[dict[str, Tensor]] = [
            {k: v for k, v in good.items() if k != name},
            {**good, "extra": torch.zeros(1)},
            {**good, name: array[..., None].contiguous()},
            {**good, name: torch.cat([array, array])},
            {**good, name: torch.tensor(1.0)},
            {**good, name: array.double() if array.is_floating_point() else array.float()},
            {**good, name: array.to(torch.int32)},
        ]
        if array.is_floating_point():
            for value in (math.nan, math.inf, -math.inf):
                poisoned = array.clone()
                poisoned.view(-1)[0] = value
                bads.append({**good, name: poisoned})
        else:
            bads += [{**good, name: array + CLASSES}, {**good, name: array - CLASSES}]
        for bad in bads:
            with pytest.raises(BadInput):
                parse(kind, packed(bad, about))


@pytest.mark.parametrize("kind", [*kind_names(), "broadcast"])
@pytest.mark.parametrize("value", ["7", 1.5, None, True, [], {}, math.nan, 10**30])
def test_wrong_facts_are_refused(kind: str, value: object) -> None:
    about = about_of(kind)
    for name in about:
        fits = {
            "noise_multiplier": (value is None or value == 1.5) and value == about[name],
            "receipt": False,
        }
        whole = isinstance(value, int) and not isinstance(value, bool)
        if fits.get(name, whole) or (kind in ("moments", "class_sums") and value is None):
            continue
        with pytest.raises(BadInput):
            parse(kind, packed(arrays_of(kind), {**about, name: value}))
        less = {k: v for k, v in about.items() if k != name}
        if about[name] is not None and name != "noise_multiplier":
            with pytest.raises(BadInput):
                parse(kind, packed(arrays_of(kind), less))


@pytest.mark.parametrize("m", [0, -1.0, math.inf, math.nan, "2", True])
def test_noise_is_a_number_above_zero(m: object) -> None:
    about = {**about_of("moments"), "noise_multiplier": m}
    with pytest.raises(BadInput, match="noise multiplier"):
        parse("moments", packed(arrays_of("moments"), about))


@pytest.mark.parametrize("kind", ROWS)
def test_noise_is_claimed_by_those_that_have_it_alone(kind: str) -> None:
    with pytest.raises(BadInput):
        parse(kind, packed(arrays_of(kind), {**about_of(kind), "noise_multiplier": 1.5}))


@pytest.mark.parametrize("about", [[], 3, None, "text", {}, {"type": "release"}])
def test_a_message_of_another_type_is_refused(about: object) -> None:
    with pytest.raises(BadInput, match="expected a broadcast"):
        parse("broadcast", packed(arrays_of("broadcast"), about))


def test_a_message_without_a_message_is_refused() -> None:
    for metadata in (None, {}, {"other": "1"}, {"message": "{"}, {"message": "[" * 10**5}):
        with pytest.raises(BadInput):
            parse("moments", save(arrays_of("moments"), metadata))


@pytest.mark.parametrize("kind", [*kind_names(), "broadcast"])
def test_a_message_cut_anywhere_is_refused(kind: str) -> None:
    content = packed(arrays_of(kind), about_of(kind))
    for length in [*range(0, 64), *range(64, len(content), 7), len(content) - 1]:
        with pytest.raises(BadInput):
            parse(kind, content[:length])


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=200))
def test_garbage_is_refused(content: bytes) -> None:
    for kind in ("moments", "broadcast"):
        with pytest.raises(BadInput):
            parse(kind, content)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_gives_a_valid_message(at: int, byte: int) -> None:
    content = bytearray(packed(arrays_of("moments"), about_of("moments")))
    content[at % len(content)] = byte
    try:
        got = Release.from_bytes(bytes(content), width=D, classes=CLASSES)
    except BadInput:
        return
    assert all(bool(torch.isfinite(v).all()) for v in got.arrays.values())
    assert got.arrays["B"].shape == (CLASSES, D)


def test_a_huge_message_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed(arrays_of("moments"), about_of("moments"))
    monkeypatch.setattr(messages, "MAX_BYTES", len(content) - 1)
    monkeypatch.setattr(messages, "parse_tensors", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(BadInput, match="at most"):
        parse("moments", content)


def test_a_head_of_larger_weights_than_any_server_sends_is_refused():
    for largest, taken in ((LARGEST_WEIGHT, True), (1.01 * LARGEST_WEIGHT, False)):
        content = Broadcast(0, torch.full((3, 4), largest), torch.zeros(3)).to_bytes()
        if taken:
            head = Broadcast.from_bytes(content, width=4, classes=3)
            z = torch.nn.functional.normalize(torch.ones(5, 4)).requires_grad_()
            loss = torch.nn.functional.cross_entropy(12 * z @ head.weight.T, torch.arange(5) % 3)
            (gradient,) = torch.autograd.grad(loss, z)
            assert loss.isfinite()
            assert gradient.isfinite().all()
            continue
        with pytest.raises(BadInput, match="at most 1e\\+06"):
            Broadcast.from_bytes(content, width=4, classes=3)
