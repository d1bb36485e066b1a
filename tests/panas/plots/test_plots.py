"""Pictures: what they show, that nothing in them collides, that equal input gives equal bytes."""

import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import matplotlib
import pytest
from custom_blocks import Squeeze
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from benchmarks.feathers_picture import ChosenSetting, chosen_settings
from panas.architecture.cost import LayerCost, cost, cost_table
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.evolution.records import Evaluation, GenerationRecord
from panas.plots.network import drawing, short
from panas.plots.search import history
from panas.plots.tuning import trials
from panas.tuning.space import DPSGDSettings
from panas.tuning.trial import Status, TrialRecord


def generation(number: int, best: float, **more: Any) -> GenerationRecord:
    counts = {"evaluations": 4, "failed": 0, "cached": 1, "dropped": 1}
    fitness = {"best": best, "mean": best / 2, "std": 0.1, "min": 0.0}
    plain: dict[str, Any] = {"generation": number, "passes": 1000 * (number + 1)} | counts | fitness
    genome = {"best_genome": Genome.parse("c16k3-max-c32k5")}
    return GenerationRecord(**plain | genome | more)


def candidate(number: int, fitness: float, **more: Any) -> Evaluation:
    sizes = {"failed": False, "passes": 9, "size": 500.0 + number}
    return Evaluation(Genome.parse("c16k3"), fitness, number, **sizes | more)


def trial(
    number: int, value: float | None, status: Status = "done", **settings: Any
) -> TrialRecord:
    plain: dict[str, Any] = {"noise_multiplier": 1.0, "clip": 1.0, "batch_size": 32 << number % 3}
    made = DPSGDSettings(**({"learning_rate": 0.1 * (number + 1)} | plain | settings))
    return TrialRecord(number, made, value, status, "random" if number < 2 else "ei")


def saved(draw: Callable[..., bytes], *args: Any, **more: Any) -> Figure:
    """The figure that is saved, as it was drawn."""
    result, save = list[Figure](), FigureCanvasAgg.print_png

    def keep(canvas: FigureCanvasAgg, *args: Any, **options: Any) -> None:
        save(canvas, *args, **options)
        result.append(canvas.figure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FigureCanvasAgg, "print_png", keep)
        assert Image.open(io.BytesIO(draw(*args, **more))).format == "PNG"
    return result[0]


@cache
def figure_of(kind: str, name: str) -> Figure:
    if kind == "history":
        return saved(history, *HISTORIES[name])
    return saved(trials, TRIALS[name]) if kind == "trials" else saved(chosen_settings, CHOSEN[name])


def check_layout(figure: Figure) -> None:
    assert collisions(figure) == []
    assert outside(figure) == []


def legend(axes: Any) -> list[str]:
    return [t.get_text() for t in axes.get_legend().get_texts()]


def lines(axes: Any) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}


def texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    """All text in sight, with where it stands."""
    unseen = set()
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in axis.get_major_ticks() + axis.get_minor_ticks():
                if not min(limits) <= tick.get_loc() <= max(limits):
                    unseen |= {tick.label1, tick.label2}
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text not in unseen:
            yield text.get_text(), text.get_window_extent()


def collisions(figure: Figure) -> list[tuple[str, str]]:
    pairs = itertools.combinations(texts(figure), 2)
    return [(a, b) for (a, x), (b, y) in pairs if x.overlaps(y) and x.padded(-1).overlaps(y)]


def outside(figure: Figure) -> list[str]:
    width, height = figure.bbox.width, figure.bbox.height
    return [
        text
        for text, b in texts(figure)
        if b.x0 < -1 or b.y0 < -1 or b.x1 > width + 1 or b.y1 > height + 1
    ]


EVERYONE = [
    *(candidate(0, 0.4), candidate(0, 0.3, dropped=True), candidate(0, 0.0, failed=True)),
    candidate(1, 0.6),
]
LONG = Genome.parse("-".join(["c256k5", "max", "c128k3"] * 12))
HISTORIES = {
    "two generations": ([generation(0, 0.4), generation(1, 0.6)], EVERYONE),
    "nobody counted passes": (  # but those of the scores that seeded the search
        [generation(g, 0.4 + g / 9, passes=40) for g in range(3)],
        [replace(e, passes=0) for e in EVERYONE],
    ),
    "one generation": ([generation(0, 0.4)], EVERYONE[:3]),
    "none": ([], []),
    "all failed": (
        [generation(g, 0.0) for g in range(3)],
        [candidate(g, 0.0, failed=True) for g in range(3)],
    ),
    "one value": ([generation(0, 0.5, mean=0.5)], [candidate(0, 0.5)]),
    "long": ([generation(g, 0.001 * g + 0.1, best_genome=LONG) for g in range(200)], EVERYONE),
    "dear": ([generation(g, 0.5 + g / 99, passes=123_456_789) for g in range(21)], EVERYONE),
}
TRIALS = {
    "some": [
        *(trial(0, 0.5), trial(1, 0.4), trial(2, 0.0, "failed")),
        *(trial(3, None, "over budget"), trial(4, 0.7)),
    ],
    "one": [trial(0, 0.5)],
    "none": [],
    "all failed": [trial(k, 0.0, "failed") for k in range(3)],
    "wide": [trial(k, k / 40, learning_rate=10.0 ** (k / 4 - 7)) for k in range(40)],
    "narrow": [trial(k, k / 40, learning_rate=0.1 + k / 4000, clip=k + 1.0) for k in range(40)],
    "many fields": [
        trial(k, k / 9, noise_multiplier=1 + k / 3, clip=0.1 * 4**k, epochs=k + 1) for k in range(6)
    ],
}


