"""One search for all sites: the first keeps its generations, whoever searches the same reads them.

Where candidates are kept in a common folder (`panas.evolution.agreement`), a second site's search
meets the same candidates in the same order. To go through it again would only repeat what
is known: which candidates are promising, which are dropped. So it takes the kept generations over,
with no sample-passes of its own.

Privacy: a kept search holds what its fitness does: public samples and a protected teacher, with all
classes alike. Nothing of it is a site's.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from panas.architecture.genome import Genome
from panas.evolution.agreement import AgreementFitness
from panas.evolution.genetic import HERE, evolve
from panas.evolution.records import EvolutionConfig, EvolutionResult, GenerationRecord
from panas.evolution.toolbox import SearchProblem
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal
from panas.runtime.store import read_json, write_json


def search_in_common(
    problem: SearchProblem,
    fitness: AgreementFitness,
    *,
    config: EvolutionConfig,
    rng: np.random.Generator,
    execution: Execution[GenerationRecord] = HERE,
) -> EvolutionResult:
    """What `evolve` returns, from the kept generations of another site where there are any.

    Args:
        problem: what to search for; its fitness is `fitness`.
        fitness: the same for all sites, except for the site's number; its `cache` is their common
            folder.
        config: as of `evolve`.
        rng: in the same state at all sites.
        execution: as of `evolve`; a search that has begun goes on by itself.

    """
    if fitness.cache is None or config.seconds is not None:
        return evolve(problem, config=config, rng=rng, execution=execution)
    journal = Journal(None, {}) if execution.journal is None else execution.journal
    execution = replace(execution, journal=journal)
    path = fitness.cache / f"search-{_key(problem, fitness, config, rng)}.json"
    if not journal.lines and path.is_file():
        for line in _lines(path, problem, fitness.client):
            record = GenerationRecord.from_json(line, problem.space.blocks)
            execution.finished(record, line)
    found = evolve(problem, config=config, rng=rng, execution=execution)
    # What failed may have been killed: another site tries it again.
    if not path.is_file() and not any(e.failed for e in found.history):
        write_json(path, {"client": fitness.client, "generations": journal.lines})
    return found


def _key(
    problem: SearchProblem,
    fitness: AgreementFitness,
    config: EvolutionConfig,
    rng: np.random.Generator,
) -> str:
    """Stands for all that decides a search, but for a second objective; see `_lines`."""
    decided = [fitness.common, fitness.held_out.targets.tolist(), fitness.histogram.tolist()]
    decided += [repr(problem.space), repr(config), rng.bit_generator.state]
    content = json.dumps(decided, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _lines(path: Path, problem: SearchProblem, client: int) -> Sequence[Mapping[str, Any]]:
    """The kept generations as this site's; none if sizes were measured otherwise."""
    kept = read_json(path)
    lines: list[dict[str, Any]] = kept["generations"]
    for candidate in (e for line in lines for e in line["history"]):
        genome = Genome.parse(candidate["genome"], problem.space.blocks)
        if candidate["size"] != (problem.size(genome) if problem.size else 0.0):
            return []
    if kept["client"] != client:  # it was another site that took the passes
        for line in lines:
            line["passes"] = 0
            line["history"] = [e | {"passes": 0} for e in line["history"]]
    return lines
