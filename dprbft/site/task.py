"""What an engine hands to a worker: small, serialisable, and enough to load the client itself."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dprbft.config.schema import RunConfig
from dprbft.site.site import Client, build_client


@dataclass(frozen=True)
class Task:
    """Which client, of which run, where to compute, and with how many processes of its own."""

    config: str
    run: Path
    client: int
    device: str
    workers: int = 1

    def load(self) -> Client:
        """The client."""
        return build_client(_parse(self.config), self.client, self.run, self.device)


@lru_cache(maxsize=2)
def _parse(text: str) -> RunConfig:
    return RunConfig.model_validate_json(text)
