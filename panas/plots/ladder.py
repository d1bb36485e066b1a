"""A picture of what each step of a run brought: the sites' test accuracies beside each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from panas.plots.style import BLUE, GREEN, GREY, ORANGE, RED, legend, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Look:
    """How one step is marked."""

    label: str
    marker: str
    colour: str
    filled: bool = True


LOOKS: Mapping[str, Look] = {
    "majority": Look("most frequent class", "|", GREY),
    "forest": Look("forest, public", "x", GREY),
    "regression": Look("logistic regression, public", "+", GREY),
    "public": Look("from public samples", "s", BLUE),
    "alone": Look("alone", "o", ORANGE),
    "joined": Look("joined", "o", GREEN),
    "pooled": Look("head of all samples, no noise", "o", "#000000", filled=False),
}
"""By step, from the bottom to the top of the ladder."""
MOST_NAMED = 40
"""Sites; of more none is named."""
INCHES_A_SITE, AROUND = 0.24, 1.5


def ladder(rows: Sequence[tuple[str, Mapping[str, float | None]]]) -> bytes:
    """Draw the steps of each site, and their means above, as a PNG.

    Args:
        rows: a site's name and its accuracies by the names of `LOOKS`; what is None, or not there,
            is left out.

    """
    mean = {step: _mean([steps.get(step) for _, steps in rows]) for step in LOOKS}
    every = [("mean", mean), *rows]

    def draw(figure: "Figure") -> None:
        axes = figure.add_subplot()
        # Means over different sites are not compared.
        alike = len({(s.get("alone") is None, s.get("joined") is None) for _, s in rows}) == 1
        for at, (_, steps) in enumerate(every):
            if at or alike:
                _gain(axes, at, steps.get("alone"), steps.get("joined"))
        for step, look in LOOKS.items():
            known = [(s[step], at) for at, (_, s) in enumerate(every) if s.get(step) is not None]
            if known:
                x, y = zip(*known, strict=True)
                axes.scatter(x, y, label=look.label, **_marks(look))
        named = len(rows) <= MOST_NAMED
        axes.set_yticks(range(len(every) if named else 1))
        axes.set_yticklabels([name for name, _ in every] if named else ["mean"])
        axes.set_ylim(len(every) - 0.5, -0.7)
        axes.axhline(0.5, color=GREY, lw=0.8)
        axes.set(xlabel="test accuracy")
        axes.set_title("What each step brought each site; red where alone is better than joined")
        legend(axes, beside=True)

    height = AROUND + INCHES_A_SITE * min(len(every), MOST_NAMED + 1)
    return png(draw, (8.0, max(height, 3.0)))


def _gain(axes: "Axes", at: int, alone: float | None, joined: float | None) -> None:
    """What joining brought, as a line."""
    if alone is not None and joined is not None:
        colour = GREEN if joined >= alone else RED
        axes.plot([alone, joined], [at, at], color=colour, lw=2.4, alpha=0.5, zorder=1)


def _marks(look: Look) -> dict[str, Any]:
    if not look.filled:
        return {"marker": look.marker, "facecolors": "none", "edgecolors": look.colour, "s": 44}
    return {"marker": look.marker, "color": look.colour, "s": 26}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
