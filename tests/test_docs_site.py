"""The documentation site builds without a warning, is whole, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORDS = 20_000  # at most, of the pages that somebody wrote


class Loaded(HTMLParser):
    """Addresses that a browser loads with a page, as opposed to links that somebody may follow."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        is_link = tag == "link" and values.get("rel") in (
            "stylesheet",
            "icon",
            "preload",
            "preconnect",
        )
        if tag in ("script", "img", "iframe", "source", "video", "audio") or is_link:
            self.addresses += [v for k in ("src", "href", "srcset") if (v := values.get(k))]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path):
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        str(site),
    ]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        outside = [a for a in Loaded(page.read_text()).addresses if re.match(r"(\w+:)?//", a)]
        assert outside == [], page.relative_to(site)
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text()), sheet.name


def test_what_a_browser_would_load_from_elsewhere_is_found():
    html = (
        '<link rel="stylesheet" href="//a.example/x.css"><a href="//b.example">b</a><img src="c">'
    )
    assert Loaded(html).addresses == ["//a.example/x.css", "c"]


def test_every_page_that_somebody_wrote_is_in_the_navigation():
    text = re.sub(r"!!python\S*", "", (ROOT / "mkdocs.yml").read_text())
    named = set(re.findall(r"[\w/-]+\.md", str(yaml.safe_load(text)["nav"])))
    written = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert written <= named


def test_the_pages_are_few_words():
    """Tables of benchmarks are data, and the page of branches follows from the code."""
    pages = [p for p in (ROOT / "docs").rglob("*.md") if p.name != "branches.md"]
    pages += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    assert sum(len(p.read_text().split()) for p in pages) <= WORDS


@pytest.mark.parametrize("path", sorted((ROOT / "results").rglob("*.toml")), ids=lambda p: p.stem)
def test_each_table_of_results_is_shown_on_a_page(path: Path):
    name = str(path.relative_to(ROOT / "results").with_suffix(""))
    text = "".join(p.read_text() for p in (ROOT / "docs").rglob("*.md"))
    assert f'{{{{ table("{name}") }}}}' in text
