"""Counts and gauges in Prometheus's text format, against a strict reader of it."""

import json
import math
import re
from pathlib import Path

import pytest
from exposition import read_metrics, value_of
from hypothesis import given
from hypothesis import strategies as st

from dprbft.engines.watch import hub, node
from dprbft.engines.watch.metrics import Family, Metrics

COUNT = Family("a_total", "counter", "Of \\ a\nb")
OF = Family("b_total", "counter", "By kind", ("by", "kind"))
LEVEL = Family("c", "gauge", "Now", ("at",))
DASHBOARD = Path(__file__).parents[4] / "docker/grafana/panas.json"


def test_a_counter_without_labels_begins_at_zero_and_others_when_counted():
    metrics = Metrics((COUNT, OF, LEVEL))
    assert read_metrics(metrics.text()) == {("a_total", frozenset()): 0.0}
    metrics.add(OF, "hub", "late", by=2)
    metrics.add(OF, "hub", "late")
    metrics.put(LEVEL, "x", value=0.25)
    assert value_of(metrics.text(), "b_total", by="hub", kind="late") == 3
    assert value_of(metrics.text(), "c", at="x") == 0.25
    metrics.drop(LEVEL)
    assert "c{" not in metrics.text()


def test_known_series_and_those_that_begin_are_there_at_zero_and_count_on():
    known = Family("d_total", "counter", "By kind", ("by", "kind"), known=(("hub", "late"),))
    metrics = Metrics((known,))
    metrics.begin(known, "site", "failed")
    metrics.add(known, "site", "failed")
    metrics.begin(known, "site", "failed")
    assert value_of(metrics.text(), "d_total", by="hub", kind="late") == 0
    assert value_of(metrics.text(), "d_total", by="site", kind="failed") == 1


@given(st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), st.floats(), max_size=6))
def test_any_label_and_any_value_come_back(values: dict[str, float]):
    metrics = Metrics((LEVEL,))
    for text, value in values.items():
        metrics.put(LEVEL, text, value=value)
    text = metrics.text()
    if any(c in label for label in values for c in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"):
        return  # the reader splits lines there, Prometheus at \n alone
    result = {
        dict(labels)["at"]: v for (_, labels), v in (read_metrics(text) if text else {}).items()
    }
    assert result.keys() == values.keys()
    for label, value in values.items():
        assert result[label] == value or math.isnan(value) == math.isnan(result[label]) is True


@pytest.mark.parametrize("text", ["a 1", "# HELP a b\n# TYPE a gauge\na{b=c} 1\n", "a 1\n"])
def test_the_reader_refuses_what_is_not_in_the_format(text: str):
    with pytest.raises(ValueError, match=r"."):
        read_metrics(text)


def test_every_expression_of_the_dashboard_names_metrics_that_exist():
    families = {f.name: f for f in (*hub.FAMILIES, *node.FAMILIES)}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    named = set()
    for panel in panels:
        for target in panel["targets"]:
            used = re.findall(r"panas_\w+", target["expr"])
            assert used, target
            assert set(used) <= families.keys(), target
            labels = {label for name in used for label in families[name].labels} | {"instance"}
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            shown |= {
                w for x in re.findall(r"by \(([^)]*)\)", target["expr"]) for w in x.split(", ")
            }
            assert shown <= labels, target
            named.update(used)
    assert families.keys() - named <= {node.BUDGET.name}
