"""DP-SGD settings of a residual: the rule's, unless rehearsals on public samples beat them clearly.

A rehearsal simulates sites: each draws labelled public samples in class frequencies of its own,
from one class nearly alone to all alike (`SKEWS`), knows these frequencies with the noise of a
label histogram, trains a residual over a public head with the deployment's noise, clip, batches and
steps, and is scored on other public samples. Learning rate and epochs are looked for by the mean of
some simulated sites; others then compare what was found, and "nothing", with the rule. Either is
taken only where it beats the rule by `ERRORS` standard errors over these sites. With "nothing"
nothing is trained, and nothing spent. Too few public samples to tell, or a site far from the size
that they can stand for (`NEAR`), and the rule stands.

Where fewer than `FEWEST` public samples have labels, the others get labels drawn from the shared
head's probabilities. They tell learning rates apart, but not whether to train at all: the head that
stands for the shared one has learnt from the shared one. Nor may they choose the epochs: these
decide what the residual is charged as, which must not follow from a release.

What was found counts relative to the rule, which knows a site's size: a factor of its learning
rate, and one of its epochs. Nothing of that is a site's, so that one rehearsal serves all sites of
a budget: the first keeps it in the common folder, whoever comes later reads it.

Privacy: reads public samples, the shared head, the run's settings and whether the site joins, which
shows in what it sends; no private sample, and no histogram. Epsilon 0. What a residual is charged
as follows from public samples with true labels at most, and never from the shared head.
"""

import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dprbft.methods.joined.budget import histogram_event, settings_of
from dprbft.methods.joined.residual import default_settings
from dprbft.methods.joined.state import JoinedState
from dprbft.methods.joined.student import shared_teacher
from dprbft.paths import tune_log
from dprbft.site.results.records import ByRule, TuningRecord
from dprbft.site.site import Site
from panas.data.samples import Samples, concat, digest
from panas.data.splits import proxy_data
from panas.features.map import FeatureMap
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BudgetExhausted
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal
from panas.runtime.seeds import stream, torch_generator
from panas.runtime.store import exclusive, read_json, write_json
from panas.training.linear.averaging import log_prior
from panas.training.linear.ridge import fit_public_head, logits
from panas.training.linear.rules import (
    RELEASE_SHARE,
    Recipe,
    alone_recipe,
    joined_recipe,
    residual_schedule,
)
from panas.tuning.bayesian import tune
from panas.tuning.objective import ResidualObjective, SimulatedSite
from panas.tuning.space import BudgetedSpace, DPSGDSettings, ScheduleConstraint, TuningSpace
from panas.tuning.trial import TrialRecord, TuningConfig

