"""What a site predicts with after joining: several heads on the common map, and its own network.

| candidate | what it is | protected |
|---|---|---|
| public | ridge head of labelled public samples | reads nothing private |
| forest, logistic | of labelled public rows of a table | read nothing private |
| shared | the server's head | by the sites' releases |
| residual | a linear residual over a head and the prior, by DP-SGD | by its DP-SGD |
| network | the evolved network, distilled from the residual's answers | as what it learnt from |

Their average (`panas.training.linear.averaging`) has weights and label frequencies of validation
samples, which nothing covers: a predictor stays with its site. The network alone may leave; where
`privacy.network` is "stays", residual and network are trained without noise, and nothing may.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from panas.architecture.blocks import BlockType
from panas.data.encoder import EncoderFacts
from panas.data.samples import Samples
from panas.features.axes import AxesMap, with_encoder
from panas.features.encoders.encoder import Encoder
from panas.features.exact import filled
from panas.features.map import FeatureMap, restored_map
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, under, write_tensors
from panas.training.checkpoint import Classifier, SavedNetwork, network_of, network_record
from panas.training.linear.averaging import Average, average
from panas.training.linear.public_models import PublicForest, PublicLogistic
from panas.training.linear.residual import residual_logits
from panas.training.linear.ridge import Weights, logits

NOTE = "predictor"  # of the file's metadata
BATCH = 128  # samples at a time, always as many: the last ones are filled up with zeros


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """All that a site may predict with."""

    phi: FeatureMap
    heads: Mapping[str, Weights]  # ridge heads on phi, by name
    log_prior: Float[Tensor, "classes"]  # of the site's noised label histogram
    residual: nn.Linear | None = None  # over a head and the prior
    over: str | None = "shared"  # that head; None: the prior alone
    forest: PublicForest | None = None  # of labelled public samples
    logistic: PublicLogistic | None = None  # of the same
    network: SavedNetwork | None = None  # its answers hold the prior already

    @property
    def with_prior(self) -> list[str]:
        """Candidates whose logits hold the prior."""
        return ["residual"] * bool(self.residual) + ["network"] * bool(self.network)

    @torch.no_grad()
    def logits(
        self, samples: Samples | Float[Tensor, "n c h w"]
    ) -> dict[str, Float[Tensor, "n classes"]]:
        """What each says of samples, or of network inputs in [-1, 1]."""
        if isinstance(samples, Tensor):
            x, z = samples, self.phi(samples)
        else:
            x, z = samples.inputs(), self.phi.of(samples)
        results = {name: logits(w, z) for name, w in self.heads.items()}
        if self.residual:
            base = self.log_prior if self.over is None else results[self.over] + self.log_prior
            results["residual"] = base + residual_logits(self.residual, z)
        if self.forest:
            results["forest"] = self.forest.logits(x)
        if self.logistic:
            results["logistic"] = self.logistic.logits(x)
        if self.network:
            net, trunk = nn.Sequential(self.network.bottom, self.network.head), self.network.trunk
            device = next(net.parameters()).device
            results["network"] = z.new_zeros(len(x), len(self.log_prior))
            for part, rows in zip(x.split(BATCH), results["network"].split(BATCH), strict=True):
                read = part.to(device) if trunk is None else trunk(part.to(device))
                rows[:] = net(filled(read, BATCH)).cpu()[: len(part)]
        return results


@dataclass(frozen=True)
class Predictor(Classifier):
    """Candidates, and how much each has to say."""

    candidates: Candidates
    average: Average
    notes: Mapping[str, Any]

    @property
    def encoder_facts(self) -> EncoderFacts | None:
        """The encoder that reads pictures for it; None where it needs none."""
        phi = self.candidates.phi
        return phi.encoder_facts if isinstance(phi, AxesMap) else None

    def with_encoder(self, encoder: Encoder) -> "Predictor":
        """The same with the encoder that its file names; BadInput for another one."""
        phi = self.candidates.phi
        if not isinstance(phi, AxesMap):
            raise BadInput("expected no encoder for this predictor, got one; leave it out")
        result = replace(self.candidates, phi=with_encoder(phi, encoder))
        return replace(self, candidates=result)

    def probabilities_of(
        self, samples: Samples | Float[Tensor, "n c h w"]
    ) -> Float[Tensor, "n classes"]:
        """Probability of each class of samples, or of network inputs in [-1, 1]."""
        c = self.candidates
        return self.average.probabilities(c.logits(samples), c.log_prior)


def weighed(
    candidates: Candidates, valid: Samples, notes: Mapping[str, Any], worth: float
) -> Predictor:
    """The predictor whose candidates are weighed by validation samples, which nothing covers.

    Args:
        candidates: what the site has trained, or was sent.
        valid: validation samples; there may be none.
        notes: JSON-able, for the predictor's file.
        worth: exact labels that tell as much as the site's histogram, as `average` takes it.
    """
    values, prior = candidates.logits(valid), candidates.log_prior
    held = candidates.with_prior
    result = average(values, valid.y, prior, held, worth=worth, groups=valid.groups)
    return Predictor(candidates, result, notes)


def write_predictor(path: Path, predictor: Predictor) -> None:
    """Write all of a predictor; it stays with its site."""
    c = predictor.candidates
    weights, network = dict[str, Tensor](), None
    if n := c.network:
        notes = {"facts": n.notes["facts"]} if n.trunk else {}  # they say what pictures it reads
        weights, network = network_record(n.bottom, n.head, n.genome, n.spec, notes, n.trunk)
    parts = {
        "map": c.phi.arrays(),
        "head": c.heads,
        "residual": dict(c.residual.named_parameters()) if c.residual else {},
        "forest": c.forest.arrays() if c.forest else {},
        "logistic": c.logistic.arrays() if c.logistic else {},
        "network": weights,
    }
    tensors = {f"{part}.{name}": t for part, named in parts.items() for name, t in named.items()}
    about = {
        "map": c.phi.to_json(),
        "average": predictor.average.to_json(),
        "notes": dict(predictor.notes),
        "over": c.over,
        "network": network,
    }
    tensors["log_prior"] = c.log_prior
    contents = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    write_tensors(path, contents, {NOTE: json.dumps(about)})


def is_predictor(path: Path) -> bool:
    """Whether a file holds a predictor; BadInput if it is missing or damaged."""
    return NOTE in read_tensors(path)[1]


def read_predictor(path: str | Path, blocks: Sequence[BlockType] = ()) -> Predictor:
    """What `write_predictor` wrote; BadInput if the file is missing, damaged or another."""
    tensors, metadata = read_tensors(Path(path))
    if NOTE not in metadata:
        raise BadInput(f"expected a predictor saved by panas at {path}, got another file")
    about, network, residual = json.loads(metadata[NOTE]), None, None
    if about["network"]:
        network = network_of(about["network"], under(tensors, "network."), blocks)
    if values := under(tensors, "residual."):
        classes, width = values["weight"].shape
        residual = nn.Linear(width, classes)
        residual.load_state_dict(values)
    forest, logistic = under(tensors, "forest."), under(tensors, "logistic.")
    candidates = Candidates(
        phi=restored_map(about["map"], under(tensors, "map.")),
        heads=under(tensors, "head."),
        log_prior=tensors["log_prior"],
        residual=residual,
        over=about["over"],
        forest=PublicForest.restored(forest) if forest else None,
        logistic=PublicLogistic.restored(logistic) if logistic else None,
        network=network,
    )
    return Predictor(candidates, Average.from_json(about["average"]), about["notes"])
