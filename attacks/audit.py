"""Audit a run: attack what each client released, and score it against the truth.

This is the only module that holds private samples. It gives the attacks an `Observation`, scores
what comes back on at most `audit.samples` training samples of the client, computes the controls
beside, and says in a word what that shows:

| verdict | when |
|---|---|
| leaks | the best attack's R^2 is above the best blind control's by more than `MARGIN` |
| no better than blind | it is not |
| inconclusive | the interval holds `MARGIN`, there are fewer than `MIN_SAMPLES` samples, |
| | or too few public samples to learn an attack from |
| nothing left | the client sent no release |

`public_rows` hold no private row: attacks have class means at best, and the evidence says so.

Both at 95 %: the paired bootstrap interval of the difference lies above, or not above, the margin.
The best attack is the one with the highest R^2. Silence of these attacks proves nothing: the proof
is the ledger's epsilon, which is written beside.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attacks import controls
from attacks.decoder import decoder_inverter
from attacks.metrics import Score, gain_interval, score
from attacks.observation import MIN_PUBLIC, Inverter, Observation
from attacks.ridge import ridge_inverter, ridge_on_noise
from attacks.threats import WhiteBox
from dprbft.config import RunConfig, load_config
from dprbft.federation import ClientData, Federation, load_federation
from dprbft.layout import audit_file, last_model_file, ledger_file, release_file
from dprbft.messages import Release
from dprbft.schedule import chunk
from panas.checkpoint import load_network
from panas.data.dataset import Samples
from panas.errors import BadInput
from panas.network import Bottom
from panas.privacy.ledger import Ledger
from panas.seeds import stream
from panas.store import write_json

MARGIN = 0.05
"""By how much R^2 must beat the best blind control before it counts as a leak."""

MIN_SAMPLES = 10
"""With fewer scored samples an interval says little, and no verdict is given."""

Tell = Callable[[str], None]


def audit_run(run: Path, *, on_progress: Tell | None = None) -> dict[str, Any]:
    """Attack the last release of every client of a run; write and return `audit.json`.

    Args:
        run: a run directory with config.toml, releases/ and models/.
        on_progress: told what is being attacked, a short text at a time.

    Returns:
        The record: "scale", "seconds", "clients" (attacks, controls and verdict of each) and
        "summary" (means over the clients that released something; None if none did).

    Raises:
        BadInput: if there is no run, nothing was released though the method releases, or a file
            is damaged, not finite or of other shapes than the run's.

    Privacy: reads private samples and writes only scores; the record is the simulator's view, no
    release, and must not leave a real client.

    """
    begin = time.monotonic()
    config = load_config(run)
    federation = load_federation(config)
    if config.sent and not any(release_file(run, c.id).is_file() for c in federation.clients):
        raise BadInput(f"expected releases in {run / 'releases'}, found none; train the run first")
    tell = on_progress or (lambda _: None)
    epsilons = _epsilons(run)
    clients = []
    for client in federation.clients:
        record = _audit_client(run, config, federation, client, tell)
        record["epsilon"] = epsilons.get(client.id)
        clients.append(record)
    result = {
        "scale": "[-1, 1]",
        "margin": MARGIN,
        "seconds": round(time.monotonic() - begin, 2),
        "clients": clients,
        "summary": _summary(clients),
    }
    write_json(audit_file(run), result)
    return result


def _audit_client(
    run: Path, config: RunConfig, federation: Federation, client: ClientData, tell: Tell
) -> dict[str, Any]:
    record: dict[str, Any] = {"id": client.id, "release": None, "round": None}
    record |= {"noise_multiplier": None, "epsilon": None, "samples": 0}
    record |= {"attacks": [], "controls": []}
    if not release_file(run, client.id).is_file():
        evidence = f"client {client.id} released nothing: there is nothing to attack"
        return record | {"verdict": "nothing left", "evidence": evidence}
    release, bottom = _load(run, config, federation, client)
    rng = stream(config.seed, "audit", client.id)
    samples = _samples(config, client, release)
    if not len(samples):
        evidence = f"client {client.id} had no sample left to release in round {release.round}"
        return record | {"verdict": "nothing left", "evidence": evidence}
    if len(federation.public) < MIN_PUBLIC:
        evidence = (
            f"client {client.id} was not attacked, which says nothing: an attack learns from at "
            f"least {MIN_PUBLIC} public samples, and there are {len(federation.public)}"
        )
        about = {"release": release.kind, "round": release.round}
        return record | about | {"verdict": "inconclusive", "evidence": evidence}
    chosen = np.sort(rng.permutation(len(samples))[: config.audit.samples])
    private = samples.take(chosen)
    arrays = release.arrays
    if release.kind in ("raw_rows", "noisy_rows"):
        # Each row is attacked on its own: those not scored can go.
        arrays = {"z": arrays["z"][torch.from_numpy(chosen)], "y": private.y}
    observation = Observation(
        client.id,
        release.kind,
        arrays,
        release.noise_multiplier,
        WhiteBox(bottom),
        federation.public,
    )
    attacks, beside = run_attacks(observation, private, config.audit.decoder_epochs, rng, tell)
    verdict, evidence = judge(attacks, beside, rng=rng)
    if release.kind == "public_rows":
        evidence = f"no private row was released, public rows only; {evidence}"
    return record | {
        "release": release.kind,
        "round": release.round,
        "noise_multiplier": release.noise_multiplier,
        "samples": len(private),
        "attacks": [s.to_json() for s in attacks],
        "controls": [s.to_json() for s in beside],
        "verdict": verdict,
        "evidence": evidence,
    }


def run_attacks(
    observation: Observation[WhiteBox],
    private: Samples,
    epochs: int,
    rng: np.random.Generator,
    tell: Tell = lambda _: None,
) -> tuple[list[Score], list[Score]]:
    """Scores of all attacks on one client, and of all controls.

    Args:
        observation: what the server saw of the client.
        private: the samples to score on; where rows of them left, those of the rows, in order.
        epochs: of the decoder.
        rng: of attacks, controls and bootstrap.
        tell: told of each step.

    """
    public, y, truth = observation.public, private.y, private.inputs()
    mean = controls.mean_image(public)

    def scored(name: str, images: Tensor) -> Score:
        return score(name, truth, images, mean, rng=rng)

    def invert_all(seen: Observation, what: str, *, noised: bool = False) -> dict[str, Inverter]:
        tell(f"client {observation.client}: ridge and decoder on {what}")
        return {
            "ridge": ridge_inverter(seen, rng=rng, noised=noised),
            "decoder": decoder_inverter(seen, epochs=epochs, rng=rng, noised=noised),
        }

    def best_on_rows(name: str, seen: Observation, inverters: dict[str, Inverter]) -> Score:
        rows = seen.released()
        return max((scored(name, f(rows)) for f in inverters.values()), key=lambda s: s.r2)

    def of_samples(images: Tensor) -> Tensor:
        return images[y] if observation.by_class else images

    inverters = invert_all(observation, "the release")
    rows = observation.released()
    images = {name: of_samples(f(rows)) for name, f in inverters.items()}
    if observation.kind == "noisy_rows":
        knowing = invert_all(observation, "rows noised as the release", noised=True)
        images |= {f"{name} on noise": f(rows) for name, f in knowing.items()}
    elif observation.noised_sums:
        images["ridge on noise"] = of_samples(ridge_on_noise(observation, rng=rng))
    attacks = [scored(name, x) for name, x in images.items()]
    strongest = images[max(attacks, key=lambda s: s.r2).name]

    fresh = controls.random_extractor(observation.knowledge.bottom, rng=rng)
    untrained = controls.raw_rows(observation, private, fresh)
    ceiling = controls.raw_rows(observation, private, observation.knowledge.bottom)
    beside = [
        scored("mean image", mean.expand_as(truth)),
        scored("same-class mean", controls.same_class_mean(public, y)),
        scored("unrelated image", controls.unrelated_image(public, len(y), rng=rng)),
        scored("shuffled", controls.shuffled(strongest, y, rng=rng)),
        best_on_rows("random extractor", untrained, invert_all(untrained, "an untrained bottom")),
        best_on_rows("ceiling", ceiling, inverters),
    ]
    return attacks, beside


def judge(
    attacks: Sequence[Score], beside: Sequence[Score], *, rng: np.random.Generator
) -> tuple[str, str]:
    """The verdict, and the sentence with its evidence."""
    mean = next(s for s in beside if s.name == "mean image")
    best = max(attacks, key=lambda s: s.r2)
    blind = max((s for s in beside if s.name in controls.BLIND), key=lambda s: s.r2)
    ceiling = next(s for s in beside if s.name == "ceiling")
    low, high = gain_interval(best.errors, blind.errors, mean.errors, rng=rng)
    samples, verdict = len(best.errors), "inconclusive"
    if samples >= MIN_SAMPLES and low > MARGIN:
        verdict = "leaks"
    elif samples >= MIN_SAMPLES and high <= MARGIN:
        verdict = "no better than blind"
    evidence = (
        f"R^2 of the best attack ({best.name}) {best.r2:.3f}, of the best blind control "
        f"({blind.name}) {blind.r2:.3f}: a difference of {best.r2 - blind.r2:.3f} "
        f"[{low:.3f}, {high:.3f}] on {samples} samples, of which {MARGIN} is let pass; noiseless "
        f"rows would give {ceiling.r2:.3f}"
    )
    return verdict, evidence


def _samples(config: RunConfig, client: ClientData, release: Release) -> Samples:
    """The training samples that the attacks are scored on: of noisy rows, those that left."""
    if release.kind != "noisy_rows":
        return client.train
    mine = client.train.take(chunk(config, client.id, len(client.train), release.round))
    if len(mine) != len(release.arrays["z"]):
        raise BadInput(
            f"expected {len(mine)} noisy rows of client {client.id} in round {release.round}, got "
            f"{len(release.arrays['z'])}; audit with the settings it trained with"
        )
    return mine


def _load(
    run: Path, config: RunConfig, federation: Federation, client: ClientData
) -> tuple[Release, Bottom]:
    """The release and the bottom that made it, checked against the run and each other."""
    width, classes = config.network.width, federation.classes
    content = release_file(run, client.id).read_bytes()
    release = Release.from_bytes(content, width=width, classes=classes)
    bottom, _, about = load_network(last_model_file(run, client.id))
    if release.client != client.id:
        raise BadInput(
            f"expected the release of client {client.id}, got one of client {release.client}; "
            "train the run again"
        )
    if (tuple(about["shape"]), about["width"]) != (federation.shape, width):
        raise BadInput(
            f"expected a network for images {federation.shape} and width {width} of client "
            f"{client.id}, got {tuple(about['shape'])} and {about['width']}; train the run again"
        )
    whose = {
        "raw_rows": (client.train, f"training samples of client {client.id}"),
        "public_rows": (federation.public, "public samples"),
    }
    if release.kind in whose:
        (samples, of), y = whose[release.kind], release.arrays["y"]
        if not torch.equal(y, samples.y):
            raise BadInput(
                f"expected {release.kind.replace('_', ' ')} of the {len(samples)} {of}, got "
                f"{len(y)} rows of other labels; audit with the data it trained on"
            )
    return release, bottom


def _epsilons(run: Path) -> dict[int, float | str]:
    """Epsilon that the ledger claims, by client; none without a ledger."""
    spent = {a.client: a.spent() for a in Ledger(ledger_file(run)).accounts()}
    return {c: e if math.isfinite(e) else "infinity" for c, e in spent.items()}


def _summary(clients: list[dict[str, Any]]) -> dict[str, Any]:
    attacked = [c for c in clients if c["attacks"]]

    def mean(pick: Callable[[dict[str, Any]], float | None]) -> float | None:
        values = [v for c in attacked if (v := pick(c)) is not None]
        return round(float(np.mean(values)), 6) if values else None

    def best(c: dict[str, Any]) -> float | None:
        return max((a["r2"] for a in c["attacks"] if a["r2"] is not None), default=None)

    def control(name: str) -> float | None:
        return mean(lambda c: next(s["r2"] for s in c["controls"] if s["name"] == name))

    return {
        "best_attack_r2": mean(best),
        "same_class_mean_r2": control("same-class mean"),
        "ceiling_r2": control("ceiling"),
        "verdicts": dict(Counter(c["verdict"] for c in clients)),
    }
