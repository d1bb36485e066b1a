import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprbft.engines import frames
from dprbft.engines.frames import Answer, Request, new_nonce
from panas.runtime.errors import BadInput

NONCE = "0123456789abcdef" * 2
REQUEST = Request("trial-1", "h17", 3, "hello", NONCE, b"{}", {"public": b"abc", "map": b""})
ANSWER = Answer("trial-1", "h17", "round", NONCE, 0, b"release", b"signed")


def test_frames_come_back_as_they_were():
    assert Request.from_bytes(REQUEST.to_bytes()) == REQUEST
    assert Answer.from_bytes(ANSWER.to_bytes()) == ANSWER
    assert len({new_nonce() for _ in range(9)}) == 9


def test_a_request_is_refused_by_its_header_alone():
    whole = REQUEST.to_bytes()
    head = whole[: whole.index(b"}{}") + 1]  # no byte of its message
    frames.check_request(head, len(whole))
    with pytest.raises(BadInput, match="instead of"):
        frames.check_request(head, len(whole) + 1)
    text = head.replace(b'"hello"', b'"train"').replace(b'"message":2', b'"message":999')
    text = (len(text) - 4).to_bytes(4, "big") + text[4:]
    with pytest.raises(BadInput, match="a message of 999 bytes to train"):
        frames.check_request(text, len(text) + 999 + 3)
    deep = b'{"a":' + b"[" * 60_000
    with pytest.raises(BadInput, match="does not decode"):
        frames.check_request(len(deep).to_bytes(4, "big") + deep, 1 << 20)


def test_what_carries_messages_imports_no_torch():
    names = ["dprbft.engines.frames", "dprbft.engines.node.call", "dprbft.secure_sum.total"]
    code = f"import sys, {', '.join(names)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("run", ["../x", "", ".", ".hidden", "a/b", "a\n", "x" * 65, "ü"])
def test_a_name_that_is_no_safe_folder_is_refused(run: str):
    with pytest.raises(BadInput, match="run"):
        replace(REQUEST, run=run)
    text = REQUEST.to_bytes().replace(b'"trial-1"', b'"../al-1"')
    with pytest.raises(BadInput, match="run"):
        Request.from_bytes(text)


@pytest.mark.parametrize(
    ("frame", "wrong"),
    [
        (REQUEST, {"nonce": NONCE[:-1]}),
        (REQUEST, {"number": -1}),
        (REQUEST, {"number": True}),
        (REQUEST, {"verb": "Round"}),
        (REQUEST, {"files": {"../public": b""}}),
        (REQUEST, {"files": {f"f{i}": b"" for i in range(9)}}),
        (REQUEST, {"verb": "train"}),  # it has nothing to say
        (ANSWER, {"code": 3}),
        (ANSWER, {"code": 256}),
        (ANSWER, {"verb": "search"}),
        (ANSWER, {"signature": b"x" * 2000}),
    ],
)
def test_a_frame_that_cannot_be_is_refused(frame: Request | Answer, wrong: dict):
    with pytest.raises(BadInput):
        replace(frame, **wrong)


def test_sizes_are_those_of_what_came(monkeypatch: pytest.MonkeyPatch):
    frame = ANSWER.to_bytes()
    for wrong in (
        frame[:-1],
        frame + b"x",
        frame.replace(b'"message":7', b'"message":-7'),
        frame.replace(b'"message":7', b'"message":99999999999999999999'),
        frame.replace(b'"message":7', b'"message":7.0'),
        b"\xff\xff\xff\xff" + frame[4:],
        b"",
        frame[:4],
    ):
        with pytest.raises(BadInput):
            Answer.from_bytes(wrong)
    with pytest.raises(BadInput, match="above 10"):
        Answer.from_bytes(frame, 10)
    monkeypatch.setattr(frames, "MAX_FRAME", 10)
    with pytest.raises(BadInput, match="at most 10"):
        ANSWER.to_bytes()


def test_one_form_alone_is_read():
    frame = ANSWER.to_bytes()
    spaced = frame.replace(b'"code":0', b'"code": 0')
    with pytest.raises(BadInput):
        Answer.from_bytes(len(spaced[4:-13]).to_bytes(4, "big") + spaced[4:])
    with pytest.raises(BadInput):
        Answer.from_bytes(REQUEST.to_bytes())


def test_all_but_the_signature_is_signed():
    signed = ANSWER.signed_part()
    assert replace(ANSWER, signature=b"other").signed_part() == signed
    changes = {"run": "b", "site": "b", "verb": "keys", "nonce": "0" * 32, "content": b"releasf"}
    for name, value in changes.items():
        assert replace(ANSWER, **{name: value}).signed_part() != signed
    empty = replace(ANSWER, content=b"")
    assert replace(empty, code=2).signed_part() != empty.signed_part()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 400), st.binary(max_size=6), st.integers(0, 6), st.booleans())
def test_mutated_frames_are_read_as_they_are_or_refused(
    at: int, put: bytes, cut: int, request: bool
):
    frame = (REQUEST if request else ANSWER).to_bytes()
    mutated = frame[:at] + put + frame[at + cut :]
    try:
        result = (Request if request else Answer).from_bytes(mutated)
    except BadInput:
        return
    assert result.to_bytes() == mutated
