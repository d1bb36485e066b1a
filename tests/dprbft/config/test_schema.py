"""The configuration: defaults, presets, layers, refusals, and the round trip through TOML."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dprbft.config.files import build_config, load_config, save_config
from dprbft.config.presets import PRESETS
from dprbft.config.schema import RunConfig
from dprbft.config.toml import read_toml
from panas.runtime.errors import BadInput
from panas.runtime.pool import default_workers

INFINITE: dict[str, Any] = {"privacy": {"epsilon": math.inf, "allow_unprotected": True}}


@pytest.mark.parametrize("layer", [*({"preset": preset} for preset in PRESETS), INFINITE])
def test_settings_survive_files_and_workers(layer: dict[str, Any], tmp_path: Path):
    config = build_config(layer)
    save_config(tmp_path, config)
    assert load_config(tmp_path) == config
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_sound_presets_protect_what_leaves_and_paper_says_that_it_does_not():
    for preset in ("sound", "demo"):
        p = build_config({"preset": preset}).privacy
        assert (p.search, p.allow_unprotected) == ("public-proxy", False)
        assert p.release != "raw_rows"
        assert math.isfinite(p.epsilon)
    p = build_config({"preset": "paper"}).privacy
    assert (p.search, p.release, p.allow_unprotected) == ("unaccounted", "raw_rows", True)


def test_later_layers_win_over_earlier_ones_and_over_the_preset():
    config = build_config(
        {"preset": "demo", "federation": {"method": "dprbft", "rounds": 5, "clients": 3}},
        {"federation": {"rounds": 7}},
    )
    assert (config.federation.rounds, config.federation.clients) == (7, 3)
    assert config.search.evolution.population == PRESETS["demo"]["search"]["population"]


def test_presets_themselves_are_not_changed_by_a_merge():
    before = repr(PRESETS)
    build_config({"preset": "paper", "search": {"population": 3}})
    assert repr(PRESETS) == before


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValidationError):
        build_config().network.width = 3


ROUNDS: dict[str, Any] = {"federation": {"method": "dprbft"}}


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({"preset": "best"}, "preset"),
        ({"sarch": {}}, "sarch"),
        ({"search": {"popluation": 3}}, "search.popluation"),
        ({"search": 3}, "search"),
        ({"search": {"evolution": {"population": 3}}}, "evolution"),
        ({"search": {"momentum": 0.5}}, "search.momentum"),
        ({"search": {"population": "many"}}, "search.population"),
        ({"search": {"population": 0}}, "search: expected generations >= 0 and a population"),
        ({"search": {"population": 1}}, "search: expected generations >= 0 and a population"),
        ({"search": {"mutation": 1.5}} | ROUNDS, "search: expected crossover and mutation"),
        ({"search": {"epochs": 0}}, "search.epochs"),
        ({"search": {"max_blocks": 0}}, "search.max_blocks"),
        ({"tuning": {"batch_sizes": "few"}} | ROUNDS, "tuning.batch_sizes"),
        ({"training": {"learning_rate": math.inf}} | ROUNDS, "training: expected learning_rate"),
        ({"training": {"warm_learning_rate": 0}} | ROUNDS, "training.warm_*: expected"),
        ({"training": {"warm_batch_size": "few"}} | ROUNDS, "training.warm_batch_size"),
        ({"training": {"noise_multiplier": 0.0}}, "training.noise_multiplier"),
        ({"federation": {"participation": 0.0}}, "federation.participation"),
        ({"federation": {"partition": "fair"}}, "federation.partition"),
        ({"federation": {"clients": "many"}}, "federation.clients"),
        ({"privacy": {"epsilon": 0}}, "privacy.epsilon"),
        ({"privacy": {"epsilon": math.nan}}, "privacy.epsilon"),
        ({"privacy": {"epsilon": math.inf}}, "allow_unprotected"),
        ({"privacy": {"epsilons": [1.0, 2.0]}}, "privacy.epsilons"),
        ({"privacy": {"epsilons": [1.0, 2.0, 3.0, math.inf]}}, "allow_unprotected"),
        ({"privacy": {"delta": 1}}, "privacy.delta"),
        (
            {
                "privacy": {"release": "public_rows", "search": "data-free"},
                "data": {"public_fraction": 0},
                **ROUNDS,
            },
            "public samples for privacy.release = public_rows",
        ),
        ({"privacy": {"release": "raw_rows"}} | ROUNDS, "allow_unprotected"),
        ({"privacy": {"search": "unaccounted"}}, "allow_unprotected"),
        (
            {
                "data": {"public_fraction": 0},
                "privacy": {"search": "public-proxy"},
                "federation": {"method": "dprbft"},
            },
            "public_fraction",
        ),
        ({"data": {"test_fraction": 0}}, "test_fraction"),
        ({"network": {"norm": "batch"}} | ROUNDS, "network.norm"),
        ({"federation": {"rounds": 3}}, "setting of method joined, got federation.rounds"),
        ({"federation": {"method": "dprbft", "options": {}}}, "got federation.options"),
        ({"training": {"epochs": 3}}, "use --method dprbft or local"),
        ({"network": {"unit": False}, "federation": {"method": "dprbft"}}, "network.unit"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(layer: dict, named: str):
    with pytest.raises(BadInput) as e:
        build_config(layer)
    text = str(e.value)
    assert named in text
    assert "expected" in text
    assert "\n" not in text


def test_a_preset_is_no_way_around_the_word_unprotected():
    with pytest.raises(BadInput, match="allow_unprotected"):
        build_config({"preset": "paper", "privacy": {"allow_unprotected": False}})


def test_each_client_may_have_a_budget_of_its_own():
    config = build_config({"federation": {"clients": 2}, "privacy": {"epsilons": [1.0, 4.0]}})
    assert [config.budget(i).epsilon for i in range(2)] == [1.0, 4.0]
    assert [build_config().budget(i).epsilon for i in range(4)] == [8.0] * 4


def test_norm_is_group_as_soon_as_one_client_is_private():
    free = {"allow_unprotected": True}
    two = {"federation": {"clients": 2}}
    assert build_config().norm == "group"
    assert not build_config(INFINITE).budget(0).private
    assert build_config({"privacy": free | {"epsilon": math.inf}}).norm == "batch"
    mixed = build_config(two, {"privacy": free | {"epsilons": [math.inf, 1.0]}})
    assert mixed.norm == "group"
    chosen = {"network": {"norm": "group"}, "privacy": free | {"epsilon": math.inf}}
    assert build_config(chosen | ROUNDS).norm == "group"


def test_toml_that_is_missing_or_broken_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match=r"found none|got none"):
        read_toml(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    for content in (b"search = {", b"\xff\xfe\x00"):
        broken.write_bytes(content)
        with pytest.raises(BadInput, match="expected TOML"):
            read_toml(broken)
    with pytest.raises(BadInput, match="run directory"):
        load_config(tmp_path)


def test_workers_are_at_most_the_clients_and_the_cores():
    assert default_workers() == len(os.sched_getaffinity(0))


def test_where_nothing_is_public_a_search_by_default_needs_nothing_public():
    rounds = {"federation": {"method": "dprbft"}}
    assert build_config(rounds).privacy.search == "public-proxy"
    for data in ({"public_fraction": 0}, {"dataset": "scans.npz"}, {"public_limit": 0}):
        assert build_config(rounds, {"data": data}).privacy.search == "data-free"
        assert not build_config({"data": data}).has_inputs
        assert not build_config({"data": data}).has_networks
        staying = {"data": data, "privacy": {"network": "stays"}}
        assert build_config(staying).has_networks
    for data in ({"dataset": "a.npz", "public_fraction": 0.1}, {"public_data": "b.npz"}):
        assert build_config(rounds, {"data": data}).privacy.search == "public-proxy"
        assert build_config({"data": data}).has_inputs
    with pytest.raises(BadInput, match="data-free"):
        build_config(rounds, {"data": {"dataset": "a.npz"}, "privacy": {"search": "public-proxy"}})


def test_public_samples_without_labels_are_nothing_to_search_on_by_labels():
    data = {"dataset": "a.npz", "unlabelled_data": "b.npz"}
    with pytest.raises(BadInput, match=r"got data\.unlabelled_data"):
        build_config({"data": data} | ROUNDS)
    assert build_config({"data": data}).privacy.search == "public-proxy"  # by agreement
    assert not build_config().data.source.has_unlabelled
    assert build_config({"data": {"public_labels": 20}}).data.source.has_unlabelled


@pytest.mark.parametrize("key", ["sites", "client_data", "remote"])
def test_a_share_of_data_that_come_split_cannot_become_public(key: str):
    split = {"federation": {key: ["a", "b"], "clients": 2}}
    for allowed in ({}, {"public_fraction": 0}, {"public_data": "open.npz"}):
        for preset in ("sound", "demo"):
            build_config(split, {"preset": preset, "data": allowed})
    for method in ("joined", "dprbft"):
        share = {"data": {"public_fraction": 0.1}, "federation": {"method": method}}
        with pytest.raises(
            BadInput, match=r"come split, got 0\.1 of theirs; give data\.public_data"
        ):
            build_config(split, share)


SECURE = {
    "federation": {"method": "joined", "clients": 4},
    "privacy": {"trust": "secure-sum"},
}


@pytest.mark.parametrize(
    ("sites", "missing"), [(3, 0), (4, 1), (5, 1), (6, 1), (7, 1), (10, 1), (50, 5)]
)
def test_a_secure_sum_bears_a_tenth_of_its_sites_and_less_than_a_third(sites: int, missing: int):
    federation = {"method": "joined", "clients": sites, "secure_minimum": 3}
    config = build_config(SECURE, {"federation": federation})
    assert config.secure_sum
    assert config.federation.secure_missing_of(sites) == missing
    assert 3 * missing < sites


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"federation": {"clients": 3}}, "at least federation.secure_minimum = 4 sites"),
        ({"federation": {"secure_missing": 2}}, "secure_missing of at most 1"),
        ({"federation": {"method": "dprbft"}}, "of method dprbft, got privacy.trust"),
        ({"federation": {"method": "fedavg"}}, "of method fedavg, got privacy.trust"),
        ({"privacy": {"release": "class_sums"}}, "of method joined, got privacy.release"),
        ({"federation": {"secure_minimum": 2}}, "secure_minimum"),
    ],
)
def test_a_secure_sum_that_cannot_be_is_refused(wrong: dict[str, dict[str, object]], told: str):
    build_config(SECURE)
    with pytest.raises(BadInput, match=told) as refused:
        build_config(SECURE, wrong)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "summed"),
    [
        ({}, True),
        ({"federation": {"clients": 3}}, False),
        ({"federation": {"clients": 3, "secure_minimum": 3}}, True),
        ({"federation": {"clients": 9, "secure_minimum": 10}}, False),
        ({"privacy": {"trust": "server"}}, False),
        ({"federation": {"method": "dprbft"}}, False),
        ({"federation": {"method": "fedavg"}}, False),
        ({"preset": "paper"}, False),
    ],
)
def test_by_default_there_is_a_secure_sum_where_public_facts_allow_one(
    settings: dict[str, object], summed: bool
):
    config = build_config(settings)
    assert config.secure_sum == summed


@pytest.mark.parametrize("method", ["fedavg", "feathers"])
def test_only_releases_are_compressed(method: str):
    config = {"federation": {"compression": "int8"}}
    build_config(config, {"federation": {"method": "dprbft"}})
    build_config(config, {"privacy": {"trust": "server"}})
    with pytest.raises(BadInput, match=f"of method {method}, got federation.compression"):
        build_config(config, {"federation": {"method": method}})
    with pytest.raises(BadInput, match="compression = none for a secure sum"):
        build_config(SECURE, config)
