"""The search for a student's architecture: the more it agrees with the shared head, the fitter.

The search looks at public samples and the shared head, which are the same for all sites, with all
classes alike. It is one search for all of them, and where sites share a disk each reads the first
one's (`search_in_common`). It begins with what one would build by hand (`plain_genome`), beside
random genomes. Of pictures a site takes that one unless another surely agrees better: a training of
300 steps ranks genomes roughly, and a long one undoes small leads. Of a table it takes the cheapest
of all that agree as well as the best. `benchmarks.students` compares this with a search for every
site.

Where candidates are kept in a common folder (`panas.evolution.fitness`), a second site's search
meets the same candidates in the same order. So it takes the first one's generations over, with no
sample-passes of its own.

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
import torch

from dprbft.config.sections import Search
from dprbft.methods.joined.inputs import as_read, learnt_from, network_spec, trunk_for
from dprbft.methods.joined.state import JoinedState
from dprbft.methods.joined.student import (
    MANY,
    AnyTeacher,
    are_few,
    encoding_once,
    shared_teacher,
)
from dprbft.site.site import Site
from panas.architecture.genome import Genome
from panas.architecture.operators import plain_genome
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.evolution.fitness import AgreementFitness, chosen_for
from panas.evolution.genetic import HERE, evolve
from panas.evolution.records import EvolutionConfig, EvolutionResult, GenerationRecord
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal
from panas.runtime.seeds import stream
from panas.runtime.store import read_json, write_json
from panas.search_modes.mode import SearchPlan
from panas.training.common import want
from panas.training.distillation import SoftSamples, long_enough, made_of
from panas.training.made_rows import Layout, made_rows


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
        problem: space, fitness, size and prior.
        fitness: that of the problem: the same for all sites but for the site's number; its `cache`
            is their common folder.
        config: sizes and probabilities.
        rng: in the same state at all sites.
        execution: processes, journal and progress.
    """
    if fitness.cache is None or config.seconds is not None:
        return evolve(problem, config=config, rng=rng, execution=execution)
    journal = Journal(None, {}) if execution.journal is None else execution.journal
    execution = replace(execution, journal=journal)
    path = fitness.cache / f"search-{_key(problem, fitness, config, rng)}.json"
    if not journal.lines and path.is_file():
        for line in _lines(path, problem, fitness.site):
            record = GenerationRecord.from_json(line, problem.space.blocks)
            execution.finished(record, line)
    result = evolve(problem, config=config, rng=rng, execution=execution)
    # What failed may have been killed: another site tries it again.
    if not path.is_file() and not any(e.failed for e in result.history):
        write_json(path, {"client": fitness.site, "generations": journal.lines})
    return result


