"""What the audit of a run reads: releases, ledger and networks, without a training."""

from pathlib import Path

import numpy as np
import torch

from dprbft.config.files import build_config, save_config
from dprbft.config.schema import RunConfig
from dprbft.messages import Release
from dprbft.paths import ledger_file
from dprbft.simulation.federation import load_federation
from panas.architecture.genome import Genome
from panas.architecture.head import build_head
from panas.architecture.network import Bottom, NetworkSpec, build_bottom
from panas.privacy.accounting.events import Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.gate import ReleaseRequest, release
from panas.privacy.release.kind import event_of, kind_named
from panas.runtime.store import write_bytes
from panas.training.checkpoint import save_network
from panas.training.evaluate import represent

WIDTH = 48


GENOME = Genome.parse("c32k3-max-c64k3")


def audited_config(kind: str, method: str = "dprbft", threats: tuple[str, ...] = ()) -> RunConfig:
    return build_config(
        {
            "data": {"limit": 500, "public_limit": 400},
            "network": {"width": WIDTH},
            "federation": {"clients": 2, "method": method, "partition": "iid"},
            "privacy": {"release": kind, "allow_unprotected": True},
            "audit": {"samples": 80, "decoder_epochs": 2, "threats": threats},
        }
    )


def untrained(shape: tuple[int, int, int], client: int) -> Bottom:
    g = torch.Generator().manual_seed(client)
    return build_bottom(GENOME, shape=shape, width=WIDTH, unit=True, generator=g)


def fabricate(
    run: Path, config: RunConfig, clients: tuple[int, ...] = (0, 1), *, noise: bool = True
) -> None:
    """Write what training leaves behind, with untrained bottoms."""
    federation = load_federation(config)
    kind = config.privacy.release
    assert kind != "none"
    event = event_of(kind_named(kind), 2.5)
    event = event if noise else Unprotected()
    save_config(run, config)
    for id in clients:
        client, bottom = federation.clients[id], untrained(federation.shape, id)
        head = build_head(
            WIDTH, federation.classes, init="etf", generator=torch.Generator().manual_seed(9)
        )
        ledger = Ledger(ledger_file(run, id))
        ledger.open_account(Budget(8.0, 1e-5), allow_unprotected=True)
        samples = federation.public if kind == "public_rows" else client.train
        released = release(
            ReleaseRequest(kind=kind, event=event, client=id, round=3, classes=federation.classes),
            lambda b=bottom, s=samples: (represent(b, s), s.y),
            ledger=ledger,
            noise=ReproducibleNoise(np.random.default_rng(id)),
        )
        put_release(run, id, Release.of(released).to_bytes())
        save_network(
            run / "models" / f"client-{id:03d}-last.safetensors",
            bottom,
            head,
            genome=GENOME,
            spec=NetworkSpec(shape=federation.shape, classes=federation.classes, width=WIDTH),
            notes={},
        )


def put_release(run: Path, client: int, content: bytes) -> None:
    write_bytes(run / "releases" / f"client-{client:03d}.safetensors", content)