def chosen(round: int, rate: float, reward: float | None = None, **more: float) -> ChosenSetting:
    stage, setting = "search" if round < 5 else "evaluation", {"learning_rate": rate, **more}
    return ChosenSetting(
        round=round, stage=stage, tried=reward is not None, setting=setting, reward=reward
    )


CHOSEN = {
    "some": [chosen(1, 0.5, 0.2), chosen(2, 0.1, -0.1), chosen(3, 0.5), chosen(6, 0.1)],
    "none": [],
    "one value": [chosen(k, 0.5) for k in range(1, 9)],
    "many": [
        chosen(k, 10.0 ** -(k % 6), 0.1 * k if k % 3 else None, momentum=0.9 * (k % 2))
        for k in range(1, 200)
    ],
}


def test_chosen_settings_show_what_was_tried_and_used_and_where_a_stage_ends():
    rates, rewards = figure_of("chosen settings", "some").axes
    tried, used = (c.get_offsets().tolist() for c in rates.collections)
    assert tried == [[1.0, 0.5], [2.0, 0.1]]
    assert used == [[3.0, 0.5], [6.0, 0.1]]
    assert [line.get_xdata()[0] for line in rates.get_lines()] == [3.5]
    heights = [segment[1][1] for segment in rewards.collections[0].get_segments()]
    assert heights == [0.2, -0.1]
    assert legend(rewards) == ["measured", "trained with"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("history", name) for name in HISTORIES),
        *(("trials", name) for name in TRIALS),
        *(("chosen settings", name) for name in CHOSEN),
    ],
)
def test_nothing_in_a_picture_collides(kind: str, name: str):
    check_layout(figure_of(kind, name))


def test_a_collision_and_a_text_outside_are_seen():
    figure = Figure()
    for x, y, text in ((0.5, 0.5, "one label"), (0.51, 0.5, "another"), (0.99, 0, "x" * 9)):
        figure.text(x, y, text)
    figure.canvas.draw_idle()
    assert len(collisions(figure)) == 1
    assert outside(figure) == ["x" * 9]


def test_a_history_shows_the_records_and_counts_the_candidates():
    figure = figure_of("history", "two generations")
    first, second = figure.axes
    assert lines(first) == lines(second) == {"mean": [0.2, 0.3], "best": [0.4, 0.6]}
    assert list(second.get_lines()[0].get_xdata()) == [1000, 2000]
    assert legend(first)[:3] == ["trained in full (2)", "dropped early (1)", "failed (1)"]
    low, high = first.get_ylim()
    assert 0 < low < 0.2 < 0.6 < high < 1  # a failure's fitness of 0 does not stretch the axis
    assert figure.get_suptitle().splitlines() == [
        "best 0.600: c16k3-max-c32k5",
        "8 candidates, 2,000 sample-passes, 2 dropped early, 2 known before",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one generation", "long"])
def test_a_search_for_all_sites_says_what_this_one_takes(name: str):
    figure = saved(history, *HISTORIES[name], taken=("c64k5-avg-c16k5", 0.929))
    lines = figure.get_suptitle().splitlines()
    assert lines[0].startswith("best ")
    caption = " ".join(lines)
    assert "taken: c64k5-avg-c16k5, 0.929 in the site's own class frequencies " in caption
    check_layout(figure)


def test_without_passes_evaluations_are_the_cost_and_there_is_no_panel_without_content():
    second = figure_of("history", "nobody counted passes").axes[1]
    assert second.get_xlabel() == "evaluations so far"
    assert list(second.get_lines()[0].get_xdata()) == [4, 8, 12]
    for name, panels in (("one generation", 1), ("all failed", 1), ("long", 2)):
        assert len(figure_of("history", name).axes) == panels


@pytest.mark.slow
def test_a_front_has_its_panel_and_a_box_is_as_high_as_its_map_asks():
    front = [("b", 0.6, 501.0), ("a", 0.4, 500.0)]
    panel = saved(history, *HISTORIES["two generations"], front).axes[2]
    assert legend(panel) == ["trained in full", "Pareto front (2)"]
    assert list(panel.get_lines()[0].get_xdata()) == [500, 501]
    assert panel.get_xlabel() == "parameters"
    spec = NetworkSpec(shape=(1, 16, 16), width=10, classes=10)
    figure = saved(drawing, Genome.parse("c16k3-max-avg"), spec)
    heights = [p.get_height() for p in figure.axes[0].patches]
    image, conv, large, small, adapt, head = heights
    assert image == conv > large > small > adapt == head


@pytest.mark.slow
def test_trials_show_the_best_so_far_and_ring_the_chosen():
    figure = saved(trials, TRIALS["some"], chosen=TRIALS["some"][1].setting)
    top, rate, batch = figure.axes
    assert lines(top)["best so far"] == [0.5, 0.5, 0.7, 0.7]
    assert "failed (1)" in legend(top)
    assert "over budget (1)" in legend(top)
    assert (rate.get_xlabel(), batch.get_xlabel()) == ("learning rate", "batch size")
    assert rate.collections[-1].get_offsets().tolist() == [[0.2, 0.4]]
    assert "chosen by the model's mean, with 0.400 in trial 2" in figure.get_suptitle()
    assert "chosen, with 0.700 in trial 5" in figure_of("trials", "some").get_suptitle()


@pytest.mark.slow
def test_equal_input_gives_equal_bytes_whatever_the_users_settings():
    records, everyone = HISTORIES["two generations"]
    genome, spec = Genome.parse(TEN), NetworkSpec(shape=(1, 32, 32), width=16, classes=4)
    first = history(records, everyone), trials(TRIALS["some"]), drawing(genome, spec)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "savefig.dpi": 20}):
        again = history(records, everyone), trials(TRIALS["some"]), drawing(genome, spec)
        assert again == first
        assert matplotlib.rcParams["font.size"] == 30
    info = Image.open(io.BytesIO(first[0])).info
    assert not {"Software", "Creation Time", "date"} & info.keys()


