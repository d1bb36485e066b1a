"""A run that a hub elsewhere asks for is no larger than any that serves."""

from typing import Any

import pytest

from dprbft.config.bounds import check_bounds
from dprbft.config.files import build_config, merge
from panas.data.facts import Facts
from panas.runtime.errors import BadInput

FACTS = Facts(class_names=("a", "b"), shape=(1, 8, 8), dtype="uint8")
FEDERATION: dict[str, Any] = {"federation": {"clients": 2}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"network": {"features": 5000}}, "network.features"),
        ({"search": {"max_blocks": 99, "widths": [4096]}}, "max_blocks times widths"),
        ({"federation": {"options": {"epochs": 10**9}}}, "options.epochs"),
        ({"federation": {"options": {"width": 10**400}}}, "options.width"),
        ({"federation": {"options": {"rate": float("nan")}}}, "options.rate"),
        ({"seed": 10**400}, "seed"),
        ({"federation": {"options": {"hidden": [10**5] * 5, "width": 10**4}}}, "multiplied"),
        ({"federation": {"options": {"hidden": [1] * 10**7}}}, "options.hidden"),
    ],
)
def test_what_would_fill_memory_is_refused_by_name(settings: dict[str, Any], named: str):
    config = build_config(merge(FEDERATION, {"federation": {"method": "fedavg"}}))
    for section, values in settings.items():  # as a hub may send it, by whatever method's rules
        part = getattr(config, section)
        new = part.model_copy(update=values) if isinstance(values, dict) else values
        config = config.model_copy(update={section: new})
    with pytest.raises(BadInput, match=named):
        check_bounds(config, FACTS)


@pytest.mark.parametrize("preset", ["demo", "sound"])
def test_usual_runs_are_within(preset: str):
    check_bounds(build_config(merge(FEDERATION, {"preset": preset})), FACTS)
