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
    from panas.data.arrays import as_samples
    from panas.data.samples import Samples
    from panas.evolution.records import EvolutionConfig
    from panas.privacy.accounting.epsilon import epsilon
    from panas.privacy.accounting.events import Gaussian, SampledGaussian
    from panas.privacy.budget import Budget
    from panas.privacy.calibration import calibrate
    from panas.privacy.gradients.private import PrivateGradient
    from panas.privacy.ledger.charge import Charge
    from panas.privacy.ledger.ledger import Ledger
    from panas.privacy.noise import SystemNoise
    from panas.privacy.plan import Plan
    from panas.privacy.schedule import TrainingSchedule
    from panas.runtime.errors import BadInput, BudgetExhausted, PanasError
    from panas.training.sgd import OptimizerConfig
    from panas.tuning.space import DPSGDSettings, TuningSpace
    from panas.tuning.trial import TuningConfig

__all__ = [
    "BadInput",
    "Budget",
    "BudgetExhausted",
    "Charge",
    "DPSGDSettings",
    "EvolutionConfig",
    "Gaussian",
    "Genome",
    "Ledger",
    "NetworkSpec",
    "OptimizerConfig",
    "PanasError",
    "Plan",
    "PrivateGradient",
    "SampledGaussian",
    "Samples",
    "SearchSpace",
    "SystemNoise",
    "TrainingSchedule",
    "TuningConfig",
    "TuningSpace",
    "as_samples",
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
        "Charge": "privacy.ledger.charge",
        "DPSGDSettings": "tuning.space",
        "EvolutionConfig": "evolution.records",
        "Gaussian": "privacy.accounting.events",
        "Genome": "architecture.genome",
        "Ledger": "privacy.ledger.ledger",
        "NetworkSpec": "architecture.network",
        "OptimizerConfig": "training.sgd",
        "PanasError": "runtime.errors",
        "Plan": "privacy.plan",
        "PrivateGradient": "privacy.gradients.private",
        "SampledGaussian": "privacy.accounting.events",
        "Samples": "data.samples",
        "SearchSpace": "architecture.space",
        "SystemNoise": "privacy.noise",
        "TrainingSchedule": "privacy.schedule",
        "TuningConfig": "tuning.trial",
        "TuningSpace": "tuning.space",
        "as_samples": "data.arrays",
        "build_bottom": "architecture.network",
        "calibrate": "privacy.calibration",
        "epsilon": "privacy.accounting.epsilon",
        "load": "api",
        "search": "api",
        "tune": "api",
    },
)


def __dir__() -> list[str]:
    return __all__
