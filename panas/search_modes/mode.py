"""What a search mode is: what it looks at, what that costs, and how it searches.

| mode | looks at | charged to | epsilon |
|---|---|---|---|
| `public-proxy` | public samples, resampled to a noised label histogram | train | the histogram's |
| `data-free` | noise | nothing | 0 |
| `unaccounted` | the private search split (the paper) | search | infinity |

Every other module of this folder is a mode: its name is the module's, with "-" for "_", and its
`MODE` is a `SearchMode`. The search split and the training samples are disjoint parts
of a site's data, declared before either is touched: they compose in parallel.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules

import numpy as np

from panas import search_modes
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.samples import Samples, concat
from panas.data.splits import SearchData
from panas.evolution.fitness import DataFreeFitness, TrainingFitness
from panas.evolution.genetic import HERE, evolve
from panas.evolution.records import EvolutionConfig, EvolutionResult, GenerationRecord, GenomeScore
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.privacy.accounting.events import Event
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.seeds import stream
from panas.training.sgd import OptimizerConfig

WHOEVER = "whoever sees the architecture"


@dataclass(frozen=True, kw_only=True)
class SearchSite:
    """What a mode may use of a site."""

    id: int
    seed: int
    train: Samples  # private; all that is read of them is charged first
    units: int  # about how many there are (or groups), a public number
    search: Samples  # private; empty where the mode needs none
    public: Samples
    warm_start: bool  # whether networks train on public samples first
    ledger: Ledger  # its account is open
    histogram_share: float  # share of epsilon that a label histogram may cost, in (0, 1)
    recipient: str = WHOEVER  # of the histogram

    @property
    def account(self) -> Account:
        """What the run has spent of its share, as the ledger has it now."""
        return self.ledger.account().of_run(self.ledger.run)

    def rng(self, purpose: str) -> np.random.Generator:
        """The run's random numbers for one purpose of this site."""
        return stream(self.seed, "client", self.id, purpose)


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """How to search, whatever the samples."""

    spec: NetworkSpec
    space: SearchSpace
    config: EvolutionConfig
    optimizer: OptimizerConfig  # the short training that gives a genome its fitness
    size: GenomeScore | None = None  # second objective
    device: str = "cpu"
    execution: Execution[GenerationRecord] = HERE


@dataclass(frozen=True)
class SearchPrice:
    """What a whole search, tuning included, will have cost."""

    epsilon: float  # as the ledger will show it for the search
    reason: str
    """What is paid for: "noise" (costs nothing), "unbounded", "histogram", "histogram kept" (paid
    already) or "no histogram" (the budget affords none)."""
    event: Event | None = None  # that is still to be charged


@dataclass(frozen=True, kw_only=True)
class SearchMode:
    """What a site's search looks at."""

    price: Callable[[SearchSite, bool], SearchPrice]
    """What the search will have cost, before it begins; reads no private sample. The second says
    whether the site has its label histogram already."""
    pay: Callable[[SearchSite], list[float] | None]
    """Charges a new search to the ledger, then returns its label histogram; None for none."""
    data: Callable[[SearchSite, list[float] | None], SearchData]
    """What the search looks at, given what `pay` returned; `BadInput` if no samples."""
    protected: bool = True  # whether a ledger can bound what the search costs
    needs_public: bool = False  # whether it needs public samples
    least_search: int = 0  # fewest samples of a private search split; 0 if it needs none
    reads_samples: bool = True
    """Whether it looks at samples, which tuning can learn from too, or at noise."""

    def search(
        self, site: SearchSite, histogram: list[float] | None, plan: SearchPlan
    ) -> EvolutionResult:
        """Search, once `pay` has returned this histogram.

        Args:
            site: samples, ledger and what of epsilon a histogram may cost.
            histogram: what `pay` has returned: noised label counts, or None.
            plan: space, sizes, training and processes.
        """
        if self.reads_samples:
            return search_by_training(self.data(site, histogram), site, plan)
        problem = SearchProblem(plan.space, DataFreeFitness(plan.spec, site.seed), plan.size)
        return evolve(problem, config=plan.config, rng=site.rng("search"), execution=plan.execution)


def mode_names() -> list[str]:
    """All modes: the other modules of this folder, in alphabetical order."""
    modules = [module.name for module in iter_modules(search_modes.__path__)]
    return sorted(name.replace("_", "-") for name in modules if name != "mode")


def mode_named(name: str) -> SearchMode:
    """The mode of a name; another name is `BadInput`."""
    if name == "proxy":
        raise BadInput("expected public-proxy, as proxy is called now, got 'proxy'")
    if name not in mode_names():
        raise BadInput(f"expected a search mode of {', '.join(mode_names())}, got {name!r}")
    mode: SearchMode = import_module(f"panas.search_modes.{name.replace('-', '_')}").MODE
    return mode


def search_by_training(data: SearchData, site: SearchSite, plan: SearchPlan) -> EvolutionResult:
    """The genetic search by validation accuracy after a short training.

    Args:
        data: what trains and validates candidates; proxy samples, or private ones that were
            charged.
        site: for its number and seed; the search draws from them.
        plan: space, sizes, training and processes.
    """
    parts = [replace(part, groups=None) for part in (data.warm, data.train) if len(part)]
    train = concat(parts)  # nothing is protected here
    fitness = TrainingFitness(
        train, data.validation, plan.spec, plan.optimizer, site.seed, site.id, plan.device
    )
    problem = SearchProblem(plan.space, fitness, plan.size, prior_of(plan.spec.shape))
    return evolve(problem, config=plan.config, rng=site.rng("search"), execution=plan.execution)
