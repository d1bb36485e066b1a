"""The outcome of training: each client's networks and its last release, which belong together."""

from pathlib import Path

from dprbft.config.schema import RunConfig
from dprbft.paths import last_model_file, model_file, release_file
from dprbft.server.checkpoint import read_checkpoint
from dprbft.site.site import build_client
from dprbft.site.state import State
from panas.runtime.store import write_bytes
from panas.training.checkpoint import save_network


def write_models(run: Path, config: RunConfig, device: str) -> None:
    """Write `models/` and `releases/` from the last whole round."""
    checkpoint = read_checkpoint(run, config.federation.clients)
    for i, content in enumerate(checkpoint.states):
        client, state = build_client(config, i, run, device), State.from_bytes(content, run)
        if i in checkpoint.releases:
            write_bytes(release_file(run, i), checkpoint.releases[i])
        for path, (bottom, head), round in (
            (model_file(run, i), state.kept_networks(client), state.kept.round),
            (last_model_file(run, i), state.networks(client), state.round),
        ):
            save_network(
                path,
                bottom,
                head,
                genome=state.genome,
                spec=client.spec,
                notes={"client": i, "round": round},
            )
