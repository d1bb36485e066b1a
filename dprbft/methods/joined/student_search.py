"""The search for a student's architecture: the more it agrees with the shared head, the fitter.

The search looks at public samples and the shared head, which are the same for all sites, with all
classes alike. It is one search for all of them, and where sites share a disk each reads the first
one's (`dprbft.methods.joined.common_search`). Of all that was trained to the end a site takes the
genome that agrees best in its own class frequencies. `benchmarks.students` compares this with a
search for every site.
"""

from dataclasses import replace

import torch

from dprbft.methods.joined.common_search import search_in_common
from dprbft.methods.joined.state import JoinedState
from dprbft.methods.joined.student import MANY, are_few, learnt_from, shared_teacher
from dprbft.site.site import Client
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.evolution.agreement import AgreementFitness, chosen_for
from panas.evolution.records import EvolutionResult
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.search_modes.mode import SearchPlan
from panas.training.distillation import SoftSamples, Teacher, long_enough, made_of

HELD_OUT = 0.3  # share of the public samples that a student is not taught
MADE = (MANY, 300)  # pictures that are taught, and that judge, where images are few


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
            "data.public_data or data.unlabelled_data"
        )
    seed = client.config.seed
    taught, held_out = _lessons(inputs, shared_teacher(client, state), client)
    alike = AgreementFitness(
        taught=taught,
        held_out=held_out,
        histogram=torch.ones(plan.spec.classes),
        spec=plan.spec,
        optimizer=long_enough(plan.optimizer, len(taught), client.config.search.student_steps),
        seed=seed,
        client=client.id,
        cache=client.common,
        device=plan.device,
    )
    problem = SearchProblem(plan.space, alike, plan.size, prior_of(plan.spec.shape))
    rng = stream(seed, "students")
    found = search_in_common(problem, alike, config=plan.config, rng=rng, execution=plan.execution)
    return chosen_for(found, replace(alike, histogram=torch.tensor(state.histogram)))


def _lessons(inputs: Samples, ask: Teacher, client: Client) -> tuple[SoftSamples, SoftSamples]:
    """What students are taught, and what they are judged by, none of it made of the same samples.

    Where images are few, pictures made of them: a dozen samples would rank genomes by chance.
    """
    rng = stream(client.config.seed, "student", "held-out")
    order = torch.from_numpy(rng.permutation(len(inputs)))
    rest, taught = order.tensor_split([_held_out(len(inputs))])
    parts = [inputs.take(at) for at in (taught, rest)]
    if are_few(client.facts, len(inputs)):
        first, last = (
            made_of(part, n, teacher=ask, rng=rng) for part, n in zip(parts, MADE, strict=True)
        )
    else:
        first, last = (SoftSamples(part, ask(part.inputs())) for part in parts)
    return first, last


def taught_to_candidates(facts: Facts, inputs: int) -> int:
    """How many samples each candidate is taught where so many are public; 0 of fewer than two."""
    if inputs < 2:
        return 0
    return MADE[0] if are_few(facts, inputs) else inputs - _held_out(inputs)


def _held_out(inputs: int) -> int:
    return max(1, round(HELD_OUT * inputs))