def _key(
    problem: SearchProblem,
    fitness: AgreementFitness,
    config: EvolutionConfig,
    rng: np.random.Generator,
) -> str:
    """Stands for all that decides a search, but for a second objective; see `_lines`."""
    decided = [fitness.common, fitness.held_out.targets.tolist(), fitness.histogram.tolist()]
    decided += [repr(problem.space), str(problem.plain), repr(config), rng.bit_generator.state]
    content = json.dumps(decided, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _lines(path: Path, problem: SearchProblem, site: int) -> Sequence[Mapping[str, Any]]:
    """The kept generations as this site's; none if sizes were measured otherwise."""
    kept = read_json(path)
    lines: list[dict[str, Any]] = kept["generations"]
    for candidate in (e for line in lines for e in line["history"]):
        genome = Genome.parse(candidate["genome"], problem.space.blocks)
        if candidate["size"] != (problem.size(genome) if problem.size else 0.0):
            return []
    if kept["client"] != site:  # it was another site that took the passes
        for line in lines:
            line["passes"] = 0
            line["history"] = [e | {"passes": 0} for e in line["history"]]
    return lines


BEHIND = 3
"""Times as many steps has a candidate behind an encoder's layers: wide blocks lead late. A student
has as many fewer to take."""

HELD_OUT = 0.3  # share of the public samples that a student is not taught
MADE = (MANY, 300)  # pictures that are taught, and that judge, where images are few
MADE_ROWS = (1000, 1000)  # rows made of a table's public ones, that are taught, and that judge


def search_student(site: Site, plan: SearchPlan) -> EvolutionResult:
    """Search a student's genome.

    BadInput without samples to learn from, or a shared head.

    Privacy: reads public samples, the shared head and the site's noised histogram; epsilon 0.
    """
    state, inputs = JoinedState.read(site), learnt_from(site)
    state.check_joined()
    if len(inputs) < 2:
        raise BadInput(
            f"expected public samples for networks to learn from, got {len(inputs)}; give "
            "data.public_data or data.unlabelled_data"
        )
    alike = common_fitness(site, state)
    prior, plain = prior_of(plan.spec.shape), plain_genome(plan.space)
    problem = SearchProblem(plan.space, alike, plan.size, prior, plain)
    rng = stream(site.config.seed, "students")
    result = search_in_common(problem, alike, config=plan.config, rng=rng, execution=plan.execution)
    own = replace(alike, histogram=torch.tensor(state.histogram))
    # Of pictures a short training tells little of what a long one brings.
    chosen = chosen_for(result, own, plain if site.facts.are_pictures else None)
    want(site.common, chosen.best)
    return chosen


def common_fitness(site: Site, state: JoinedState) -> AgreementFitness:
    """The fitness of all sites' searches: agreement with the shared head, all classes alike.

    Args:
        site: whose public samples are looked at, at least two.
        state: of a site that has the shared head.
    """
    search = site.config.search
    taught, held_out = _lessons(learnt_from(site), shared_teacher(site, state), site)
    behind = trunk_for(site) is not None
    return AgreementFitness(
        taught=taught,
        held_out=held_out,
        histogram=torch.ones(site.spec.classes),
        spec=network_spec(site),
        optimizer=long_enough(search.optimizer, len(taught), candidate_steps(search, behind)),
        seed=site.config.seed,
        site=site.id,
        cache=site.common,
        device=str(site.device),
        changed="thinned" if behind else None,
    )


def candidate_steps(search: Search, behind: bool) -> int:
    """Steps of a candidate's training, at least.

    Args:
        search: settings.
        behind: whether its blocks come after an encoder's layers.
    """
    return BEHIND * search.student_steps if behind else search.student_steps


def _lessons(inputs: Samples, ask: AnyTeacher, site: Site) -> tuple[SoftSamples, SoftSamples]:
    """What students are taught, and what they are judged by, none of it made of the same samples.

    Where images are few, pictures made of them: a dozen samples would rank genomes by chance. Of a
    table always rows made of public ones.
    """
    rng = stream(site.config.seed, "student", "held-out")
    order = torch.from_numpy(rng.permutation(len(inputs)))
    rest, taught = order.tensor_split([_held_out(len(inputs))])
    parts = [inputs.take(at) for at in (taught, rest)]
    if site.facts.are_rows:
        layout = Layout.of(site.facts)
        first, last = (
            made_rows(part, layout, n, teacher=ask, rng=rng)
            for part, n in zip(parts, MADE_ROWS, strict=True)
        )
    elif are_few(site.facts, len(inputs), behind=trunk_for(site) is not None):
        made = (
            made_of(part, n, teacher=encoding_once(site, ask), rng=rng)
            for part, n in zip(parts, MADE, strict=True)
        )
        first, last = (SoftSamples(as_read(site, m.samples), m.targets) for m in made)
    else:
        read = as_read(site, inputs)
        first, last = (SoftSamples(read.take(at), ask(inputs.take(at))) for at in (taught, rest))
    return first, last


def taught_to_candidates(facts: Facts, inputs: int, *, behind: bool = False) -> int:
    """How many samples each candidate is taught where so many are public; 0 of fewer than two.

    Args:
        facts: of the samples.
        inputs: how many are public.
        behind: whether its blocks come after an encoder's layers.
    """
    if inputs < 2:
        return 0
    if facts.are_rows:
        return MADE_ROWS[0]
    few = are_few(facts, inputs, behind=behind)
    return MADE[0] if few else inputs - _held_out(inputs)


def _held_out(inputs: int) -> int:
    return max(1, round(HELD_OUT * inputs))
