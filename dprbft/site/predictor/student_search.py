"""The search for a student's architecture: the more it agrees with the shared head, the fitter.

The search looks at public samples and the shared head, which are the same for all sites, with all
classes alike. It is one search for all of them, and where sites share a disk each reads the first
one's (`dprbft.site.predictor.common_search`). Of all that was trained to the end a site takes the
genome that agrees best in its own class frequencies. `benchmarks.students` compares this with a
search for every site.
"""

from dataclasses import replace

import torch

from dprbft.site.predictor.common_search import search_in_common
from dprbft.site.predictor.state import JoinedState
from dprbft.site.predictor.student import MANY, learnt_from, shared_teacher
from dprbft.site.site import Client
from panas.evolution.agreement import AgreementFitness, chosen_for
from panas.evolution.records import EvolutionResult
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.search_modes.mode import SearchPlan
from panas.training.distillation import SoftSamples, long_enough

HELD_OUT = 0.3  # share of the public samples that a student is not taught


def search_student(client: Client, plan: SearchPlan) -> EvolutionResult:
    """Search a student's genome.

    BadInput without samples to learn from, or a shared head.

    Privacy: reads public samples, the shared head and the site's noised histogram; epsilon 0.
    """
    state, inputs = JoinedState.read(client), learnt_from(client)
    state.check_joined()
    if len(inputs) < 2:
        raise BadInput(
            f"expected public samples for networks to learn from, got {len(inputs)}; give "
            "--public-data or --unlabelled-data"
        )
    answers, seed = shared_teacher(client, state, inputs), client.config.seed
    order = torch.from_numpy(stream(seed, "student", "held-out").permutation(len(inputs)))
    rest, taught = order.tensor_split([max(1, round(HELD_OUT * len(inputs)))])
    alike = AgreementFitness(
        taught=SoftSamples(inputs.take(taught), answers[taught]),
        held_out=SoftSamples(inputs.take(rest), answers[rest]),
        histogram=torch.ones(plan.spec.classes),
        spec=plan.spec,
        optimizer=long_enough(plan.optimizer, len(taught), client.config.search.student_steps),
        seed=seed,
        client=client.id,
        augment=not client.facts.columns and len(inputs) < MANY,
        cache=client.common,
        device=plan.device,
    )
    problem = SearchProblem(plan.space, alike, plan.size, prior_of(plan.spec.shape))
    rng = stream(seed, "students")
    found = search_in_common(problem, alike, config=plan.config, rng=rng, execution=plan.execution)
    return chosen_for(found, replace(alike, histogram=torch.tensor(state.histogram)))
