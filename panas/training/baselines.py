"""What a site's network must beat: the majority class, a random forest, a logistic regression.

Fitted on public samples they cost nothing (epsilon 0). Fitted on public and the site's own samples
they are not private: they stay with the site, and say what it could have without a federation and
without protection. To be quick they look at no more than `MOST_SAMPLES` samples, drawn at random.

| samples | what the models look at |
|---|---|
| with embeddings of an encoder | these, whole |
| vectors | all their values |
| others | their values; of more than `MOST_FEATURES` means over a coarser grid |
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch.nn import functional as F

from panas.data.samples import Samples, concat
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.training.metrics import Figure, measure_scores

MOST_SAMPLES = 2000
"""Samples that a baseline is fitted on; own ones and public ones each count."""
MOST_FEATURES = 400
"""Values of a picture or table row that a baseline looks at, about."""
TREES = 100
CHUNK = 1000  # samples turned into floats at once

ModelName = Literal["random forest", "logistic regression"]
MODELS: tuple[ModelName, ...] = ("random forest", "logistic regression")
Reads = Literal["public", "public and own"]
Seen = Literal["values", "embeddings"]


@dataclass(frozen=True, kw_only=True)
class Rival:
    """How one baseline does on a site's test samples."""

    model: ModelName
    reads: Reads  # what it was fitted on; with own samples it is not private and stays
    accuracy: float
    balanced_accuracy: Figure
    auroc: Figure
    sees: Seen = "values"  # of a sample

    @property
    def private(self) -> bool:
        """Whether it has read public samples alone, so that epsilon is 0."""
        return self.reads == "public"


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """What one site's network must beat, on its own test samples."""

    majority: Figure  # accuracy of the own training samples' most frequent class
    rivals: tuple[Rival, ...]  # none on samples of one class, and none of public ones without any

    def best(self, *, private: bool) -> Rival | None:
        """The rival with the highest accuracy, among those at epsilon 0 or the others."""
        among = [r for r in self.rivals if r.private == private]
        return max(among, key=lambda r: r.accuracy, default=None)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"majority": self.majority, "rivals": [asdict(r) for r in self.rivals]}

    @property
    def see_embeddings(self) -> bool:
        """Whether the models have looked at an encoder's embeddings."""
        return any(r.sees == "embeddings" for r in self.rivals)

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Baselines":
        """What `to_json` wrote."""
        rivals = tuple(Rival(**r) for r in record["rivals"])
        return Baselines(majority=record["majority"], rivals=rivals)


@dataclass(frozen=True)
class FittedBaselines:
    """The models, fitted; none on fewer than two classes."""

    reads: Reads
    models: tuple[tuple[ModelName, Any], ...]
    sees: Seen = "values"  # of a sample; all samples that it is asked about must have it

    def rivals(self, test: Samples) -> tuple[Rival, ...]:
        """How they do on test samples; nothing without any."""
        if not len(test):
            return ()
        figures = ("accuracy", "balanced_accuracy", "auroc")
        return tuple(
            Rival(
                model=name, reads=self.reads, sees=self.sees, **{f: getattr(m, f) for f in figures}
            )
            for name, scores in self.probabilities(test).items()
            for m in [measure_scores(scores, scores.argmax(1), test.y.numpy())]
        )

    def probabilities(self, samples: Samples) -> dict[ModelName, Float[np.ndarray, "n classes"]]:
        """What each model says of samples; 0 for a class that it has not seen."""
        x, result = features(samples, self.sees), {}
        for name, model in self.models:
            result[name] = np.zeros((len(samples), samples.classes))
            result[name][:, model.classes_] = model.predict_proba(x)
        return result


def fit_baselines(
    parts: Sequence[Samples], reads: Reads, seed: int, models: Sequence[ModelName] = MODELS
) -> FittedBaselines:
    """Fit a forest and a logistic regression on at most `MOST_SAMPLES` of each part.

    The models hold what they have read: those of public samples may go anywhere, others stay.

    Args:
        parts: sets of one shape; empty ones are left out, and with one class in all no model is
            fitted.
        reads: which samples these are, for the record and the seed.
        seed: of the run, 0 or more.
        models: which of `MODELS` to fit, in this order.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = stream(seed, "baselines", reads)
    few = [at_most(MOST_SAMPLES, part, rng) for part in parts if len(part)]
    if len({int(c) for part in few for c in part.y}) < 2:
        return FittedBaselines(reads, ())
    samples = concat([replace(part, groups=None) for part in few])  # nothing here is private
    sees = seen_of(samples)
    x, y = features(samples, sees), samples.y.numpy()
    forest = RandomForestClassifier(TREES, random_state=int(rng.integers(2**31)))
    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    record: dict[ModelName, Any] = {"random forest": forest, "logistic regression": regression}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = tuple((name, record[name].fit(x, y)) for name in models)
    return FittedBaselines(reads, fitted, sees)


def baselines(
    public: Samples,
    own: Samples,
    test: Samples,
    seed: int,
    fitted: FittedBaselines | None = None,
) -> Baselines:
    """What a site must beat on its test samples.

    What comes back is measured on the site's samples: it is no release, and stays.

    Args:
        public: any number of samples; without any, only models of the own ones are fitted.
        own: the site's training samples.
        test: the site's, for the measurement alone.
        seed: of the run, 0 or more.
        fitted: models of the public samples, where several sites share them; None fits them here.
    """
    on_public = fitted or fit_baselines([public], "public", seed)
    on_both = fit_baselines([public, own], "public and own", seed)
    majority = None
    if len(own) and len(test):
        majority = float((test.y == own.histogram().argmax()).double().mean())
    return Baselines(majority=majority, rivals=(*on_public.rivals(test), *on_both.rivals(test)))


def seen_of(samples: Samples) -> Seen:
    """What models look at: an encoder's vectors, where all samples have one."""
    return "values" if samples.embeddings is None else "embeddings"


def features(samples: Samples, sees: Seen | None = None) -> Float32[np.ndarray, "n f"]:
    """The numbers that a baseline looks at; see the module.

    BadInput for embeddings of samples that have none: they were not encoded.

    Args:
        samples: any number of them.
        sees: what to look at; None: embeddings, where samples have them.
    """
    if (sees or seen_of(samples)) == "embeddings":
        if samples.embeddings is None:
            raise BadInput(
                "expected samples with embeddings, as the model was fitted on, got none; encode "
                "them with the run's encoder"
            )
        return samples.embeddings.numpy()
    c, h, w = samples.shape
    side = max(1, int((MOST_FEATURES / c) ** 0.5))
    is_vector = c == h == 1  # its neighbours mean nothing
    large, rows = c * h * w > MOST_FEATURES and not is_vector, []
    for batch in torch.arange(len(samples)).split(CHUNK):
        x = samples.inputs(batch)
        x = F.adaptive_avg_pool2d(x, (min(side, h), min(side, w))) if large else x
        rows.append(x.flatten(1).numpy())
    return np.concatenate(rows)


def at_most(n: int, samples: Samples, rng: np.random.Generator) -> Samples:
    """At most n samples, drawn at random in their order; all of them where they are as few.

    Args:
        n: at least 0.
        samples: any number of them.
        rng: unused where there are n samples or fewer.
    """
    if len(samples) <= n:
        return samples
    return samples.take(np.sort(rng.choice(len(samples), n, replace=False)))
