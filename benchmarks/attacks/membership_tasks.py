"""The audits and attacked networks of `benchmarks.attack_membership`, one task each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attacks.epsilon.gradient_canaries import (
    GradientCanaries,
    diracs,
    final_scores,
    orthogonal,
    round_scores,
    train_with_gradient_canaries,
)
from attacks.epsilon.one_run import (
    OneRunAudit,
    OneRunConfig,
    audit_scores,
    audit_training,
    mislabelled,
    random_patterns,
)
from attacks.epsilon.trade_off import GAUSSIAN, Family, SampledFamily
from attacks.inference.membership import (
    GenomeTrainer,
    Query,
    confidence_scores,
    lira_scores,
    logits,
    loss_scores,
    query_of,
    rmia_scores,
)
from attacks.inference.roc import Roc, roc
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.load import DataSettings, load
from panas.data.samples import Samples, concat
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan, TrainingSchedule
from panas.runtime.seeds import stream, torch_generator
from panas.training.sgd import OptimizerConfig

BUDGET = Budget(8.0, 1e-5)
CANARIES = 1000
GENOME = "c16k3-max-c32k3-max-c64k3"
OVERFITTED = "c64k3-max-c128k3-c128k3"
OVERFIT = OptimizerConfig(
    learning_rate=0.01, optimiser="adam", batch_size=32, epochs=60, decay="cosine"
)
RATE = 0.5
"""Learning rate of DP-SGD."""

DATA, FEW, MEMBERS = 500, 200, 440
"""Samples beside gradient canaries, beside others, and of an overfitted network."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run: less in tests.

    Attributes:
        canaries: of each audit.
        shadows: networks of LiRA.
        targets: overfitted networks.
        epochs: of all networks without privacy.

    """

    canaries: int = CANARIES
    shadows: int = 16
    targets: int = 8
    epochs: int = OVERFIT.epochs


@dataclass(frozen=True)
class Ground:
    """What every task needs: the samples, how much is run, and phi of the shadow networks."""

    pool: Samples
    size: Size
    phi: Tensor | None = None  # of the candidates, then of the public samples

    @property
    def asked(self) -> Samples:
        """What shadow networks answer to."""
        return concat([self.candidates, self.public])

    @property
    def candidates(self) -> Samples:
        """Half of them are members."""
        return self.pool.take(range(2 * MEMBERS))

    @property
    def public(self) -> Samples:
        """As many that are surely none."""
        return self.pool.take(range(2 * MEMBERS, 4 * MEMBERS))

    @property
    def overfit(self) -> GenomeTrainer:
        """The training that is attacked, and that of its shadows."""
        spec = NetworkSpec(
            shape=self.pool.shape, classes=10, width=128, head_init="random", unit=False
        )
        optimizer = OptimizerConfig(
            learning_rate=OVERFIT.learning_rate,
            optimiser=OVERFIT.optimiser,
            batch_size=OVERFIT.batch_size,
            epochs=self.size.epochs,
            decay=OVERFIT.decay,
        )
        return GenomeTrainer(genome=Genome.parse(OVERFITTED), spec=spec, optimizer=optimizer)

    def plan(self, kind: "Private") -> Plan:
        """DP-SGD at the claim, of data and canaries."""
        n = DATA + self.size.canaries
        schedule = TrainingSchedule(samples=n, epochs=kind.passes)
        return calibrate(BUDGET, schedule, batch_size=round(n * kind.rate), clip=1.0)


def pool(root: str | None) -> Samples:
    """1,760 samples or more."""
    samples = load(
        DataSettings(
            dataset="fashion-mnist" if root else "digits",
            data_root=root,
            public_fraction=0.0,
            limit=1797,
        ),
        stream(0, "membership data"),
    ).private
    n, c, h, w = samples.x.shape
    if h < 28:
        return samples
    means = samples.x.reshape(n, c, h // 2, 2, w // 2, 2).float().mean(dim=(3, 5))
    return Samples(means.round().to(torch.uint8), samples.y, samples.classes)


def run(ground: Ground, task: tuple[str, int]) -> dict[str, Any]:
    """One audit, or one attacked network."""
    torch.set_num_threads(1)
    name, seed = task
    if name in PRIVATE:
        return private(ground, seed, PRIVATE[name])
    if name in KINDS:
        return shown(memorised(ground, seed, KINDS[name]))
    return attacked(ground, seed, seen=name == "overfitted")


def shown(audit: OneRunAudit) -> dict[str, Any]:
    """The figures of an audit."""
    return {
        "lower_bound": audit.lower_bound,
        "f_dp": audit.f_dp,
        "gdp": audit.gdp,
        "assumes": audit.config.family.name,
        "ceiling": audit.ceiling,
        "guesses": audit.guesses,
        "correct": audit.correct,
    }


@dataclass(frozen=True)
class Private:
    """A training by DP-SGD at the claim, with gradient canaries."""

    plant: Callable[[nn.Module, int, np.random.Generator], GradientCanaries]
    rate: float  # of Poisson sampling; 1: every batch is full, and the trade-off is Gaussian
    passes: int  # over data and canaries


PRIVATE: dict[str, Private] = {
    "sampled, one weight each": Private(diracs, 0.2, 20),
    "sampled, orthogonal": Private(orthogonal, 0.2, 20),
    "full batch, one weight each": Private(diracs, 1.0, 5),
    "full batch, orthogonal": Private(orthogonal, 1.0, 5),
}


def private(ground: Ground, seed: int, kind: Private) -> dict[str, Any]:
    """One training, scored by the final network alone and by all rounds."""
    data, plan = ground.pool.take(range(DATA)), ground.plan(kind)
    rng = stream(seed, "gradient canaries")
    generator = torch_generator(rng)
    spec = NetworkSpec(shape=data.shape, classes=10, width=64, head_init="random")
    bottom, head = spec.bottom(Genome.parse(GENOME), generator), spec.head(generator)
    network = nn.Sequential(bottom, head)
    canaries = kind.plant(network, ground.size.canaries, rng)
    included = torch.from_numpy(stream(seed, "coins").random(len(canaries)) < 0.5)
    went = train_with_gradient_canaries(
        network,
        data,
        canaries.take(included.nonzero().flatten()),
        plan=plan,
        learning_rate=RATE,
        noise=ReproducibleNoise(stream(seed, "noise")),
    )
    scores = {
        "final network": final_scores(went, canaries),
        "all rounds": round_scores(went, canaries, plan=plan, learning_rate=RATE),
    }
    families: dict[str, Family] = {"gaussian": GAUSSIAN}
    if kind.rate < 1:
        families["plan"] = SampledFamily(plan.rate, plan.steps)
    return {
        seen: {
            name: shown(audit_scores(values, included, config(family)))
            for name, family in families.items()
        }
        for seen, values in scores.items()
    }


def config(family: Family) -> OneRunConfig:
    """The claim, and what the f-DP bound takes for granted."""
    return OneRunConfig(delta=BUDGET.delta, claim=BUDGET.epsilon, family=family)


def perceptron(samples: Samples, rng: np.random.Generator, epochs: int) -> Query:
    """A network with one hidden layer that is wide enough to learn anything by heart."""
    generator = torch_generator(rng)
    x, y = samples.inputs(), samples.y
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(rng.integers(2**62)))
        network = nn.Sequential(
            nn.Flatten(), nn.Linear(x[0].numel(), 512), nn.ReLU(), nn.Linear(512, samples.classes)
        )
    optimiser = torch.optim.Adam(network.parameters(), lr=0.001)
    for _ in range(epochs):
        for batch in torch.randperm(len(y), generator=generator).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimiser.step()
    return query_of(network)


Kind = Callable[[Samples, int, np.random.Generator], Samples]


KINDS: dict[str, Kind] = {"mislabelled": mislabelled, "random patterns": random_patterns}


def memorised(ground: Ground, seed: int, kind: Kind) -> OneRunAudit:
    """Training without privacy, with canaries that are images."""
    data, rest = ground.pool.take(range(FEW)), ground.pool.take(range(FEW, len(ground.pool)))
    canaries = kind(rest, ground.size.canaries, stream(seed, "canaries"))
    epochs = round(5 / 3 * ground.size.epochs)
    return audit_training(
        lambda included: perceptron(concat([data, included]), stream(seed, "training"), epochs),
        canaries,
        confidence_scores,
        OneRunConfig(delta=BUDGET.delta),
        rng=stream(seed, "coins"),
    )


def attacked(ground: Ground, seed: int, *, seen: bool) -> dict[str, Any]:
    """LiRA and the loss threshold on a network that saw half of the candidates, or none."""
    assert ground.phi is not None
    rng, candidates = stream(seed, "members"), ground.candidates
    members = torch.zeros(2 * MEMBERS, dtype=torch.bool)
    members[torch.from_numpy(rng.choice(2 * MEMBERS, MEMBERS, replace=False))] = True
    training = candidates.take(members.nonzero().flatten())
    if not seen:
        training = ground.public.take(rng.choice(2 * MEMBERS, MEMBERS, replace=False))
    query = ground.overfit(training, rng)
    right = (logits(query, candidates).argmax(1) == candidates.y).double()
    n, own = len(candidates), confidence_scores(query, ground.asked)[None]
    phi = ground.phi
    attacks = {
        "lira": lira_scores(query, candidates, phi[..., :n]),
        "rmia": rmia_scores(own[:, :n], phi[..., :n], own[:, n:], phi[..., n:]),
        "rmia_4_shadows": rmia_scores(own[:, :n], phi[:4, :, :n], own[:, n:], phi[:4, :, n:]),
        "lira_4_shadows": lira_scores(query, candidates, phi[:4, :, :n]),
        "loss_threshold": loss_scores(query, candidates),
    }
    results = {name: roc(s, members, rng=stream(seed, "roc")) for name, s in attacks.items()}
    return {
        "accuracy_members": float(right[members].mean()),
        "accuracy_others": float(right[~members].mean()),
        **{name: curve(r) for name, r in results.items()},
    }


def curve(found: Roc) -> dict[str, Any]:
    """The figures of a ROC, and its curve for logarithmic axes."""
    return found.to_json() | {"fpr": found.fpr.tolist(), "tpr": found.tpr.tolist()}
