"""What every page of a report must be, checked on its HTML alone."""

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

VOID = {"meta", "img", "br", "link", "input", "hr"}
LOADING = ("src", "srcset", "poster", "data", "background", "action")
"""Attributes by which a page loads something."""


@dataclass
class Tag:
    name: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Parsed(HTMLParser):
    """The tags of a page, in their order, each with the text right inside it."""

    tags: list[Tag] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    open: list[Tag] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        twice = [name for name, n in Counter(name for name, _ in attrs).items() if n > 1]
        self.problems += [f"{tag} has {name} twice" for name in twice]
        self.tags.append(Tag(tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(self.tags[-1])

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop().name != tag:
            self.problems.append(f"{tag} ends where it is not open")

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1].text += data

    def named(self, *names: str) -> list[Tag]:
        return [t for t in self.tags if t.name in names]


def parsed(page: str) -> Parsed:
    result = Parsed()
    result.feed(page)
    result.close()
    return result


def problems_of(page: str) -> list[str]:
    """What is wrong with a page; [] if nothing is."""
    p = parsed(page)
    found = [*p.problems, *(f"{t.name} is never closed" for t in p.open)]
    ids = Counter(t.attributes["id"] for t in p.tags if "id" in t.attributes)
    found += [f"id {name} is there {n} times" for name, n in ids.items() if n > 1]
    for t in p.tags:
        found += _of_tag(t, set(ids))
    if len(p.named("h1")) != 1:
        found.append(f"{len(p.named('h1'))} h1")
    levels = [int(t.name[1]) for t in p.named("h1", "h2", "h3", "h4")]
    found += [f"h{b} after h{a}" for a, b in pairwise(levels) if b > a + 1]
    if not p.named("html")[0].attributes.get("lang") or not p.named("title")[0].text.strip():
        found.append("no language or title")
    if len(p.named("table")) != len(p.named("caption")):
        found.append("a table has no caption")
    regions = [t.attributes["aria-label"] for t in p.tags if t.attributes.get("role") == "region"]
    found += [f"two regions {name}" for name, n in Counter(regions).items() if n > 1]
    return found


def _of_tag(t: Tag, ids: set[str]) -> list[str]:
    found, a = [], t.attributes
    if t.name == "img" and not (a.get("alt") and a["src"].startswith("data:image/png;base64,")):
        found.append("img without alt or data")
    if t.name == "svg" and not (a.get("aria-label") and a.get("role") == "img"):
        found.append("svg without words")
    if t.name == "th" and a.get("scope") not in ("row", "col"):
        found.append("th without scope")
    loads = {k: v for k, v in a.items() if k in LOADING}
    found += [f"{t.name} loads {v[:40]}" for v in loads.values() if not v.startswith("data:")]
    found += [f"{t.name} has {name}" for name in a if name.startswith("on")]
    if t.name in ("link", "iframe", "object", "embed", "base", "form", "image", "use"):
        found.append(f"a {t.name}")
    if t.name == "script" and a:
        found.append("a script with attributes")
    if t.name == "style" and ("url(" in t.text or "@import" in t.text):
        found.append("a style that loads")
    href = a.get("href", "")
    if href.startswith("#") and href[1:] not in ids:
        found.append(f"link to {href}, which is not there")
    if href and not href.startswith(("#", "https://")):
        found.append(f"link to {href}")
    return found
