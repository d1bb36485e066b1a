"""What the audit of a run reads: releases, ledger and networks, without a training."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

from attacks.threats.observation import rows_of
from dprbft.config.files import build_config, save_config, without_unread
from dprbft.config.schema import RunConfig
from dprbft.messages import Release
from dprbft.paths import last_model_file, ledger_file, map_file, round_folder, server_folder
from dprbft.run.sites.plan import plan_sites
from dprbft.run.view import RunView
from dprbft.server.checkpoint import RELEASE
from dprbft.server.records import RoundRecord, read_rounds, write_rounds
from dprbft.site.site import spec_of
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, build_bottom
from panas.features.map import FeatureMap, write_map
from panas.privacy.accounting.events import Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.gate import ReleaseRequest, release
from panas.privacy.release.kind import event_of, kind_named
from panas.runtime.seeds import stream
from panas.runtime.store import write_bytes
from panas.training.checkpoint import save_network

WIDTH, ROUND = 48, 3
GENOME = Genome.parse("c32k3-max-c64k3")


def audited_config(
    kind: str, method: str = "dprbft", threats: tuple[str, ...] = (), sites: int = 2
) -> RunConfig:
    settings = {
        "data": {"limit": 500, "public_limit": 400},
        "network": {"width": WIDTH},
        "federation": {"clients": sites, "method": method, "partition": "iid"},
        "privacy": {"release": kind, "allow_unprotected": True},
        "audit": {"samples": 80, "decoder_epochs": 2, "threats": threats},
    }
    return build_config(without_unread(settings))


def untrained(shape: tuple[int, int, int], site: int) -> Bottom:
    g = torch.Generator().manual_seed(site)
    return build_bottom(GENOME, shape=shape, width=WIDTH, unit=True, generator=g)


def fabricate(
    run: Path,
    config: RunConfig,
    clients: tuple[int, ...] = (0, 1),
    *,
    noise: bool = True,
    noise_multiplier: float = 2.5,
    common: FeatureMap | None = None,
) -> None:
    """Write what training leaves behind, with untrained bottoms, or with a common map."""
    plan_sites(run, config).write(run)
    save_config(run, config)
    view = RunView(run, config)
    if common is not None:
        write_map(map_file(run), common)
    kind, spec = config.privacy.release, spec_of(config, view.facts)
    assert kind != "none"
    event = event_of(kind_named(kind), noise_multiplier)
    event = event if noise else Unprotected()
    for id in clients:
        paths = view.sites[id]
        made_by = untrained(spec.shape, id) if common is None else common
        ledger = Ledger(ledger_file(paths.folder), paths.run)
        ledger.open_account(Budget(8.0, 1e-5), allow_unprotected=True)
        ledger = ledger.begin_run(paths.run, Budget(8.0, 1e-5))
        samples = view.public if kind == "public_rows" else view.site(id).train
        released = release(
            ReleaseRequest(kind=kind, event=event, site=id, round=ROUND, classes=spec.classes),
            lambda b=made_by, s=samples: (rows_of(b, s), s.y),
            ledger=ledger,
            noise=ReproducibleNoise(stream(id, "fabricated")),
        )
        put_release(run, id, Release.of(released).to_bytes())
        if isinstance(made_by, Bottom):
            head, path = spec.head(torch.Generator().manual_seed(9)), last_model_file(paths.home)
            save_network(path, made_by, head, genome=GENOME, spec=spec, notes={})


def received_file(run: Path, site: int, round: int = ROUND) -> Path:
    """What a site released in a round, as the server has it."""
    return round_folder(server_folder(run), round) / RELEASE.format(site)


def put_release(run: Path, site: int, content: bytes) -> None:
    """Let the server have received this of a site, in the last round."""
    write_bytes(received_file(run, site), content)
    server = server_folder(run)
    known = {r.round: r for r in read_rounds(server)}
    digest = hashlib.sha256(content).hexdigest()
    sent = (known[ROUND].releases if ROUND in known else {}) | {site: digest}
    write_rounds(server, [*(known | {ROUND: round_record(ROUND, sent)}).values()])


def round_record(round: int, releases: Mapping[int, str]) -> RoundRecord:
    """A round in which sites sent what has these digests."""
    return RoundRecord(
        round=round,
        seconds=1.0,
        up_bytes=1,
        down_bytes=1,
        sites=tuple(releases),
        releases=releases,
        broadcast="of no interest here",
    )
