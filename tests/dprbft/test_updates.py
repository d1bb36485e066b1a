"""Messages of methods of their own: one form, nothing in it that is not checked."""

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
from dprbft.messages import padded
from dprbft.updates import Bundle, Order, Update, named
from panas.runtime.errors import BadInput
from panas.runtime.store import pack_tensors

ARRAYS: dict[str, Tensor] = {
    "layer.weight": torch.tensor([[1.5, -2.0], [0.0, 1e-30]]),
    "layer.steps": torch.tensor(7),
    "mask": torch.tensor([0, 255, 3], dtype=torch.uint8),
}
RECORD: dict[str, Any] = {"samples": 12, "share": 0.1, "names": ["a", "b"], "deep": {"x": None}}
ABOUT: dict[str, Any] = {"type": "update", "site": 3, "round": 5, "receipts": ["a1"]}


def packed(arrays: dict[str, Tensor], about: Any, **metadata: str) -> bytes:
    return pack_tensors(arrays, {"message": padded(json.dumps(about, sort_keys=True)), **metadata})


def whole(**changes: Any) -> dict[str, Any]:
    return {**ABOUT, "record": RECORD, **changes}


def test_a_message_arrives_as_it_was_sent():
    update = Update(3, 5, Bundle(ARRAYS, RECORD), ("a1", "b2"))
    got = Update.from_bytes(update.to_bytes())
    assert (got.site, got.round, got.receipts) == (3, 5, ("a1", "b2"))
    order = Order.from_bytes(Order(2, Bundle(ARRAYS, RECORD)).to_bytes())
    assert order.round == 2
    for bundle in (got.bundle, order.bundle):
        assert bundle.record == RECORD
        assert bundle.arrays.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            assert bundle.arrays[name].dtype == array.dtype
            assert torch.equal(bundle.arrays[name], array)


def test_the_size_is_that_of_the_arrays_and_a_little():
    weights = {"w": torch.zeros(1000)}
    assert 4000 < len(Update(0, 1, Bundle(weights), ("x",)).to_bytes()) < 4800


def test_the_size_does_not_follow_the_digits_of_a_number():
    records: list[dict[str, Any]] = [{"samples": n} for n in (9, 99, 104, 1e5 / 3)]
    sizes = {len(Update(0, 1, Bundle(ARRAYS, record)).to_bytes()) for record in records}
    assert len(sizes) == 1


def test_arrays_that_share_their_memory_cross_too():
    both = torch.arange(6.0)
    bundle = Bundle({"a": both[:3], "b": both[::2], "c": both})
    got = Order.from_bytes(Order(1, bundle).to_bytes()).bundle
    assert torch.equal(got.arrays["b"], torch.tensor([0.0, 2.0, 4.0]))


def test_equal_messages_have_equal_bytes_whatever_the_order_of_names():
    turned = Bundle(dict(reversed(ARRAYS.items())), dict(reversed(RECORD.items())))
    assert Order(1, turned).to_bytes() == Order(1, Bundle(ARRAYS, RECORD)).to_bytes()


def test_the_hand_made_message_is_accepted():
    assert Update.from_bytes(packed(ARRAYS, whole())).bundle.record == RECORD


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_neither_sent_nor_received(value: float):
    poisoned = {**ARRAYS, "layer.weight": torch.tensor([[1.0, value], [0.0, 0.0]])}
    with pytest.raises(BadInput, match="finite numbers for 'layer"):
        Update(3, 5, Bundle(poisoned, RECORD), ("a1",)).to_bytes()
    with pytest.raises(BadInput, match="finite numbers for 'layer"):
        Update.from_bytes(packed(poisoned, whole()))
    for record in ({"score": value}, {"deep": [{"score": value}]}):
        with pytest.raises(BadInput, match="finite numbers in the record"):
            Order(1, Bundle({}, record)).to_bytes()
        with pytest.raises(BadInput, match="finite numbers in the record"):
            Update.from_bytes(packed(ARRAYS, whole(record=record)))


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.int32, torch.bool])
def test_other_types_are_neither_sent_nor_received(kind: torch.dtype):
    arrays = {"w": torch.zeros(2, dtype=kind)}
    with pytest.raises(BadInput, match="float32, int64 or uint8"):
        Order(1, Bundle(arrays)).to_bytes()
    with pytest.raises(BadInput, match="float32, int64 or uint8"):
        Update.from_bytes(packed(arrays, whole()))


