"""`panas ledger`: the privacy card of every site of a run, or of one site by run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dprbft.paths import (
    SitePaths,
    ledger_file,
    model_file,
    predictor_file,
    read_sites,
    settings_file,
    sites_file,
)
from dprbft.site.directory import read_site
from dprbft.site.site import check_book
from panas.privacy.ledger.account import number
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.exclusions import EXCLUSIONS
from panas.runtime.errors import BadInput
from panas.training.linear.predictor import read_predictor
from panas_cli.text.printing import figure, print_json, print_text
from panas_cli.text.privacy_card import card_lines, card_of, state_lines, wrapped

STAYS = "stays"
LEDGER = "ledger.jsonl"


def ledger(folder: Path, group: int, json: bool) -> None:
    """Show what every site, or one site, has spent, on what, and what is not covered.

    Args:
        folder: a run directory, or a site's.
        group: samples that one user holds, at least 1.
        json: print one JSON object.
    """
    if group < 1:
        raise BadInput(f"expected a --group of 1 or more, got {group}; give how many samples")
    record, lines = (_of_site if _is_site(folder) else _of_run)(folder, group)
    if json:
        print_json(record | {"not_covered": list(EXCLUSIONS)})
        return
    for line in (*lines, "not covered:"):
        print_text(line)
    for what in EXCLUSIONS:
        print_text(wrapped(f"- {what}", 2))
    print_text("(note a ledger's hash elsewhere: it tells it from one put in its place)")


def _is_site(folder: Path) -> bool:
    """Whether a folder is a site's: it has a ledger and no run's settings."""
    # A deleted ledger leaves its head, and is named by the reader.
    files = (LEDGER, "ledger.head")
    return not (folder / "config.toml").exists() and any((folder / f).is_file() for f in files)


def _books(run: Path) -> list[tuple[SitePaths, Ledger]]:
    """The ledgers of a run's sites that have one; a deleted one leaves its head."""
    if not sites_file(run).exists():
        raise BadInput(
            f"expected a run directory with a ledger at {run}, found none; check the path"
        )
    paths = {site_paths: ledger_file(site_paths.folder) for site_paths in read_sites(run)}
    here = [p for p, path in paths.items() if path.exists() or path.with_suffix(".head").exists()]
    return [(site_paths, check_book(site_paths)) for site_paths in here]


def _of_run(run: Path, group: int) -> tuple[dict[str, Any], list[str]]:
    rows, lines = [], list[str]()
    for paths, book in _books(run):
        account = book.account().as_owned(paths.run)
        row = card_of(account, group) | _file(book)
        rows.append({"client": paths.index, "name": paths.name} | row)
        lines += [*card_lines(paths.name, account, row), *_stays(paths), *_file_lines(row), ""]
    return {"run": str(run), "clients": rows}, lines


def _of_site(site: Path, group: int) -> tuple[dict[str, Any], list[str]]:
    book = Ledger(site / LEDGER)
    account = book.account()
    row = card_of(account, group) | _file(book)
    known = settings_file(site).is_file()
    name = read_site(site).name if known else site.resolve().name
    lines = list(card_lines(f"site {name}", account, row))
    runs = {name: account.as_owned(name) for name in account.runs}
    for name, own in runs.items():
        asked = f" of {figure(own.budget.epsilon)} that it asked for" if name else ""
        whose = f"run {name}" if name else "outside of runs"
        lines.append(wrapped(f"  {whose}: epsilon = {figure(own.spent())}{asked}", 4))
    left = account.left()
    lines.append(
        f"  left for a new run: epsilon = {figure(left)} at delta = {account.budget.delta:g}"
    )
    record = {"site": str(site)} | row | {"left": number(left)}
    record["runs"] = [{"run": name} | card_of(own, group) for name, own in runs.items()]
    return record, [*lines, *_file_lines(row), ""]


def _stays(paths: SitePaths) -> Iterator[str]:
    """What of a site that has joined is covered by nothing."""
    if (file := predictor_file(paths.home)).exists():
        yield wrapped(
            f"  {file.parent.name}/{file.name} stays with the site: validation samples, which "
            "nothing covers, weigh what is in it",
            4,
        )
        if read_predictor(file).notes["network"] == STAYS:
            yield wrapped(
                f"  {file.parent.name}/{model_file(paths.home).name} stays, too: residual and "
                "network trained without noise (privacy.network = stays)",
                4,
            )


def _file(book: Ledger) -> dict[str, Any]:
    count, digest = book.head()
    return {
        "chain": {"lines": count, "hash": digest},
        "places": [note.folder for note in book.notes if note.kind == "moved"],
        "restored": sum(note.charges for note in book.notes),
        "copy": book.is_behind,
        "notes": state_lines(book),
    }


def _file_lines(row: dict[str, Any]) -> Iterator[str]:
    yield f"  ledger: {row['chain']['lines']} lines, whole; its last line has hash"
    yield f"    {row['chain']['hash']}"
    for line in row["notes"]:
        yield wrapped(f"  {line}", 4)
