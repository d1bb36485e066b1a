"""A run's figures as event files of TensorBoard: one folder a site, and one of the server.

TensorBoard's library writes them; it is loaded when it is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from panas.runtime.errors import INSTALL_TENSORBOARD, BadInput, quiet
from panas_cli.report.facts import RunFacts, SiteFacts


@dataclass(frozen=True)
class Scalar:
    """One value of one curve."""

    folder: str  # whose: a site, or "server"
    tag: str
    step: int
    value: float


def scalars(run: RunFacts) -> Iterator[Scalar]:
    """All curves of a run: searches, trials, accuracies, epsilon, and bytes by round."""
    for record in run.rounds:
        yield Scalar("server", "round/bytes up", record.round, record.up_bytes)
        yield Scalar("server", "round/bytes down", record.round, record.down_bytes)
        yield Scalar("server", "round/seconds", record.round, record.seconds)
    for site in run.sites:
        yield from _of_site(site)


def _of_site(site: SiteFacts) -> Iterator[Scalar]:
    for g in site.search.result.records if site.search else ():
        yield Scalar(site.name, "search/best fitness", g.generation, g.best)
        yield Scalar(site.name, "search/mean fitness", g.generation, g.mean)
    for t in site.tuning.trials if site.tuning else ():
        if t.value is not None:
            yield Scalar(site.name, "tuning/value", t.number + 1, t.value)
    for step, value in site.summary["ladder"].items():
        if value is not None:
            yield Scalar(site.name, f"accuracy/{step}", 0, value)
    yield Scalar(site.name, "privacy/epsilon", 0, site.outcome.epsilon)


def write_events(folder: Path, run: RunFacts) -> None:
    """Write a run's event files under a folder.

    Raises:
        BadInput: if TensorBoard is not installed, or the folder holds anything.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"expected an empty folder for --tensorboard, got {folder}; name another")
    try:
        with quiet("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise BadInput(
            f"expected TensorBoard for --tensorboard, got none; {INSTALL_TENSORBOARD}"
        ) from error
    by_folder: dict[str, list[Scalar]] = {}
    for scalar in scalars(run):
        by_folder.setdefault(scalar.folder, []).append(scalar)
    for name, values in by_folder.items():
        with SummaryWriter(str(folder / name)) as writer:
            for s in values:
                writer.add_scalar(s.tag, s.value, s.step)
