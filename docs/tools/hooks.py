"""What mkdocs calls: pages made from notebooks, code and files outside of `docs`; their links."""

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]  # a hook has no package of its own

import reference  # noqa: E402

HEAD = {"README.md": "---\nhide: [navigation]\n---\n"}
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated."""

    def add(uri: str, content: str | bytes) -> None:
        files.append(File.generated(config, uri, content=content))

    for name, uri in OUTSIDE.items():
        add(uri, HEAD.get(name, "") + re.sub(r"\]\(docs/", "](", (ROOT / name).read_text()))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, resources = MarkdownExporter().from_filename(str(path))
        for name, content in resources["outputs"].items():
            add(f"tutorials/{path.stem}/{name}", content)
        text = re.sub(r"\]\((output_\d+_\d+\.\w+)\)", rf"]({path.stem}/\1)", text)
        add(f"tutorials/{path.stem}.md", text.replace("](../docs/", "](../"))
    add("reference/commands.md", reference.commands())
    add("reference/settings.md", reference.settings())
    for package in ("panas", "dprbft", "attacks"):
        add(f"reference/{package}.md", reference.api(package))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository at their pages on the site."""
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(r"\]\((?:\.\./)*notebooks/(\w+)\.ipynb", rf"]({up}tutorials/\1.md", markdown)
    for name, uri in OUTSIDE.items():
        markdown = re.sub(rf"\]\((?:\.\./)*{re.escape(name)}", f"]({up}{uri}", markdown)
    return markdown
