"""One site alone: data, architecture search, hyperparameter search, training and privacy.

`panas.search`, `panas.tune` and `panas.load` are the three to start with. The names below are
public; modules further down may change.
"""

from typing import TYPE_CHECKING

from panas.runtime.faces import face

if TYPE_CHECKING:
    from panas.api import load as load
    from panas.api import search as search
    from panas.api import tune as tune
    from panas.architecture.genome import Genome as Genome
    from panas.architecture.network import NetworkSpec as NetworkSpec
    from panas.architecture.network import build_bottom as build_bottom
    from panas.architecture.space import SearchSpace as SearchSpace
    from panas.data.arrays import as_samples as as_samples
    from panas.data.samples import Samples as Samples
    from panas.evolution.records import EvolutionConfig as EvolutionConfig
    from panas.privacy.accounting.epsilon import epsilon as epsilon
    from panas.privacy.accounting.events import Gaussian as Gaussian
    from panas.privacy.accounting.events import SampledGaussian as SampledGaussian
    from panas.privacy.budget import Budget as Budget
    from panas.privacy.calibration import calibrate as calibrate
    from panas.privacy.gradients.private import PrivateGradient as PrivateGradient
    from panas.privacy.ledger.charge import Charge as Charge
    from panas.privacy.ledger.ledger import Ledger as Ledger
    from panas.privacy.noise import SystemNoise as SystemNoise
    from panas.privacy.plan import Plan as Plan
    from panas.privacy.plan import TrainingSchedule as TrainingSchedule
    from panas.runtime.errors import BadInput as BadInput
    from panas.runtime.errors import BudgetExhausted as BudgetExhausted
    from panas.runtime.errors import PanasError as PanasError
    from panas.training.sgd import OptimizerConfig as OptimizerConfig
    from panas.tuning.space import DPSGDSettings as DPSGDSettings
    from panas.tuning.space import TuningSpace as TuningSpace
    from panas.tuning.trial import TuningConfig as TuningConfig

__getattr__, __dir__, __all__ = face(__name__, __file__)
