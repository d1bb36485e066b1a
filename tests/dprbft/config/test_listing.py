"""The list of all settings: complete, explained, and true to what a run would do."""

import json

import pytest

from dprbft.config.files import build_config, without_unread
from dprbft.config.flat import flatten
from dprbft.config.listing import OF_HUB, list_settings
from panas.runtime.errors import BadInput


@pytest.mark.parametrize("method", ["joined", "dprbft", "local", "fedavg"])
def test_every_setting_of_a_method_is_listed_with_its_value_and_explained(method: str):
    given = {"federation": {"method": method}}
    settings = list_settings(given)
    written = flatten(without_unread(build_config(given).model_dump(mode="json")))
    assert {s.key: s.value for s in settings} == {
        k: v for k, v in written.items() if k not in OF_HUB
    }
    assert method != "joined" or len(settings) <= 60
    assert [s.key for s in settings if not s.kind or not s.about] == []
    assert {s.key for s in settings if s.is_set} == {"federation.method"}


def test_what_is_set_is_told_from_what_a_preset_and_the_defaults_say():
    given = {"preset": "demo", "search": {"population": 7, "generations": 1}}
    results = {s.key: s for s in list_settings(given)}
    assert {k for k, s in results.items() if s.is_set} == {
        "preset",
        "search.population",
        "search.generations",  # set, to what it would have been
    }
    assert (results["search.population"].value, results["search.population"].default) == (7, 4)
    assert results["search.max_blocks"].value == 5  # the preset's
    assert "federation.rounds" not in results  # nothing that the method reads


def test_units_ranges_and_choices_come_from_where_the_fields_are_declared():
    results = {s.key: s for s in list_settings({})}
    assert "at least 2" in results["search.population"].about  # a docstring of EvolutionConfig
    assert results["privacy.delta"].about.startswith("above 0, below 1")
    assert results["federation.partition"].kind == "one of iid, dirichlet, classes"
    assert results["search.widths"].kind == "list of whole numbers"
    assert "at least 1" in results["search.widths"].about
    assert results["data.limit"].kind == "whole number or none"


def test_infinity_is_a_word_in_json():
    given = {"privacy": {"epsilon": float("inf"), "allow_unprotected": True}}
    results = {s.key: s for s in list_settings(given)}
    assert results["privacy.epsilon"].value == float("inf")
    text = json.dumps([s.to_json() for s in results.values()], allow_nan=False)
    assert '"infinity"' in text


@pytest.mark.parametrize(
    "given",
    [
        {"federation": {"clients": True}},
        {"search": {"population": True}},
        {"training": {"warm_epochs": False}},
        {"seed": True},
        {"data": {"dataset": True}},
    ],
    ids=str,
)
def test_true_is_no_number(given: dict):
    with pytest.raises(BadInput, match="expected a value"):
        build_config(given)
    rounds = {"federation": {"method": "dprbft"}, "search": {"cache": False}}
    assert build_config(rounds).search.evolution.cache is False


def test_texts_as_former_versions_name_them_are_of_the_table():
    former, now = {"data": {"texts": ["zip"]}}, {"data": {"table": {"texts": ["zip"]}}}
    assert build_config(former) == build_config(now)
    assert build_config({"data": {"texts": []}}) == build_config({})
    settings = {s.key: s for s in list_settings(former)}
    assert (settings["data.table"].value, settings["data.table"].is_set) == (
        {"texts": ["zip"]},
        True,
    )
    both = {"data": {"texts": ["zip"], "table": {"dates": "us"}}}
    assert build_config(both).data.source.table == {"texts": ("zip",), "dates": "us"}
    with pytest.raises(BadInput, match="dates of a table"):
        build_config({"data": {"table": {"dates": "uk"}}})
