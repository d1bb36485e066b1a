"""DP-SGD settings of a residual, tuned by rehearsals on labelled public samples; "nothing" is one.

A rehearsal draws as many public samples as the site has, in its noised class frequencies, trains a
residual over the shared head with the deployment's noise, clip, batches and steps, and scores it on
other public samples; learning rate and epochs are what is looked for. Where the best is no better
than the shared head alone, nothing is trained, and nothing spent. Too few public samples to tell,
and the settings are those of the rule.

Privacy: reads public samples, the noised histogram and the shared head; epsilon 0.
"""

from dataclasses import asdict, dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from dprbft.paths import tune_log
from dprbft.site.predictor.budget import recipe_of, tuned_schedule
from dprbft.site.predictor.residual import default_settings
from dprbft.site.predictor.state import JoinedState
from dprbft.site.results.records import ByRule, TuningRecord
from dprbft.site.site import Client
from panas.data.search_split import proxy_data
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BudgetExhausted
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal
from panas.runtime.seeds import one_thread, stream
from panas.training.linear.public_head import fit_public_head
from panas.training.linear.residual import fit_residual, zero_residual
from panas.training.linear.ridge import logits
from panas.tuning.bayesian import tune
from panas.tuning.budgeted import BudgetedSpace, ScheduleConstraint
from panas.tuning.space import DPSGDSettings, TuningSpace

FEWEST = 400
"""Labelled public samples from which on a rehearsal can tell settings apart."""
AROUND = 4.0  # times more or less than the rule's learning rate


@dataclass(frozen=True)
class ResidualObjective:
    """Validation accuracy of a residual's settings, on public samples; noise repeats by name."""

    train: Rows
    validation: Rows
    offset: Float[Tensor, "n classes"]  # of `train`
    start: Float[Tensor, "v classes"]  # of `validation`
    units: int  # of the site
    seed: int
    client: int

    @property
    def validation_samples(self) -> int:
        """How many samples an accuracy is the share of."""
        return len(self.validation.y)

    @property
    def nothing(self) -> float:
        """Accuracy without a residual."""
        return float((self.start.argmax(1) == self.validation.y).double().mean())

    def __call__(self, settings: DPSGDSettings) -> float:
        """Train with some settings, and score."""
        named = ", ".join(f"{k}={v!r}" for k, v in asdict(settings).items())
        rng = stream(self.seed, "client", self.client, "residual", named)
        n, rate = len(self.train.y), min(1.0, settings.batch_size / self.units)
        plan = Plan(
            samples=n,
            batch_size=max(1, round(rate * n)),
            clip=settings.clip,
            noise_multiplier=settings.noise_multiplier,
            epochs=settings.epochs or 1,
            rounds=1,
        )
        residual = zero_residual(self.train.z.shape[1], self.offset.shape[1])
        with one_thread():
            fit_residual(
                residual,
                self.train,
                self.offset,
                plan=plan,
                learning_rate=settings.learning_rate,
                noise=ReproducibleNoise(rng),
            )
            with torch.no_grad():
                found = self.start + residual(self.validation.z)
        return float((found.argmax(1) == self.validation.y).double().mean())


def tune_residual(client: Client, workers: int) -> TuningRecord:
    """Tune the residual's settings, or take the rule's."""
    by_rule = default_settings(client)
    if reason := why_by_rule(client):
        return TuningRecord(client=client.id, settings=by_rule, by_rule=reason)
    objective = objective_of(client)
    recipe = recipe_of(client, joins=JoinedState.read(client).joins)
    space = TuningSpace(
        learning_rate=(recipe.learning_rate / AROUND, recipe.learning_rate * AROUND),
        clip=(recipe.clip, recipe.clip),
        noise_factor=(1.0, 1.0),
        batch_sizes=(recipe.batch_size,),
        epochs=(recipe.epochs // 2, recipe.epochs),
    )
    constraint = ScheduleConstraint(client.budget, tuned_schedule(client))
    header = {"tune": "residual", "client": client.id}
    with open_journal(tune_log(client.home), header) as journal:
        try:
            result = tune(
                objective,
                BudgetedSpace(space, constraint),
                client.config.tuning.config,
                rng=stream(client.config.seed, "client", client.id, "tune"),
                execution=Execution(workers=workers, journal=journal),
            )
        except BudgetExhausted as e:
            return TuningRecord(client=client.id, settings=by_rule, refused=str(e))
    return TuningRecord(
        client=client.id,
        settings=result.best,
        predicted=result.predicted,
        trials=result.trials,
        nothing=result.predicted <= objective.nothing,
    )


def why_by_rule(client: Client) -> ByRule | None:
    """Why nothing is rehearsed: nothing can be told, or nothing is to be decided."""
    if not client.budget.private or client.config.stays:
        return "no noise"
    if client.config.training.noise_multiplier is not None:
        return "given noise"
    if len(client.public) < FEWEST:
        return "few public samples"
    return None if client.config.tuning.config.trials else "no trials"


def objective_of(client: Client) -> ResidualObjective:
    """The site's objective."""
    state = JoinedState.read(client)
    state.check_joined()
    units, rng = client.data.train.units, stream(client.config.seed, "client", client.id, "proxy")
    counts = torch.tensor(state.histogram)
    data = proxy_data(replace(client.public, groups=None), counts, samples=units, rng=rng)

    def rows(part: str) -> Rows:
        samples = getattr(data, part)
        return Rows(client.phi(samples.inputs()), samples.y)

    train, validation = rows("train"), rows("validation")
    # A head that has not seen them stands for the shared one, which may have.
    known = rows("warm")
    head = fit_public_head(known, client.spec.classes)
    prior = state.log_prior
    return ResidualObjective(
        train,
        validation,
        logits(head, train.z) + prior,
        logits(head, validation.z) + prior,
        units,
        client.config.seed,
        client.id,
    )
