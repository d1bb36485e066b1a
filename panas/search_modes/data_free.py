"""`data-free`: genomes are scored on noise (`panas.evolution.fitness`).

Privacy: no sample is read, nobody's; epsilon 0. A genome scores the same at all sites.
"""

from panas.data.search_split import SearchData
from panas.evolution.fitness import DataFreeFitness
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionResult
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.search_modes.mode import SearchMode, SearchPlan, SearchPrice, SearchSite


class _DataFree:
    """Scores genomes on noise."""

    protected = True
    needs_public = False
    least_search = 0
    reads_samples = False

    def price(self, site: SearchSite, *, paid: bool) -> SearchPrice:
        return SearchPrice(0.0, "noise")

    def pay(self, site: SearchSite) -> None:
        """Charge nothing."""

    def data(self, site: SearchSite, histogram: list[float] | None) -> SearchData:
        raise BadInput("expected a search mode that looks at samples, got data-free; use another")

    def search(
        self, site: SearchSite, histogram: list[float] | None, plan: SearchPlan
    ) -> EvolutionResult:
        problem = SearchProblem(plan.space, DataFreeFitness(plan.spec, site.seed), plan.size)
        return evolve(problem, config=plan.config, rng=site.rng("search"), execution=plan.execution)


MODE: SearchMode = _DataFree()
