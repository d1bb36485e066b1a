"""A picture of what each step of a run brought: the sites' test accuracies beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from panas.plots.style import BLUE, GREEN, GREY, ORANGE, RED, legend, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Accuracies:
    """A site's test accuracies; None where there is none."""

    majority: float | None = None  # of the most frequent class
    forest: float | None = None  # of public samples
    regression: float | None = None  # of public samples
    public: float | None = None  # what the run starts from
    alone: float | None = None
    joined: float | None = None
    pooled: float | None = None  # of a linear head of all samples, not private
    pooled_forest: float | None = None  # of a boosted forest of all samples, not private


@dataclass(frozen=True)
class Look:
    """How one of these is marked."""

    step: str  # a field of `Accuracies`
    label: str
    marker: str
    colour: str
    filled: bool = True


LOOKS = (
    Look("majority", "most frequent class", "|", GREY),
    Look("forest", "forest, public", "x", GREY),
    Look("regression", "logistic regression, public", "+", GREY),
    Look("public", "from public samples", "s", BLUE),
    Look("alone", "alone", "o", ORANGE),
    Look("joined", "joined", "o", GREEN),
    Look("pooled", "linear head, all samples: not private", "o", "#000000", filled=False),
    Look("pooled_forest", "boosted forest, all samples: not private", "D", "#000000", filled=False),
)
"""From the bottom to the top of the ladder."""
MOST_NAMED = 40  # sites; of more none is named
INCHES_A_SITE, AROUND = 0.24, 1.5


def ladder(rows: Sequence[tuple[str, Accuracies]]) -> bytes:
    """Draw the accuracies of each site, by its name, and their means above, as a PNG."""
    every = [("mean", _means([steps for _, steps in rows])), *rows]
    # Means over different sites are not compared.
    alike = len({(s.alone is None, s.joined is None) for _, s in rows}) == 1

    def draw(figure: "Figure") -> None:
        axes = figure.add_subplot()
        for at, (_, steps) in enumerate(every):
            if (at or alike) and steps.alone is not None and steps.joined is not None:
                both = [steps.alone, steps.joined]
                colour = GREEN if steps.joined >= steps.alone else RED
                axes.plot(both, [at, at], color=colour, lw=2.4, alpha=0.5, zorder=1)
        for look in LOOKS:
            values = [(getattr(steps, look.step), at) for at, (_, steps) in enumerate(every)]
            if known := [value for value in values if value[0] is not None]:
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


def _marks(look: Look) -> dict[str, Any]:
    if not look.filled:
        return {"marker": look.marker, "facecolors": "none", "edgecolors": look.colour, "s": 44}
    return {"marker": look.marker, "color": look.colour, "s": 26}


def _means(rows: Sequence[Accuracies]) -> Accuracies:
    """The mean of each, over the sites that have it."""
    means = {}
    for look in LOOKS:
        known = [v for steps in rows if (v := getattr(steps, look.step)) is not None]
        means[look.step] = fmean(known) if known else None
    return Accuracies(**means)
