"""One site alone: data, architecture search, hyperparameter search, training and privacy.

`panas.search`, `panas.tune` and `panas.load` are the three to start with. The names below are
public; modules further down may change.
"""

from typing import TYPE_CHECKING

from panas.runtime.faces import face

if TYPE_CHECKING:
    from panas.api import load, search, tune
    from panas.architecture.genome import Genome
    from panas.architecture.network import NetworkSpec, build_bottom
    from panas.architecture.space import SearchSpace
    from panas.evolution.records import EvolutionConfig
    from panas.privacy.accounting.epsilon import epsilon
    from panas.privacy.budget import Budget
    from panas.privacy.calibration import calibrate
    from panas.privacy.gradients.private import PrivateGradient
    from panas.privacy.ledger.ledger import Ledger
    from panas.privacy.noise import SystemNoise
    from panas.privacy.schedule import TrainingSchedule
    from panas.runtime.errors import BadInput, BudgetExhausted, PanasError
    from panas.training.sgd import OptimizerConfig
    from panas.tuning.space import DPSGDSettings, TuningSpace
    from panas.tuning.trial import TuningConfig

__all__ = [
    "BadInput",
    "Budget",
    "BudgetExhausted",
    "DPSGDSettings",
    "EvolutionConfig",
    "Genome",
    "Ledger",
    "NetworkSpec",
    "OptimizerConfig",
    "PanasError",
    "PrivateGradient",
    "SearchSpace",
    "SystemNoise",
    "TrainingSchedule",
    "TuningConfig",
    "TuningSpace",
    "build_bottom",
    "calibrate",
    "epsilon",
    "load",
    "search",
    "tune",
]

__getattr__ = face(
    __name__,
    {
        "BadInput": "runtime.errors",
        "Budget": "privacy.budget",
        "BudgetExhausted": "runtime.errors",
        "DPSGDSettings": "tuning.space",
        "EvolutionConfig": "evolution.records",
        "Genome": "architecture.genome",
        "Ledger": "privacy.ledger.ledger",
        "NetworkSpec": "architecture.network",
        "OptimizerConfig": "training.sgd",
        "PanasError": "runtime.errors",
        "PrivateGradient": "privacy.gradients.private",
        "SearchSpace": "architecture.space",
        "SystemNoise": "privacy.noise",
        "TrainingSchedule": "privacy.schedule",
        "TuningConfig": "tuning.trial",
        "TuningSpace": "tuning.space",
        "build_bottom": "architecture.network",
        "calibrate": "privacy.calibration",
        "epsilon": "privacy.accounting.epsilon",
        "load": "api",
        "search": "api",
        "tune": "api",
    },
)
