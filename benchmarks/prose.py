"""How plain the project's sentences are: their length, and idioms that it does not use.

Read are Markdown pages, first sentences of docstrings, and messages: what is raised, and the help
of the command line. A word is what stands between spaces; code in backticks counts as one word.
`python -m benchmarks.prose [FILES]` lists what breaks a limit and exits with 1.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("panas", "dprbft", "baselines", "attacks", "panas_cli", "benchmarks")
LONGEST = 30  # words of a sentence
MEAN = 14  # words of a page's or a package's sentences
BANNED = (
    *("brought nothing", "brings nothing", "buys nothing", "in truth", "come up alike"),
    *("by the bytes", "for good and all", "makes something of", "makes nothing of"),
    *(
        "it is told",
        "is told of",
        "are told of",
        "what is told",
        "of one's own",
        "no more than that",
    ),
    *("as it were", "whoever answers", "goes past", "by name alone", "is no such", "what there is"),
    *("knows nothing of", "know nothing of", "beforehand", "at all costs", "needs must"),
)
"""Phrases that a reader who knows the field, and not this project, stumbles over."""

ABBREVIATIONS = ("e.g", "i.e", "cf", "vs", "al", "Fig", "Eq", "Sec", "alg", "No", "St")
END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z*_\"'(`\[])")
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^\s*(?:[-*+] |\d+[.)] |#+ |> |\|)")


@dataclass(frozen=True)
class Sentence:
    """A sentence and where it stands."""

    file: str
    line: int
    text: str

    @property
    def words(self) -> int:
        """Words, a piece of code counting as one."""
        return sum(any(c.isalnum() for c in word) for word in self.text.split())


def sentences_of_page(path: Path) -> Iterator[Sentence]:
    """The sentences of a Markdown page, without headings, tables and blocks of code."""
    text = FENCE.sub(lambda m: "\n" * m.group().count("\n"), path.read_text())
    paragraph: list[str] = []
    begun = 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if not line.strip() or BLOCK.match(line):
            yield from _split(_name(path), begun, " ".join(paragraph))
            paragraph = []
            line = "" if re.match(r"\s*[#|]", line) else BLOCK.sub("", line)
        if line.strip():
            begun = begun if paragraph else number
            paragraph.append(line.strip())


def sentences_of_module(path: Path) -> Iterator[Sentence]:
    """First sentences of a module's docstrings, and the sentences of its messages."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                first = next(_split(_name(path), getattr(node, "lineno", 1), _joined(text)), None)
                if first:
                    yield first
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for value in node.exc.args:
                yield from _split(_name(path), node.lineno, _message(value), end=r"; ")
        elif isinstance(node, ast.keyword) and node.arg == "help":
            yield from _split(_name(path), node.value.lineno, _message(node.value), end=r"; ")


def _joined(docstring: str) -> str:
    """The first paragraph of a docstring."""
    return " ".join(docstring.split("\n\n")[0].split())


def _message(value: ast.expr) -> str:
    """The text of a literal, with one word in the place of what a run fills in."""
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_message(p) if isinstance(p, ast.Constant) else "x" for p in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _message(left) + _message(right)
    return ""


def _split(file: str, line: int, text: str, end: str = "") -> Iterator[Sentence]:
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    for short in ABBREVIATIONS:
        text = re.sub(rf"\b{short}\. ", f"{short} ", text)
    for piece in END.split(text):
        for part in re.split(end, piece) if end else [piece]:
            sentence = Sentence(file, line, part.strip())
            if sentence.words:
                yield sentence


def _name(path: Path) -> str:
    full = path.resolve()
    return str(full.relative_to(ROOT) if full.is_relative_to(ROOT) else full)


def pages() -> list[Path]:
    """The project's Markdown pages, without the change log."""
    outside = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    return [*outside, *sorted(ROOT.glob("docs/**/*.md"))]


def modules(package: str) -> list[Path]:
    """A package's modules."""
    return sorted((ROOT / package).rglob("*.py"))


def sentences_of(paths: list[Path]) -> list[Sentence]:
    """All sentences of pages and modules."""
    read = {".md": sentences_of_page, ".py": sentences_of_module}
    return [s for path in paths for s in read[path.suffix](path)]


def problems(group: str, sentences: list[Sentence]) -> list[str]:
    """What breaks a limit, a line each; the mean is that of the whole group."""
    lines = []
    for s in sentences:
        if s.words > LONGEST:
            lines.append(f"{s.file}:{s.line}: {s.words} words, at most {LONGEST}: {s.text[:90]}")
        lines += [f"{s.file}:{s.line}: says {b!r}" for b in BANNED if b in s.text.lower()]
    if sentences and (mean := fmean(s.words for s in sentences)) > MEAN:
        lines.append(f"{group}: {mean:.1f} words a sentence, at most {MEAN}; shorten some")
    return lines


def groups() -> dict[str, list[Path]]:
    """What has a mean of its own: each page, and each package."""
    whole = {_name(page): [page] for page in pages()}
    return whole | {p: modules(p) for p in PACKAGES if (ROOT / p).is_dir()}


def main(names: list[str]) -> int:
    """Print what breaks a limit; the exit code."""
    given = {name: [Path(name)] for name in names} or groups()
    results = []
    for group, paths in given.items():
        sentences = sentences_of(paths)
        broken = problems(group, sentences)
        mean = fmean(s.words for s in sentences) if sentences else 0.0
        long = sum(s.words > LONGEST for s in sentences)
        print(f"{group}: {len(sentences)} sentences, mean {mean:.1f}, {long} too long")
        results += broken
    print(*results, sep="\n")
    return bool(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
