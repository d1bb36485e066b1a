"""Counts and gauges, in Prometheus's text format.

Source: Prometheus, "Exposition formats", text format 0.0.4. A *family* is one metric with all its
labels; each combination of labels is a *series*. No label takes a text of the other side: whoever
counts names what is known, and `other` for the rest.
"""

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Family:
    """A metric: its name, whether it only grows, what it is, and the names of its labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()  # labels of a counter's series that begin at 0


class Metrics:
    """The series of some families; safe among threads.

    A counter without labels begins at 0, as do its `known` series: so a first event is seen as an
    increase. All others are there once they are counted or set.

    Args:
        families: all that may be counted here.
    """

    def __init__(self, families: Iterable[Family]) -> None:
        self._lock = threading.Lock()
        self._series: dict[Family, dict[tuple[str, ...], float]] = {
            f: {(): 0.0} if f.kind == "counter" and not f.labels else dict.fromkeys(f.known, 0.0)
            for f in families
        }

    def add(self, family: Family, *labels: str, by: float = 1.0) -> None:
        """Count.

        Args:
            family: a counter.
            labels: a value for each of its labels, in their order.
            by: at least 0.
        """
        with self._lock:
            series = self._series[family]
            series[labels] = series.get(labels, 0.0) + by

    def put(self, family: Family, *labels: str, value: float) -> None:
        """Set a gauge, or a counter that somebody else counts.

        Args:
            family: of the series.
            labels: a value for each of its labels, in their order.
            value: it has from now on.
        """
        with self._lock:
            self._series[family][labels] = value

    def begin(self, family: Family, *labels: str) -> None:
        """Let a counter's series be there, at 0 if it is not yet."""
        with self._lock:
            self._series[family].setdefault(labels, 0.0)

    def drop(self, *families: Family) -> None:
        """Forget all series of these families."""
        with self._lock:
            for family in families:
                self._series[family].clear()

    def text(self) -> str:
        """All series."""
        with self._lock:
            return "".join(_lines(f, series) for f, series in self._series.items() if series)


def _lines(family: Family, series: dict[tuple[str, ...], float]) -> str:
    help_ = family.help.replace("\\", r"\\").replace("\n", r"\n")
    lines = [f"# HELP {family.name} {help_}", f"# TYPE {family.name} {family.kind}"]
    for values, value in sorted(series.items()):
        pairs = zip(family.labels, values, strict=True)
        labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in pairs)
        lines.append(f"{family.name}{f'{{{labels}}}' if labels else ''} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
