"""Table IV of DPFNAS in form: what attacks reconstruct from a release, by privacy budget.

One site of `PRIVATE` training samples trains a network by DP-SGD and releases once; the whole of
training and release is calibrated to the epsilon. The attacker knows the weights and `PUBLIC`
public samples (`attacks.reconstruction.suite`).

| made by | release | what epsilon covers |
|---|---|---|
| network | raw_rows | the weights alone (the paper): rows and labels leave as they are |
| network | others | weights and release together: sound |
| map | moments | the release, which has all of epsilon: the common map holds nothing private |

`ceiling_r2` is what the same attacks reach on raw rows without privacy: the row (raw_rows,
infinity) of a network, or of the map. At infinity no noise is added anywhere.

Deviation: the network is of a size for two cores, the same for all rows but that representations
of a sound release have norm 1; the paper's has width 500. MSE is on [-1, 1].
"""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attacks.audit.verdict import judge
from attacks.reconstruction.suite import INVERSION, SuiteConfig, attack_release
from attacks.threats.observation import Observation, Representation, WhiteBox, rows_of
from dprbft.messages import Release
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.load import DataSettings, Source, load
from panas.data.samples import Samples
from panas.features.map import fit_map
from panas.privacy.accounting.events import Unprotected
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, release_multiplier
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import Plan, TrainingSchedule
from panas.privacy.release.gate import ReleaseRequest, release
from panas.privacy.release.kind import ReleaseEvent, event_of, is_noised, kind_named
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import fit_private
from panas.training.sgd import OptimizerConfig, fit

PRIVATE, PUBLIC = 800, 800
WIDTH = 128
GENOME = Genome.parse("c32k3-max-c64k3-c128k3")
EPOCHS, BATCH, CLIP = 5, 80, 1.0
DECODER_EPOCHS = 20
DELTA = 1e-5

EPSILONS = (math.inf, 50.0, 5.0, 0.5)
ROWS: tuple[tuple[str, str, float], ...] = (
    *(("network", "raw_rows", e) for e in EPSILONS),
    *(("network", "moments", e) for e in (math.inf, 50.0, 8.0, 5.0, 0.5)),
    ("network", "class_sums", 8.0),
    ("network", "public_rows", 8.0),
    ("map", "raw_rows", math.inf),
    *(("map", "moments", e) for e in (math.inf, 8.0)),
)


SHOWN = 8
"""Samples of a picture, one a class."""


@cache
def source_of(dataset: str, root: str) -> Source:
    """Private and public samples."""
    return load(
        DataSettings(
            dataset=dataset, data_root=root, public_fraction=0.3, public_limit=PUBLIC, limit=PRIVATE
        ),
        stream(0, "attack table"),
    )


@dataclass(frozen=True)
class Site:
    """What releases, and what that is charged as."""

    made_by: Representation
    event: ReleaseEvent


def with_network(kind: str, epsilon: float, private: Samples) -> Site:
    """A site that trains a network of its own."""
    plan = planned(kind, epsilon, len(private))
    event = event_of(kind_named(kind), plan.release_noise) if plan else Unprotected()
    return Site(trained(kind, plan, private), event)


def with_map(kind: str, epsilon: float, source: Source) -> Site:
    """A site that trains nothing: its release has the whole epsilon."""
    event: ReleaseEvent = Unprotected()
    if not math.isinf(epsilon):
        m = release_multiplier(Budget(epsilon, DELTA), 1, 1.0)
        event = event_of(kind_named(kind), m)
    return Site(fit_map(source.facts, source.public, WIDTH), event)


def planned(kind: str, epsilon: float, samples: int) -> Plan | None:
    """Training and release for the whole epsilon; None without privacy."""
    if math.isinf(epsilon):
        return None
    releases = int(is_noised(kind_named(kind)))
    schedule = TrainingSchedule(samples=samples, epochs=EPOCHS, releases=releases)
    return calibrate(Budget(epsilon, DELTA), schedule, batch_size=BATCH, clip=CLIP)


