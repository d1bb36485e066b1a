"""What a run left, checked, and the truth behind it: for the auditor alone."""

from pathlib import Path

import torch

from dprbft.client import blueprint_of
from dprbft.config import RunConfig
from dprbft.federation import ClientData, Federation
from dprbft.layout import last_model_file, ledger_file, release_file
from dprbft.messages import Release
from dprbft.schedule import chunk
from panas.checkpoint import load_network
from panas.data.dataset import Samples
from panas.errors import BadInput
from panas.genome import Genome
from panas.network import Bottom, Head
from panas.privacy.ledger import Ledger
from panas.seeds import stream, torch_generator


def released_samples(config: RunConfig, client: ClientData, release: Release) -> Samples:
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


def load_release(
    run: Path, config: RunConfig, federation: Federation, client: ClientData
) -> tuple[Release, Bottom, Genome]:
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
    return release, bottom, Genome.parse(about["genome"])


def epsilons(run: Path) -> dict[int, float]:
    """Epsilon that the ledger claims, by client; none without a ledger."""
    return {a.client: a.spent() for a in Ledger(ledger_file(run)).accounts()}


def sent_head(config: RunConfig, federation: Federation) -> Head:
    """The head before round 1, which everybody can compute; later ones stay near it."""
    blueprint = blueprint_of(config, federation)
    return blueprint.head(torch_generator(stream(config.seed, "head")))