@pytest.mark.parametrize("value", ["7", 1.5, None, True, [], {}])
def test_wrong_facts_are_refused(value: Any):
    for name in ("type", "site", "round"):
        with pytest.raises(BadInput):
            Update.from_bytes(packed(ARRAYS, whole(**{name: value})))
    for receipts in (value, [value], "a1"):
        if receipts not in ([], ["7"]):
            with pytest.raises(BadInput, match="receipts"):
                Update.from_bytes(packed(ARRAYS, whole(receipts=receipts)))
    if value != {}:
        with pytest.raises(BadInput, match="record"):
            Update.from_bytes(packed(ARRAYS, whole(record=value)))


@pytest.mark.parametrize("missing", ["type", "site", "round", "receipts", "record"])
def test_a_fact_that_is_missing_is_refused(missing: str):
    with pytest.raises(BadInput):
        Update.from_bytes(packed(ARRAYS, {k: v for k, v in whole().items() if k != missing}))


def test_an_order_is_no_update_and_neither_is_another_message():
    order = Order(1, Bundle(ARRAYS)).to_bytes()
    with pytest.raises(BadInput, match="expected an update message, got"):
        Update.from_bytes(order)
    with pytest.raises(BadInput, match="expected an order message, got"):
        Order.from_bytes(Update(0, 1, Bundle(ARRAYS), ("a",)).to_bytes())
    for about in ([], 3, None, "text"):
        with pytest.raises(BadInput):
            Order.from_bytes(packed(ARRAYS, about))
    for metadata in (None, {}, {"message": "{"}, {"message": "[" * 10**5}):
        with pytest.raises(BadInput):
            Order.from_bytes(save(ARRAYS, metadata))


def test_a_message_has_one_form():
    content = packed(ARRAYS, whole())
    spaced = json.dumps(whole(), sort_keys=True, indent=1)
    twice = json.dumps(whole(), sort_keys=True)[:-1] + ', "site": 3}'
    for hidden in (
        packed(ARRAYS, whole(extra=1)),
        packed(ARRAYS, whole(), note="something"),
        pack_tensors(ARRAYS, {"message": spaced}),
        pack_tensors(ARRAYS, {"message": twice}),
        save(ARRAYS, {"message": padded(json.dumps(whole(), sort_keys=True))}),
    ):
        assert hidden != content
        with pytest.raises(BadInput, match=r"one form|of fields that panas"):
            Update.from_bytes(hidden)


def test_a_huge_message_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch):
    content = packed(ARRAYS, whole())
    monkeypatch.setattr(messages, "MAX_BYTES", len(content) - 1)
    monkeypatch.setattr(messages, "parse_tensors", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(BadInput, match="at most"):
        Update.from_bytes(content)


def test_a_message_cut_anywhere_is_refused():
    content = packed(ARRAYS, whole())
    for length in [*range(0, 64), *range(64, len(content), 7), len(content) - 1]:
        with pytest.raises(BadInput):
            Update.from_bytes(content[:length])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused(at: int, byte: int):
    content = bytearray(packed(ARRAYS, whole()))
    before, at = bytes(content), at % len(content)
    content[at] = byte
    if bytes(content) != before:
        with pytest.raises(BadInput):
            Update.from_bytes(bytes(content))


def test_a_bundle_on_disk_reads_back_and_a_damaged_one_does_not(tmp_path: Path):
    path = tmp_path / "b.safetensors"
    Bundle(ARRAYS, RECORD).write(path)
    got = Bundle.read(path)
    assert got.record == RECORD
    assert all(torch.equal(got.arrays[k], v) for k, v in ARRAYS.items())
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BadInput):
        Bundle.read(path)


def test_parts_of_a_bundle_go_by_their_prefix():
    arrays = named("bottom", {"0.weight": torch.ones(2)}) | named("bot", {"x": torch.zeros(1)})
    bundle = Bundle(arrays)
    assert bundle.part("bottom").keys() == {"0.weight"}
    assert bundle.part("bot").keys() == {"x"}
    assert bundle.part("none") == {}
    assert bundle
    assert not Bundle()
    assert Bundle(record={"a": 1})
