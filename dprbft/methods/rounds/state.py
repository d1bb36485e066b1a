"""Where a site stands after a round: what one round hands to the next; kept in the site's folder.

As bytes it is safetensors with one JSON record as metadata. It never leaves the site's side.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dprbft.paths import state_file
from dprbft.site.site import Site
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.privacy.plan import Plan
from panas.runtime.store import pack_tensors, read_bytes, unpack_tensors, write_bytes
from panas.tuning.space import DPSGDSettings

Weights = dict[str, Tensor]
"""A module's weights, by name."""

WEIGHTS = ("bottom", "head", "kept_bottom", "kept_head")


@dataclass(frozen=True, kw_only=True)
class RoundScores:
    """How the last round went; nothing is chosen by an accuracy on test samples."""

    local: float | None = None  # test accuracy with its own head; None if it was not there
    shared: float | None = None  # test accuracy with the shared head; None before round 1
    validation: float = 0.0  # accuracy of the blend that validation preferred
    blend: float = 0.0  # the own head's share in it
    best: float = 0.0  # highest test accuracy so far, for the report


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The round that validation selected; by default one that any other beats."""

    round: int = 0
    blend: float = 0.0  # the own head's share
    validation: float = -1.0  # accuracy on the validation split
    loss: float = float("inf")  # cross-entropy there, which decides ties
    accuracy: float = 0.0  # on the test split, for the report


@dataclass(frozen=True, kw_only=True)
class State:
    """All that a site needs to go on after a round."""

    bottom: Weights  # after the last round, as is the head
    head: Weights
    kept_bottom: Weights  # of the round that validation selected, as is the head
    kept_head: Weights
    genome: Genome
    settings: DPSGDSettings
    histogram: tuple[float, ...] | None = None  # noised, of labels, if its search paid for one
    plan: Plan | None = None  # of its remaining rounds; None without DP, or before round 1
    round: int = 0  # the last one it trained in
    answered: bool = True  # whether it has taken the answer to that round
    against: str = ""  # SHA-256 of the broadcast that it trained against in that round
    charges: int = 0  # protected charges that finished rounds account for
    scores: RoundScores = RoundScores()
    kept: Kept = Kept()

    def to_json(self) -> dict[str, Any]:
        """All but the weights."""
        record = asdict(replace(self, bottom={}, head={}, kept_bottom={}, kept_head={}))
        kept = {name: value for name, value in record.items() if name not in WEIGHTS}
        return kept | {"genome": str(self.genome)}

    def to_bytes(self) -> bytes:
        """The state as safetensors; `from_bytes` reads it back."""
        # Copies, because safetensors refuses tensors that share memory.
        tensors = {f"{g}.{k}": v.clone() for g in WEIGHTS for k, v in getattr(self, g).items()}
        return pack_tensors(tensors, {"state": json.dumps(self.to_json())})

    @staticmethod
    def from_bytes(content: bytes, origin: Path) -> "State":
        """Read a state; `origin` is named if it is damaged."""
        tensors, metadata = unpack_tensors(content, origin)
        record, groups = json.loads(metadata["state"]), {group: Weights() for group in WEIGHTS}
        for name, tensor in tensors.items():
            group, _, key = name.partition(".")
            groups[group][key] = tensor
        histogram, plan = record["histogram"], record["plan"]
        parts = {
            "genome": Genome.parse(record["genome"]),
            "settings": DPSGDSettings(**record["settings"]),
            "histogram": tuple(histogram) if histogram else None,
            "plan": Plan(**plan) if plan else None,
            "scores": RoundScores(**record["scores"]),
            "kept": Kept(**record["kept"]),
        }
        return State(**(groups | record | parts))

    def write(self, site: Site) -> None:
        """Keep the state in the site's folder."""
        write_bytes(state_file(site.home), self.to_bytes())

    @staticmethod
    def read(site: Site) -> "State":
        """A site's state; BadInput if there is none, or it is damaged."""
        path = state_file(site.home)
        return State.from_bytes(read_bytes(path), path)

    def networks(self, site: Site) -> tuple[Bottom, Head]:
        """Bottom and head on the site's device, as the last round left them."""
        return self._networks(site, self.bottom, self.head)

    def kept_networks(self, site: Site) -> tuple[Bottom, Head]:
        """The bottom and head that validation selected."""
        return self._networks(site, self.kept_bottom, self.kept_head)

    def _networks(self, site: Site, bottom: Weights, head: Weights) -> tuple[Bottom, Head]:
        b, h = site.spec.bottom(self.genome), Head(site.spec.width, site.spec.classes)
        b.load_state_dict(bottom)
        h.load_state_dict(head)
        return b.to(site.device), h.to(site.device)
