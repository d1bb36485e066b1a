"""Where a site stands in method `joined`; kept in the site's folder, and never leaves it."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dprbft.messages import Release
from dprbft.paths import sent_file, state_file
from dprbft.site.site import Site
from panas.privacy.accounting.events import Gaussian, Unprotected
from panas.runtime.errors import BadInput
from panas.runtime.store import pack_tensors, read_bytes, unpack_tensors, write_bytes
from panas.training.linear.averaging import log_prior

SHARED = HEAD = "shared"
KIND = "moments"  # of its release
ROUND = 1
"""The one round of the method."""


@dataclass(frozen=True, kw_only=True)
class JoinedState:
    """All that a site needs to go on."""

    round: int = 0  # `ROUND` once it has released
    answered: bool = True  # whether it has taken the answer
    against: str = ""  # SHA-256 of the broadcast before the round
    # Noised (every class alike where none could be paid for), until a residual that stays is made.
    histogram: tuple[float, ...] = ()
    release_noise: float | None = None  # m; None where no moments left, or without noise
    shared: Float[Tensor, "classes d"] | None = None  # the server's head
    adapted: bool = False  # whether the residual is made, or left out
    sigma: float | None = None  # noise multiplier of its DP-SGD; None without
    why: str = ""  # why it was left out: "tuned", "budget"; else empty
    # The head that the residual is over: another one where joining would bring nothing, and None
    # for the prior alone.
    over: str | None = "shared"
    residual: tuple[Float[Tensor, "classes d"], Float[Tensor, "classes"]] | None = None
    finished: bool = False  # whether the predictor is made

    @property
    def log_prior(self) -> Float[Tensor, "classes"]:
        """Log frequencies of the site's labels, from the histogram that it has."""
        return log_prior(torch.tensor(self.histogram))

    @property
    def joins(self) -> bool:
        """Whether the site builds on the shared head."""
        return self.over == SHARED

    def check_joined(self) -> Float[Tensor, "classes d"]:
        """The shared head; BadInput before the site has it."""
        if self.shared is None:
            raise BadInput("expected a site that has joined, got one without a shared head")
        return self.shared

    def linear(self) -> nn.Linear | None:
        """The residual as a module."""
        if self.residual is None:
            return None
        weight, bias = self.residual
        module = nn.Linear(weight.shape[1], weight.shape[0])
        module.load_state_dict({"weight": weight, "bias": bias})
        return module

    def with_residual(self, module: nn.Linear | None, sigma: float | None) -> "JoinedState":
        """The state once the residual is made."""
        pair = None
        if module is not None:
            pair = (module.weight.detach().clone(), module.bias.detach().clone())
        return replace(self, adapted=True, residual=pair, sigma=sigma)

    def write(self, site: Site) -> None:
        """Keep the state in the site's folder, as safetensors."""
        tensors: dict[str, Tensor] = {}
        if self.shared is not None:
            tensors["shared"] = self.shared.clone()
        if self.residual is not None:
            tensors |= dict(zip(("weight", "bias"), self.residual, strict=True))
        record = asdict(replace(self, shared=None, residual=None))
        del record["shared"], record["residual"]
        content = pack_tensors(tensors, {"state": json.dumps(record)})
        write_bytes(state_file(site.home), content)

    @staticmethod
    def read(site: Site) -> "JoinedState":
        """A site's state; a fresh one before it has joined. BadInput if it is damaged."""
        path = state_file(site.home)
        if not path.exists():
            return JoinedState()
        tensors, metadata = unpack_tensors(read_bytes(path), path)
        record: dict[str, Any] = json.loads(metadata["state"])
        record["histogram"] = tuple(record["histogram"])
        residual = (tensors["weight"], tensors["bias"]) if "weight" in tensors else None
        return JoinedState(**record, shared=tensors.get("shared"), residual=residual)


def has_head(home: Path) -> bool:
    """Whether a site has the shared head, by its folder for the run."""
    path = state_file(home)
    return path.exists() and HEAD in unpack_tensors(read_bytes(path), path)[0]


def kept_release(site: Site) -> Release | None:
    """The message that a process has written before it died; its charge is noted as used."""
    message = _sent(site)
    if message is None:
        return None
    paid = {e.id for e in site.account.entries if e.charge.mechanism == KIND}
    if message.receipt not in paid:
        return None
    site.ledger.end(message.receipt)
    return message


def unsent_event(site: Site) -> Gaussian | Unprotected | None:
    """What the run has charged for a release of which nothing has left; None if it has not."""
    result: Gaussian | Unprotected | None = None
    for e in site.account.entries:
        of_moments = (e.charge.phase, e.charge.mechanism) == ("release", KIND)
        if of_moments and not e.finished and isinstance(e.event, Gaussian | Unprotected):
            result = e.event
    return result


def _sent(site: Site) -> Release | None:
    path = sent_file(site.home, ROUND)
    size = {"width": site.width, "classes": site.spec.classes}
    return Release.from_bytes(read_bytes(path), **size) if path.exists() else None
