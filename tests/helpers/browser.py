"""A page in headless Chromium, over its DevTools pipe: what it loads, says and looks like."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")

MOVED = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 100) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Becomes the browser, which reads commands from descriptor 3 and answers to 4."""


def chromium() -> str:
    """The browser's path; skips the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: install Debian's package chromium")
    return found


@dataclass
class Browser:
    """A page's session: commands, and the events that came meanwhile."""

    write: IO[bytes]
    read: IO[bytes]
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """What a command answers."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        while (answer := self._next()).get("id") != self.count:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        content = bytearray()
        while (byte := self.read.read(1)) != b"\0":
            assert byte, "the browser has ended"
            content += byte
        answer: dict[str, Any] = json.loads(content)
        return answer

    def run(self, script: str) -> Any:
        """The value of an expression, also of a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, page: Path, width: int, scheme: str = "light", media: str = "") -> None:
        """Load a page as a screen of a width shows it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Page.navigate", url=page.resolve().as_uri())
        loaded = "new Promise(r => document.readyState === 'complete' ? r(1) : onload = r)"
        self.run(f"{loaded}.then(() => 1)")

    def named(self, method: str) -> list[dict[str, Any]]:
        """The events of a name."""
        return [e["params"] for e in self.events if e.get("method") == method]

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with one empty page, its profile in a folder."""
    to_child, write = os.pipe()
    read, from_child = os.pipe()
    command = [chromium(), *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    process = subprocess.Popen(
        [sys.executable, "-c", MOVED, str(to_child), str(from_child), *command, "about:blank"],
        pass_fds=(to_child, from_child),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_child)
    os.close(from_child)
    with os.fdopen(write, "wb") as out, os.fdopen(read, "rb") as back:
        try:
            yield _attached(Browser(out, back))
        finally:
            process.terminate()
            process.wait(20)


def _attached(page: Browser) -> Browser:
    targets = page.call("Target.getTargets")["targetInfos"]
    target = next(t["targetId"] for t in targets if t["type"] == "page")
    answer = page.call("Target.attachToTarget", targetId=target, flatten=True)
    page.session = answer["sessionId"]
    for domain in ("Page", "Runtime", "Network", "Log"):
        page.call(f"{domain}.enable")
    return page