class SqueezeAndExciteWithGate(Squeeze):
    """A block of a user's own, with a name longer than a box."""

    def __str__(self) -> str:
        return f"squeeze.excite.{self.ratio}"


OWN = SqueezeAndExciteWithGate(4)
TEN = "c16k3-c16k5-max-c64k5-avg-c256k3-c256k3-max-c128k5-c64k3"


ROW = "gated64-dense256-residual65536"


@pytest.mark.slow
@pytest.mark.parametrize("text", ["c16k3", f"c16k3-{OWN}-max", TEN, "-".join(["c256k5"] * 30), ROW])
def test_nothing_in_a_drawing_collides(text: str):
    genome = Genome.parse(text, blocks=(OWN,))
    spec = NetworkSpec(shape=(3, 224, 224), width=500, classes=1000)
    check_layout(saved(drawing, genome, spec, 0.9))


@pytest.mark.slow
def test_a_drawing_begins_with_the_layers_of_an_encoder():
    genome, spec = Genome.parse("c16k3-max"), NetworkSpec(shape=(24, 7, 7), width=8, classes=3)
    layers = LayerCost("first", (24, 7, 7), parameters=1234, macs=5_000_000, bytes=900_000)
    figures = [saved(drawing, genome, spec, None, first) for first in (None, layers)]
    plain, behind = ([t.get_text() for t in f.axes[0].texts] for f in figures)
    assert {"encoder", "first layers", "24×7×7", "1,234", "5M"} <= {*behind}
    assert "image" in plain
    assert "image" not in behind
    whole = cost(genome, spec).parameters + 1234
    assert f"{whole:,} parameters" in figures[1].get_suptitle()
    check_layout(figures[1])


@pytest.mark.slow
def test_a_drawing_holds_every_line_of_the_cost_table():
    genome = Genome.parse(f"{TEN}-{OWN}", blocks=(OWN,))
    spec = NetworkSpec(shape=(3, 32, 32), width=64, classes=10)
    figure = saved(drawing, genome, spec, 0.5)
    (axes,) = figure.axes
    shown = [t.get_text() for t in axes.texts]
    table = cost_table(genome, spec)
    assert len(axes.patches) == len(table) + 1
    for layer in table:
        assert "×".join(map(str, layer.out_shape)) in shown
        assert shown.count(f"{layer.parameters:,}") >= 1
        assert short(layer.macs) in shown
    # An input, each of the two rows of 7: an arrow a box but the first, and two at the row's end.
    assert len([t for t in axes.texts if getattr(t, "arrow_patch", None)]) == len(table) + 1
    head = figure.get_suptitle().splitlines()
    assert head[0] == str(genome)
    assert head[1].startswith(f"fitness 0.500, {sum(r.parameters for r in table):,} parameters, ")


@pytest.mark.slow
def test_a_network_of_rows_is_drawn_as_one():
    spec = NetworkSpec(shape=(1, 4, 4), width=8, classes=2)
    (axes,) = saved(drawing, Genome.parse("gated8-residual4"), spec).axes
    shown = [t.get_text() for t in axes.texts]
    assert {"row", "gated", "residual", "8 features", "8×1×1"} <= {*shown}
    assert not {"image", "mean, linear"} & {*shown}


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1234, "1.23k"), (35_000_000, "35M"), (2**31, "2.15G")],
)
def test_counts_are_short(number: int, text: str):
    assert short(number) == text
