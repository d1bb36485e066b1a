"""The clients of a run: the data set, shared out, and each client's own disjoint splits.

Loading is a pure function of the configuration: every process, and an audit, sees the same clients.
"""

import warnings
from dataclasses import dataclass
from functools import lru_cache

from dprbft.config.schema import RunConfig
from dprbft.simulation.partition import Partition, partition
from panas.data.load import load
from panas.data.samples import Samples
from panas.data.splits import split
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream


@dataclass(frozen=True)
class ClientData:
    """One client's samples; they never leave it. A sample is in exactly one split."""

    id: int
    search: Samples
    train: Samples
    validation: Samples
    test: Samples


@dataclass(frozen=True)
class Federation:
    """All clients of a simulated federation, and the public samples that everyone may see."""

    clients: tuple[ClientData, ...]
    public: Samples
    class_names: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of an image."""
        return self.public.shape

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


def load_federation(config: RunConfig) -> Federation:
    """Load and share out the data set of a configuration; cached for the last configuration."""
    return _load(config.model_dump_json())


@lru_cache(maxsize=1)
def _load(text: str) -> Federation:
    config = RunConfig.model_validate_json(text)
    f = config.federation
    source = load(config.data.source, stream(config.seed, "data"))
    how = Partition(
        kind=f.partition,
        clients=f.clients,
        alpha=f.alpha,
        classes_per_client=f.classes_per_client,
        minimum=f.min_samples,
    )
    shares = partition(source.private.y.numpy(), how, stream(config.seed, "partition"))
    clients = tuple(_client(config, id, source.private.take(s)) for id, s in enumerate(shares))
    return Federation(clients, source.public, source.class_names)


def _client(config: RunConfig, id: int, samples: Samples) -> ClientData:
    """A client and its splits."""
    data = config.data
    s = split(
        samples.y.numpy(),
        # Where a search looks at no private samples, they all serve training.
        search=data.search_fraction if config.privacy.mode.least_search else 0.0,
        validation=data.validation_fraction,
        test=data.test_fraction,
        rng=stream(config.seed, "client", id, "split"),
    )
    parts = (samples.take(part) for part in (s.search, s.train, s.validation, s.test))
    client = ClientData(id, *parts)
    if not all(len(part) for part in (client.train, client.validation, client.test)):
        raise BadInput(
            f"expected samples to train, validate and test client {id}, got {len(samples)} in "
            "all; use fewer clients or raise federation.min_samples"
        )
    if samples.classes > 1 and int((samples.histogram() > 0).sum()) == 1:
        warnings.warn(
            f"client {id} has samples of one class only; its accuracy says little", stacklevel=2
        )
    # Search and training samples are parts of their own; delta must suit the larger one.
    config.budgets()[id].check(max(client.train.units, client.search.units), id)
    return client
