"""The search for a student's architecture: the more it agrees with the shared head, the fitter.

All sites begin with the same genomes, and keep what each has learnt beside the public samples where
they share a disk: a genome that one site has trained serves all others.
"""

from pathlib import Path

import torch

from dprbft.messages import Hello
from dprbft.paths import CANDIDATES, hello_file
from dprbft.site.predictor.state import JoinedState
from dprbft.site.predictor.student import learnt_from, shared_teacher
from dprbft.site.site import Client
from panas.evolution.agreement import AgreementFitness
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionResult
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.search_modes.mode import SearchPlan
from panas.training.distillation import SoftSamples

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
    fitness = AgreementFitness(
        taught=SoftSamples(inputs.take(taught), answers[taught]),
        held_out=SoftSamples(inputs.take(rest), answers[rest]),
        histogram=torch.tensor(state.histogram),
        spec=plan.spec,
        optimizer=plan.optimizer,
        seed=seed,
        client=client.id,
        augment=not client.facts.columns,
        cache=_common_folder(client),
        device=plan.device,
    )
    problem = SearchProblem(plan.space, fitness, plan.size, prior_of(plan.spec.shape))
    rng = stream(seed, "students")
    return evolve(problem, config=plan.config, rng=rng, execution=plan.execution)


def _common_folder(client: Client) -> Path | None:
    """Where sites on one machine share what they have trained on public samples."""
    hello = Hello.from_bytes(hello_file(client.home).read_bytes())
    return Path(hello.map).parent / CANDIDATES if hello.map else None
