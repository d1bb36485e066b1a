"""Table VI of DPFNAS: the DP-SGD configurations set by hand, and the one that its search found."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class FixedConfiguration(NamedTuple):
    """One row of Table VI."""

    learning_rate: float
    noise_multiplier: float
    clip: float
    rate: float
    """B / n, in (0, 1]."""


FIXED_CONFIGURATIONS: Mapping[str, FixedConfiguration] = MappingProxyType(
    {
        "A": FixedConfiguration(0.01, 1.0, 10.0, 0.2),
        "B": FixedConfiguration(0.01, 1.0, 1.0, 0.2),
        "C": FixedConfiguration(0.01, 2.0, 10.0, 0.2),
        "D": FixedConfiguration(0.01, 1.0, 10.0, 0.02),
        "E": FixedConfiguration(0.0001, 1.0, 10.0, 0.2),
        "DPFNAS": FixedConfiguration(0.001, 1.92, 0.5, 1.0),
    }
)
"""Table VI of DPFNAS: the configurations set by hand, and the one that its search found.

Sigma is fixed in them, so a cumulative budget affords only `panas.privacy.plan.affordable_steps`.
"""
