"""A report in a real browser: nothing asked for, nothing said, nothing cut off."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, browser

from panas.runtime.store import write_bytes

pytestmark = pytest.mark.slow

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
AXE = """axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(
  v => `${v.id}: ${v.help}: ${v.nodes[0].html.slice(0, 200)}`))"""


@pytest.fixture
def page(run: Path, cli: Callable, tmp_path: Path) -> Path:
    """The page of a tiny run, with pictures that a browser can draw."""
    for file in (run / "audit").glob("*.png"):
        write_bytes(file, PIXEL)
    written = tmp_path / "page.html"
    assert cli("report", run, "--out", written).code == 0
    return written


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as session:
        yield session


def axe() -> str:
    """The source of axe-core; skips where no package has it."""
    try:
        import axe_core_python
    except ImportError:
        pytest.skip("no axe-core: pip install axe-core-python")
    return Path(axe_core_python.__file__).with_name("axe.min.js").read_text()


OPEN = "document.querySelectorAll('details').forEach(d => { d.open = true })"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_loads_fits_and_asks_for_nothing(
    page: Path, chromium: Browser, width: int, scheme: str
):
    chromium.events.clear()
    chromium.open(page, width, scheme)
    chromium.run(OPEN)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    images = "[...document.images].map(i => i.complete && i.naturalWidth > 0)"
    assert (
        json.dumps(chromium.run(images)).count("true") == chromium.run("document.images.length") > 0
    )
    for said in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
        assert chromium.named(said) == []
    asked = {e["request"]["url"] for e in chromium.named("Network.requestWillBeSent")}
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}
    assert len([url for url in asked if url.startswith("file")]) == 1


@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(page: Path, chromium: Browser, width: int):
    source = axe()
    chromium.open(page, width)
    chromium.run(OPEN)
    chromium.run(f"{source};0")
    assert chromium.run(AXE) == []


def test_the_keyboard_reaches_the_report_and_each_part(page: Path, chromium: Browser):
    chromium.open(page, 1280)
    chromium.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9
    )
    assert chromium.run("document.activeElement.className") == "skip"
    left = "getComputedStyle(document.activeElement).left"
    assert float(chromium.run(left).removesuffix("px")) >= 0


def test_it_prints_with_every_part_open(page: Path, chromium: Browser):
    chromium.open(page, 1280)
    content = chromium.pdf()
    assert content.startswith(b"%PDF")
    assert chromium.run("[...document.querySelectorAll('details')].every(d => d.open)") is True