FEWEST = 400
"""Public samples from which on a rehearsal can tell settings apart."""
AROUND = 4.0  # times more or less than the rule's learning rate
SKEWS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Concentrations of the Dirichlet draws of simulated sites' class frequencies."""
JUDGES = 10  # simulated sites that compare what was found with the rule
ERRORS = 2.0  # standard errors by which it must be better
SIZE = 0.3  # of the public samples: training samples of a simulated site
NEAR = 3.0  # times larger or smaller a site may be for a rehearsal to tell of it
Choice = Literal["rule", "tuned", "nothing"]


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """All that decides a rehearsal; nothing of it is a site's own."""

    public: Samples  # with true labels, or some of the shared head's
    labelled: bool  # whether all labels are true
    phi: FeatureMap  # the run's
    budget: Budget  # of one site
    histogram_share: float  # of epsilon
    release_share: float  # of epsilon; 0 where the site does not join
    config: TuningConfig
    seed: int  # of the run

    @property
    def units(self) -> int:
        """Training samples of a simulated site: as many as are there to be drawn from."""
        return round(SIZE * len(self.public))

    @property
    def recipe(self) -> Recipe:
        """The rule's, for a simulated site."""
        if not self.release_share:
            return alone_recipe(self.units, self.budget.epsilon)
        return joined_recipe(self.units, self.budget.epsilon, self.release_share)

    @cached_property
    def key(self) -> str:
        """Stands for all of it; the common folder has one map."""
        decided = {
            "public": digest(self.public),
            "budget": repr(self.budget),
            "shares": [self.histogram_share, self.release_share],
            "config": repr(self.config),
            "seed": self.seed,
        }
        return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:32]

    @cached_property
    def space(self) -> BudgetedSpace:
        """Around the rule, with the noise that is left beside histogram and release."""
        recipe = self.recipe
        spent = histogram_event(self.budget, self.histogram_share)
        schedule = residual_schedule(self.units, recipe, spent, share=self.release_share)
        space = TuningSpace(
            learning_rate=(recipe.learning_rate / AROUND, recipe.learning_rate * AROUND),
            clip=(recipe.clip, recipe.clip),
            noise_factor=(1.0, 1.0),
            batch_sizes=(recipe.batch_size,),
            epochs=((recipe.epochs // 2,) if self.labelled else ()) + (recipe.epochs,),
        )
        return BudgetedSpace(space, ScheduleConstraint(self.budget, schedule))

    def by_rule(self) -> DPSGDSettings | None:
        """The rule's settings for a simulated site; None where the budget affords none."""
        r = self.recipe
        noise = self.space.constraint.least_noise(r.batch_size, r.epochs)
        return None if noise is None else settings_of(r, noise)

    def site(self, number: int) -> SimulatedSite:
        """A simulated site."""
        rng, classes = stream(self.seed, "played site", number), self.public.classes
        alpha = SKEWS[number % len(SKEWS)]
        mix = torch.from_numpy(rng.dirichlet(np.full(classes, alpha)))
        data = proxy_data(self.public, mix, samples=self.units, rng=rng)

        def rows(samples: Samples) -> Rows:
            return Rows(self.phi.of(samples), samples.y)

        train, validation = rows(data.train), rows(data.validation)
        # A head that has not seen them stands for the shared one, which may have.
        head = fit_public_head(rows(data.warm), classes)
        prior = log_prior(self._noised(self.units * mix, rng))
        return SimulatedSite(
            train,
            validation,
            logits(head, train.z) + prior,
            logits(head, validation.z) + prior,
            self.seed,
            number,
        )

    def _noised(
        self, counts: Float[Tensor, "classes"], rng: np.random.Generator
    ) -> Float[Tensor, "classes"]:
        """What a site with these class counts knows of them."""
        event = histogram_event(self.budget, self.histogram_share)
        if not event or not isinstance(event[0], Gaussian):
            return torch.ones(len(counts))
        noise = ReproducibleNoise(rng).normal(len(counts))
        return (counts + event[0].noise_multiplier * noise).float()


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal came to."""

    choice: Choice
    best: DPSGDSettings  # of all trials, for a simulated site
    predicted: float  # its mean accuracy at the simulated sites, that the surrogate expects
    trials: tuple[TrialRecord, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "trials": [asdict(trial) for trial in self.trials]}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Rehearsed":
        """Read back what `to_json` made."""
        trials = tuple(TrialRecord.from_json(trial) for trial in record["trials"])
        best = DPSGDSettings(**record["best"])
        return Rehearsed(record["choice"], best, record["predicted"], trials)


def tune_residual(site: Site) -> TuningRecord:
    """The settings of a site's residual."""
    by_rule = default_settings(site)
    if reason := why_by_rule(site):
        return TuningRecord(site=site.id, settings=by_rule, by_rule=reason)
    rehearsal = rehearsal_of(site)
    try:
        result = rehearsed(rehearsal, site.common, tune_log(site.home), site.workers)
    except BudgetExhausted as e:
        return TuningRecord(site=site.id, settings=by_rule, refused=str(e))
    rule, best = rehearsal.recipe, result.best
    tuned = replace(
        by_rule,
        learning_rate=by_rule.learning_rate * best.learning_rate / rule.learning_rate,
        epochs=max(1, round((by_rule.epochs or 1) * (best.epochs or rule.epochs) / rule.epochs)),
    )
    return TuningRecord(
        site=site.id,
        settings=tuned if result.choice == "tuned" else by_rule,
        predicted=result.predicted,
        trials=result.trials,
        best=result.best,
        nothing=result.choice == "nothing",
        by_rule="none better" if result.choice == "rule" else None,
    )


def why_by_rule(site: Site) -> ByRule | None:
    """Why nothing is rehearsed: nothing can be told, or nothing is to be decided."""
    if not site.budget.private or site.config.stays:
        return "no noise"
    if site.config.training.noise_multiplier is not None:
        return "given noise"
    if len(_labelled(site)) < FEWEST:
        return "few public samples"
    if not site.config.tuning.config.trials:
        return "no trials"
    simulated, units = SIZE * len(_labelled(site)), site.units
    return None if simulated / NEAR <= units <= simulated * NEAR else "other size"


def rehearsal_of(site: Site) -> Rehearsal:
    """What is to be rehearsed for a site, and for all others of its budget."""
    state, privacy = JoinedState.read(site), site.config.privacy
    state.check_joined()
    public = _labelled(site)
    return Rehearsal(
        public=public,
        labelled=len(public) == len(site.public),
        phi=site.phi,
        budget=site.budget,
        histogram_share=site.histogram_share,
        release_share=(privacy.release_share or RELEASE_SHARE) if state.joins else 0.0,
        config=_half_drawn(site.config.tuning.config),
        seed=site.config.seed,
    )


def _half_drawn(config: TuningConfig) -> TuningConfig:
    """Half of the trials are drawn, and the rest proposed by what these have shown."""
    return replace(config, initial=max(1, math.ceil(config.trials / 2)))


def _labelled(site: Site) -> Samples:
    """Public samples with their labels; where these are few, also others, whose labels are drawn
    from the probabilities of the shared head, by the run's seed: equal at all sites."""
    state, known = JoinedState.read(site), replace(site.public, groups=None, part=None)
    if len(known) >= FEWEST or not len(site.unlabelled) or not state.joins or state.shared is None:
        return known
    answers = shared_teacher(site, state)(site.unlabelled)
    generator = torch_generator(stream(site.config.seed, "drawn labels"))
    drawn = torch.multinomial(answers.cpu(), 1, generator=generator).squeeze(1)
    return concat([known, replace(site.unlabelled, y=drawn, groups=None, part=None)])


def rehearsed(rehearsal: Rehearsal, common: Path, log: Path, workers: int) -> Rehearsed:
    """The outcome in the common folder, which is made if it is not there.

    BudgetExhausted if the budget affords no settings.

    Args:
        rehearsal: public samples, budget and settings to look for.
        common: folder of the outcome, of all sites with the same rehearsal.
        log: file in which each trial is before the next begins.
        workers: processes, at least 1.
    """
    path = common / f"rehearsal-{rehearsal.key}.json"
    with exclusive(path):  # whoever comes meanwhile waits, and reads
        if not path.is_file():
            write_json(path, _rehearse(rehearsal, log, workers).to_json())
        return Rehearsed.from_json(read_json(path))


def _rehearse(rehearsal: Rehearsal, log: Path, workers: int) -> Rehearsed:
    sites = tuple(rehearsal.site(number) for number in range(len(SKEWS)))
    with open_journal(log, {"tune": "residual", "rehearsal": rehearsal.key}) as journal:
        result = tune(
            ResidualObjective(sites),
            rehearsal.space,
            rehearsal.config,
            rng=stream(rehearsal.seed, "rehearsal"),
            execution=Execution(workers=workers, journal=journal),
        )
    rule = rehearsal.by_rule()
    if rule is None:
        return Rehearsed("tuned", result.best, result.predicted, result.trials)
    judges = [rehearsal.site(len(SKEWS) + k) for k in range(JUDGES)]
    choice = chosen(
        [site(rule) for site in judges],
        [site(result.best) for site in judges],
        [site.nothing for site in judges] if rehearsal.labelled else None,
    )
    return Rehearsed(choice, result.best, result.predicted, result.trials)


def chosen(
    rule: Sequence[float], tuned: Sequence[float], nothing: Sequence[float] | None
) -> Choice:
    """The better of two rivals at the same sites where it clearly beats the rule, else the rule.

    Args:
        rule: scores of the recipe's settings, one a rehearsed site, higher is better.
        tuned: scores of the tuned settings, at the same sites.
        nothing: scores without a residual, at the same sites; None if that is no choice.
    """
    rivals: list[tuple[Choice, Sequence[float]]] = [("tuned", tuned)]
    if nothing is not None:
        rivals.insert(0, ("nothing", nothing))
    name, scores = max(rivals, key=lambda rival: statistics.fmean(rival[1]))
    gains = [score - known for score, known in zip(scores, rule, strict=True)]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return name if statistics.fmean(gains) > ERRORS * error else "rule"
