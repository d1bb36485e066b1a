"""Headers and bodies of requests, as ASGI hands them over, and answers that read no body."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


def headers_of(scope: Scope) -> dict[str, str]:
    """A request's headers by name; one that comes twice counts as none."""
    found = Counter(name for name, _ in scope["headers"])
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if found[name] == 1
    }


def size_of(scope: Scope) -> int | None:
    """Bytes of a request's body, as it declares them; None where it does not."""
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names or names.count(b"content-length") > 1:
        return None
    text = headers_of(scope).get("content-length", "0")
    return int(text) if text.isdecimal() else None


def parsed(kind: Any, body: bytes | None) -> Any:
    """A message of Flower's; None if these bytes are none, which Flower then says itself."""
    from google.protobuf.message import DecodeError

    if body is None:
        return None
    found = kind()
    try:
        found.ParseFromString(body)
    except DecodeError:
        return None
    return found


async def read(receive: Receive, most: int) -> bytes | None:
    """A whole body; None if it ends early, or is larger."""
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] != "http.request":
            return None
        body += part.get("body", b"")
        if len(body) > most:
            return None
        if not part.get("more_body"):
            return bytes(body)


def again(body: bytes | None, receive: Receive) -> Receive:
    """A body that was read, for the app behind; one that was not is as if who asked had gone."""
    waiting = [body]

    async def next_part() -> Any:
        if not waiting:
            return await receive()
        content = waiting.pop()
        if content is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}

    return next_part


async def answer(send: Send, status: int, content: Any = b"") -> None:
    """Answer a request without reading its body, and end its connection."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    kind = b"application/protobuf" if body and isinstance(content, bytes) else b"application/json"
    headers = [
        (b"connection", b"close"),
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