def trained(kind: str, plan: Plan | None, private: Samples) -> Bottom:
    """The site's bottom after its training."""
    spec = NetworkSpec(
        shape=private.shape, classes=private.classes, width=WIDTH, unit=kind_named(kind).UNIT
    )
    rng = stream(0, "network")
    bottom, head = (
        spec.bottom(GENOME, torch_generator(rng)),
        spec.head(torch_generator(rng)),
    )
    if plan is None:
        adam = OptimizerConfig(
            learning_rate=2e-3, optimiser="adam", batch_size=32, epochs=EPOCHS, train_head=False
        )
        fit(bottom, head, private, config=adam, rng=rng)
    else:
        sgd = OptimizerConfig(learning_rate=0.5, train_head=False)
        fit_private(bottom, head, private, plan=plan, config=sgd, noise=SystemNoise())
    return bottom


def released(kind: str, site: Site, samples: Samples) -> Release:
    """The site's message, charged to a ledger of its own."""
    classes = samples.classes
    request = ReleaseRequest(kind=kind, event=site.event, site=0, round=1, classes=classes)

    def rows() -> tuple[Tensor, Tensor]:
        return rows_of(site.made_by, samples), samples.y

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.jsonl")
        ledger.open_account(Budget(100.0, DELTA), allow_unprotected=True, replicated=False)
        made = release(request, rows, ledger=ledger, noise=SystemNoise())
        return Release.from_bytes(Release.of(made).to_bytes(), width=WIDTH, classes=classes)


def cell(root: str, task: tuple[str, str, str, float | str]) -> dict[str, Any]:
    """One row of the table.

    Args:
        root: folder of the data sets.
        task: data set, what makes the release, its kind, epsilon.

    """
    dataset, maker, kind, budget = task
    epsilon = float(budget)
    torch.set_num_threads(1)
    source = source_of(dataset, root)
    private, public = source.private, source.public
    if maker == "map":
        site = with_map(kind, epsilon, source)
    else:
        site = with_network(kind, epsilon, private)
    message = released(kind, site, public if kind_named(kind).READS == "public" else private)
    seen = Observation(
        site="client-000",
        kind=kind,
        arrays=message.arrays,
        noise_multiplier=message.noise_multiplier,
        knowledge=WhiteBox(site.made_by),
        public=public,
    )
    rng = stream(0, "attacks", dataset, kind, str(epsilon))
    reconstructions = attack_release(
        seen,
        private,
        SuiteConfig(epochs=DECODER_EPOCHS, inversion=INVERSION if seen.by_class else None),
        rng=rng,
    )
    verdict, evidence = judge(reconstructions.attacks, reconstructions.controls, rng=rng)
    best = max(reconstructions.attacks, key=lambda s: s.r2)
    controls = {s.name: s.r2 for s in reconstructions.controls}
    first = [int((private.y == c).nonzero()[0]) for c in private.y.unique()][:SHOWN]
    return {
        "shown": {
            "original": bytes_of(private.inputs(first)),
            "best": bytes_of(reconstructions.images[best.name][first]),
        },
        "dataset": dataset,
        "made_by": maker,
        "release": kind,
        "epsilon": "infinity" if math.isinf(epsilon) else epsilon,
        "attack": best.name,
        "r2": best.r2,
        "r2_interval": list(best.intervals["r2"]),
        "mse": best.mse,
        "decoder_r2": next(s.r2 for s in reconstructions.attacks if s.name == "decoder"),
        "reidentified": best.reidentified,
        "class_mean_r2": controls["same-class mean"],
        "untrained_r2": controls.get("random extractor"),
        "own_rows_r2": controls["ceiling"],
        "verdict": verdict,
        "evidence": evidence,
    }


def bytes_of(images: Float[Tensor, "n c h w"]) -> list[Any]:
    """Images in [-1, 1] as whole numbers 0..255, for a picture."""
    return (127.5 * (images.clamp(-1, 1) + 1)).round().byte().tolist()


def with_ceiling(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each with the no-DP ceiling of its data set and of what made it."""
    ceiling = {
        (r["dataset"], r["made_by"]): r["r2"]
        for r in rows
        if (r["release"], r["epsilon"]) == ("raw_rows", "infinity")
    }
    return [r | {"ceiling_r2": ceiling[r["dataset"], r["made_by"]]} for r in rows]
