"""The width of a run's map: set, or the same at hub and sites from what both know."""

from map_facts import image_facts

from dprbft.config.files import build_config
from dprbft.config.map_width import USUAL, width_of_map

FACTS = image_facts(1, 28, 28, dtype="uint8", classes=10)


def width(samples: int | None = None, trust: str = "server", **privacy: object) -> int:
    federation = {"method": "joined", "clients": 10}
    config = build_config({"federation": federation, "privacy": {"trust": trust, **privacy}})
    return width_of_map(config, FACTS, 0, samples)


def test_what_is_set_stands():
    config = build_config({"federation": {"method": "joined"}, "network": {"features": 300}})
    assert width_of_map(config, FACTS, 1000) == 300


def test_without_declared_samples_the_usual_number_counts():
    assert width(epsilon=1.0) == width(USUAL, epsilon=1.0) > width(100, epsilon=1.0)


def test_a_secure_sum_bears_more_coordinates():
    assert width(200, trust="auto", epsilon=3.0) > width(200, epsilon=3.0)


def test_of_different_budgets_the_middle_one_counts():
    epsilons = (0.5, 0.5, 0.5, 0.5, 0.5, 3.0, 8.0, 8.0, 8.0, 8.0)
    assert width(epsilons=epsilons) == width(epsilon=3.0)
