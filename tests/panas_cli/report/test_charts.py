"""Pictures of a report: well-formed, in words too, and within their box."""

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import Markup

from panas_cli.report.charts.lines import (
    Candidate,
    Generation,
    Trial,
    front,
    history,
    pareto,
    trials,
)
from panas_cli.report.charts.network import Layer, drawing
from panas_cli.report.charts.rows import Row, Traffic, bars, dots, gains, gauge, traffic
from panas_cli.report.charts.svg import Scale, element, number, spread

EVIL = "<script>\"&'</script>"
ROW = Row(name=EVIL, value=0.5, told="0.500", span=(0.4, 0.6))
LAYER = Layer(name=EVIL, what="3×3", out="8×8×8", parameters=57)

PICTURES = {
    "dots": dots("Accuracy", [ROW, Row(name="none", value=None, told="-")], (0, 1)),
    "log dots": dots(
        "Epsilon", [ROW, Row(name="inf", value=math.inf, told="inf")], (0.1, 9), log=True
    ),
    "gains": gains("Gain", [Row(name="a", value=-3.0, told="-3.0", span=(-5, -1))]),
    "bars": bars("Means", [ROW, Row(name="none", value=None, told="-")]),
    "gauge": gauge(3.99, 4.0),
    "small gauge": gauge(0.0, 1.0),
    "infinite gauge": gauge(math.inf, math.inf),
    "history": history([Generation(number=k, best=0.5 + k / 10, mean=0.4) for k in range(3)]),
    "short history": history([Generation(number=0, best=0.5, mean=0.5)]),
    "front": front(
        [Candidate(parameters=10**k, fitness=k / 9, in_full=k != 2) for k in range(1, 5)]
    ),
    "front of one": front([Candidate(parameters=100, fitness=0.5, chosen=True)]),
    "trials": trials([Trial(number=1, value=0.5), Trial(number=2, value=None)]),
    "traffic": traffic([Traffic(round=1, up=10, down=0), Traffic(round=2, up=0, down=0)]),
    "network": drawing([LAYER] * 9),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_xml_with_words_and_stays_within_its_box(name: str):
    root = ET.fromstring(PICTURES[name])
    assert root.attrib["role"] == "img"
    assert len(root.attrib["aria-label"]) > 10
    _, _, wide, tall = map(float, root.attrib["viewBox"].split())
    for mark in root.iter():
        for key in ("x", "cx", "x1", "x2"):
            assert -0.1 <= float(mark.attrib.get(key, 0)) <= wide + 0.1, (name, mark.attrib)
        for key in ("y", "cy", "y1", "y2"):
            assert -0.1 <= float(mark.attrib.get(key, 0)) <= tall + 0.1, (name, mark.attrib)


@pytest.mark.parametrize("name", ["dots", "bars", "network"])
def test_what_users_name_is_escaped(name: str):
    assert "<script" not in PICTURES[name]
    assert EVIL in ET.fromstring(PICTURES[name]).attrib["aria-label"]


def test_an_element_takes_text_and_elements():
    inner = element("b", "a < b")
    assert element("a", inner, "&", class_="x", text_anchor="end") == Markup(
        '<a class="x" text-anchor="end"><b>a &lt; b</b>&amp;</a>'
    )


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_are_few_increasing_and_within_the_axis(low: float, length: float, most: int):
    scale = Scale(low=low, high=low + length, start=0, end=100)
    ticks = scale.ticks(most)
    assert ticks == sorted(set(ticks))
    assert 1 <= len(ticks) <= most + 1
    slack = 1e-6 * max(abs(low), length)
    assert all(low - slack <= t <= low + length + slack for t in ticks)


@given(st.floats(1e-3, 1e6), st.floats(1.05, 1e6))
def test_ticks_of_a_logarithmic_axis_are_within_it(low: float, times: float):
    scale = Scale(low=low, high=low * times, start=0, end=100, log=True)
    ticks = scale.ticks()
    assert ticks
    assert all(low * 0.998 <= t <= low * times * 1.002 for t in ticks)


@given(st.lists(st.floats(1, 1e6), min_size=1), st.booleans())
@example(values=[1e6, 999999.9999999999], log=False)
def test_limits_hold_all_values(values: list[float], log: bool):
    low, high = spread(values, log=log)
    assert low < min(values) <= max(values) < high


@given(
    st.lists(
        st.builds(
            Candidate,
            parameters=st.integers(1, 20),
            fitness=st.integers(0, 9).map(lambda n: n / 9),
            in_full=st.booleans(),
        )
    )
)
def test_the_front_is_what_nothing_beats(candidates: list[Candidate]):
    full = [c for c in candidates if c.in_full]
    beaten = {
        c
        for c in full
        for o in full
        if (o.parameters, -o.fitness) != (c.parameters, -c.fitness)
        and o.parameters <= c.parameters
        and o.fitness >= c.fitness
    }
    assert {*pareto(candidates)} == {c for c in full if c not in beaten}


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.25"), (999, "999"), (1500, "1.5k"), (2e6, "2M"), (3e9, "3G")]
)
def test_numbers_beside_ticks_are_short(value: float, text: str):
    assert number(value) == text
