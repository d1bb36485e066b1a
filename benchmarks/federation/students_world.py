"""A federation that has joined, for `benchmarks.students`: teachers, and what judges students.

Four sites of 500 Fashion-MNIST samples with 100 validation samples, classes by a Dirichlet draw
(.3); 2,000 public images without labels; epsilon 8, delta 1e-5. All of it is as in
`benchmarks.joining`, drawn from the same streams.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import joining_world
from benchmarks.joining_methods import Known, averaged, plan_of, pooled_head, recipe_of
from benchmarks.joining_world import Setting, World, draw, samples_of, width_of
from dprbft.methods.joined.networks import LAST, OWN_RATE, Steps, steps_beside
from panas.architecture.genome import Genome
from panas.architecture.limits import Constraints, Limits
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.facts import infer
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.evolution.fitness import AgreementFitness
from panas.features.map import FeatureMap, fit_map
from panas.runtime.seeds import stream
from panas.training.common import CommonTraining, load
from panas.training.distillation import (
    SHORT_STEPS,
    STEPS,
    STUDENT,
    SoftSamples,
    distil,
    long_enough,
)
from panas.training.evaluate import represent
from panas.training.last_layer import teach_last_layer
from panas.training.linear.averaging import log_prior
from panas.training.linear.residual import fit_residual, zero_residual
from panas.training.linear.ridge import logits
from panas.training.sgd import SHORT, steps_of

SETTING = Setting("fashion-mnist", 500, 0, 8.0, 4, 0.3)
HELD_OUT = 0.3  # share of the public images, as in the product
WIDTHS, MAX_BLOCKS = (16, 32, 64), 6  # of the preset `sound`


@dataclass(frozen=True)
class Federation:
    """What one seed's sites know after joining."""

    world: World
    seed: int
    known: Known  # the server's heads
    shared: Tensor  # head
    phi: FeatureMap
    public: Samples
    test: Samples

    @property
    def macs(self) -> int:
        """Multiply-accumulates of phi and the heads that a site's predictor averages."""
        heads = 3  # the shared one, its own, and the residual
        return self.phi.cost.macs + heads * self.world.classes * self.phi.width

    @property
    def spec(self) -> NetworkSpec:
        """Of all students."""
        return NetworkSpec(shape=self.public.shape, classes=self.world.classes, width=64)

    def space(self, macs: int) -> SearchSpace:
        """Students of so many multiply-accumulates at most."""
        limits = Limits(self.spec, Constraints(macs=macs))
        shape = self.public.shape
        return SearchSpace(shape=shape, max_blocks=MAX_BLOCKS, widths=WIDTHS, limits=limits)

    @cached_property
    def z(self) -> Tensor:
        """Rows of the public images."""
        return self.phi(self.public.inputs())

    def fitness(self, cache: Path) -> AgreementFitness:
        """The search's: agreement with the shared head, all classes alike."""
        answers, held = logits(self.shared, self.z).softmax(1), round(HELD_OUT * len(self.public))
        rest, taught = torch.arange(len(self.public)).tensor_split([held])
        return AgreementFitness(
            taught=SoftSamples(self.public.take(taught), answers[taught]),
            held_out=SoftSamples(self.public.take(rest), answers[rest]),
            histogram=torch.ones(self.world.classes),
            spec=self.spec,
            optimizer=long_enough(SHORT, len(taught), SHORT_STEPS),
            seed=self.seed,
            site=0,
            cache=cache,
        )

    def judge(self, fitness: AgreementFitness, mix: Tensor) -> AgreementFitness:
        """The same training, judged by accuracy in a site's mix on test samples."""
        right = F.one_hot(self.test.y, self.world.classes).float()
        counts = (SETTING.n * mix).float()
        return replace(fitness, held_out=SoftSamples(self.test, right), histogram=counts)

    def accuracy(self, values: Tensor, mix: Tensor) -> float:
        """Of logits of the test samples, under a site's mix."""
        y, classes = self.world.test.y, self.world.classes
        of_class = torch.zeros(classes, dtype=torch.float64)
        of_class.index_add_(0, y, (values.argmax(1) == y).double())
        return float((of_class / torch.bincount(y, minlength=classes).clamp(min=1)) @ mix.double())

    def predictor(self, at: int) -> float:
        """Accuracy of a site's predictor: the average of all heads and the residual."""
        site, heads = self.world.sites[at], {"shared": self.shared}
        values = averaged(
            self.world, site, self.known, heads, over=self.shared, share=self.known.joined.share
        )
        return self.accuracy(values, site.mix)

    def steps(self, fitness: AgreementFitness) -> Steps:
        """Of a student's training, beside the search's."""
        whole = long_enough(STUDENT, len(self.public), STEPS)
        searched = steps_of(fitness.optimizer, len(fitness.taught))
        return steps_beside(searched, steps_of(whole, len(self.public)))

    def epochs(self, steps: int) -> int:
        """Of the public images, at least one."""
        return max(1, round(steps / steps_of(replace(STUDENT, epochs=1), len(self.public))))

    def common(self, genome: Genome, fitness: AgreementFitness) -> CommonTraining:
        """What a genome's student learns once for all sites, from the weights of its search."""
        assert fitness.cache is not None
        return CommonTraining(
            genome=genome,
            spec=self.spec,
            taught=SoftSamples(self.public, logits(self.shared, self.z).softmax(1)),
            config=replace(STUDENT, epochs=self.epochs(self.steps(fitness).common)),
            seed=self.seed,
            device="cpu",
            folder=fitness.cache,
            begin=lambda: fitness.weights_of(genome),
        )

    def teach_last_layers(self, sites: int, genome: Genome, fitness: AgreementFitness) -> None:
        """What so many sites do for their students where they share a folder: each its own.

        Args:
            sites: how many.
            genome: of their students.
            fitness: as for `student`.
        """
        common = self.common(genome, fitness)
        maps, answers = common.maps(), common.taught.targets
        for at in range(sites):
            rng = stream(self.seed, "client", at, "last layer")
            bottom, head = self.spec.network(genome, rng)
            load(bottom, head, common.weights())
            teach_last_layer(bottom, head, maps, answers, config=LAST, rng=rng)

    def student(self, at: int, genome: Genome, fitness: AgreementFitness) -> tuple[float, float]:
        """Accuracies of a site's teacher, its shared head with residual, and of its student.

        Args:
            at: number of the site.
            genome: of the student.
            fitness: the search's, whose folder keeps what is common to sites.
        """
        site, n = self.world.sites[at], SETTING.n
        prior, residual = (
            log_prior(site.histogram),
            zero_residual(self.phi.width, self.spec.classes),
        )
        fit_residual(
            residual,
            site.train,
            logits(self.shared, site.train.z) + prior,
            plan=plan_of(n, SETTING.epsilon, self.known.joined.share),
            learning_rate=recipe_of(n, SETTING.epsilon, self.known.joined.share).learning_rate,
            noise=self.world.noise,
        )

        def teacher(z: Tensor) -> Tensor:
            with torch.no_grad():
                return residual(z) + logits(self.shared, z) + prior

        rng = stream(self.seed, "client", at, "student")
        bottom, head = self.spec.network(genome, rng)
        load(bottom, head, self.common(genome, fitness).weights())
        taught = SoftSamples(self.public, teacher(self.z).softmax(1))
        own = self.epochs(self.steps(fitness).own)
        config = replace(STUDENT, epochs=own, learning_rate=OWN_RATE, train_head=False)
        distil(bottom, head, taught, config=config, rng=rng)
        with torch.no_grad():
            said = head(represent(bottom, self.test))
        results = teacher(self.world.test.z), said
        return self.accuracy(results[0], site.mix), self.accuracy(results[1], site.mix)


def joined(root: str, seed: int) -> Federation:
    """Draw a federation, and let it join."""
    world = draw(SETTING, root, seed)
    heads = pooled_head(world, secure=False)
    assert heads.shared is not None  # without labelled public samples all join
    pool = samples_of(SETTING.dataset, root)
    order = stream(seed, "joining").permutation(len(pool))  # as `draw` begins
    known = joining_world.PUBLIC
    public, test = (
        pool.take(at) for at in np.split(order, [known, known + joining_world.TEST])[:2]
    )
    facts = infer(read(SETTING.dataset, Reading(data_root=root)))
    phi = fit_map(facts, public, width_of(SETTING, secure=False))
    known = Known(heads, heads, None, heads.shared, None, None, {})
    return Federation(world, seed, known, heads.shared, phi, public, test)
