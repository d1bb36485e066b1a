"""The tables of large sites and of their networks."""

import pytest

from benchmarks import joining_large, joining_world, networks

HAS = {"fashion-mnist": 70_000, "cifar10": 60_000}


def site(joined: float, alone: float, **candidates: float) -> dict[str, object]:
    ladder = {"public": 0.1, "alone": alone, "joined": joined}
    return {"ladder": ladder, "candidates": candidates, "samples": {"test": 400}}


def test_the_average_stands_beside_the_best_candidate_of_each_site():
    sites = [
        site(0.60, 0.50, network=0.5, shared=0.6),
        site(0.70, 0.64, network=0.71, shared=0.4),
        site(0.50, 0.48, network=0.2, shared=0.64),
    ]
    result = networks.table(sites)
    assert result["joined"] == pytest.approx(0.6)
    assert result["network"] == pytest.approx(0.47)
    assert result["best candidate"] == pytest.approx(0.65)
    assert result["cells at least as good"] == pytest.approx(1 / 3)
    assert result["cells within a standard error"] == pytest.approx(2 / 3)
    assert result["joined over alone"] == pytest.approx([0.06, 0.04 / 3**0.5])


@pytest.mark.parametrize("setting", joining_large.SETTINGS)
def test_the_samples_are_enough_for_all_sites(setting: joining_world.Setting):
    each = setting.n + 100  # and those to validate on
    needed = joining_world.PUBLIC + joining_world.TEST + setting.sites * each
    assert needed <= HAS[setting.dataset]


@pytest.mark.parametrize("promise", networks.PROMISES)
def test_settings_of_the_runs_fit_each_other(promise: str):
    config = networks.config_of(promise, "nowhere", 10, 0)
    assert config.stays == (promise == "stays")
    assert config.federation.family.has_map
