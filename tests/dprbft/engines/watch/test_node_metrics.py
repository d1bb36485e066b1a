"""What a node counts: what its hub has seen, and the budget where the owner shows it."""

from pathlib import Path

import pytest
from exposition import read_metrics, value_of
from ledgers import charge
from node_sites import Hub, hub_of, owned_site

from dprbft.engines.node.daemon import Node, Served
from dprbft.engines.watch import node as watch
from dprbft.engines.watch.node import ANSWERS, BYTES, FAMILIES, LAST, NodeMetrics
from dprbft.messages import Code
from dprbft.site.directory import site_ledger
from panas.privacy.accounting.events import Gaussian


def counted(site: Path, hub: Hub) -> tuple[NodeMetrics, list[tuple[int, int]]]:
    """A node's counts after some requests, and the bytes of each request and answer."""
    metrics, sizes = NodeMetrics(site), list[tuple[int, int]]()
    node = Node({site.name: site}, tell=metrics.count)
    for request in (hub.request("hello"), hub.request("round", b"nonsense")):
        frame = request.to_bytes()
        sizes.append((len(frame), len(node.answer(frame) or b"")))
    return metrics, sizes


def test_answers_and_bytes_are_those_that_the_hub_sees(tmp_path: Path):
    site = owned_site(tmp_path / "north")
    metrics, sizes = counted(site, hub_of(tmp_path, [site]))
    text = metrics.text()
    assert value_of(text, ANSWERS.name, verb="hello", code="DONE") == 1
    assert value_of(text, ANSWERS.name, verb="round", code="ABSENT") == 1
    down, up = (sum(size[k] for size in sizes) for k in range(2))
    assert value_of(text, BYTES.name, direction="in") == down
    assert value_of(text, BYTES.name, direction="out") == up


def test_metrics_name_nothing_of_the_site_and_no_seconds(tmp_path: Path):
    site = owned_site(tmp_path / "north")
    metrics, _ = counted(site, hub_of(tmp_path, [site]))
    text = metrics.text()
    for word in ("north", "data.npz", str(tmp_path), "trial-1", "broadcast"):
        assert word not in text
    names = {name for name, _ in read_metrics(text)}
    assert names == {ANSWERS.name, BYTES.name, LAST.name}
    assert not [f for f in FAMILIES if "seconds" in f.name and f is not LAST]


def test_metrics_of_sites_with_other_rows_are_the_same(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(watch.time, "time", lambda: 1e9)
    texts = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        site = owned_site(folder / "north", seed=seed)
        metrics, _ = counted(site, hub_of(folder, [site]))
        texts.append(metrics.text())
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_the_budget_is_shown_where_site_toml_says_so(tmp_path: Path):
    site = owned_site(tmp_path / "north")
    hub = hub_of(tmp_path, [site])
    metrics, _ = counted(site, hub)
    path = site / "site.toml"
    before = path.read_text()
    path.write_text(before.replace("metrics_budget = false", "metrics_budget = true"))
    text = metrics.text()
    assert value_of(text, watch.BUDGET.name) == 6
    assert (value_of(text, watch.SPENT.name), value_of(text, watch.LEFT.name)) == (0, 6)
    charge(site_ledger(site, "trial-1"), Gaussian(2.0))
    spent, left = (value_of(metrics.text(), f.name) for f in (watch.SPENT, watch.LEFT))
    assert 0 < spent < 6 < spent + left
    path.write_text(before)
    assert watch.SPENT.name not in metrics.text()


@pytest.mark.parametrize(
    ("verb", "code", "labels"),
    [
        ("hello", "REFUSED", ("hello", "REFUSED")),
        ("", "REFUSED", ("other", "REFUSED")),
        ('x"} 1', "DONE", ("other", "DONE")),
        ("round", "nonsense", ("round", "other")),
    ],
)
def test_no_label_takes_a_text_of_the_hub(
    verb: str, code: str, labels: tuple[str, str], tmp_path: Path
):
    metrics = NodeMetrics(owned_site(tmp_path / "north"))
    metrics.count(Served("north", verb, "r", code, 0.0))
    assert value_of(metrics.text(), ANSWERS.name, verb=labels[0], code=labels[1]) == 1


def test_every_code_of_the_wire_is_a_label():
    assert {code.name for code in Code} == set(Code.__members__)
