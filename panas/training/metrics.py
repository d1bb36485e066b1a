"""How good a network's answers are, beyond accuracy: AUROC, balanced accuracy, recall, F1.

Accuracy hides a rare class: on card fraud, "never" is right for 998 of 1000. Balanced accuracy is
the mean recall over the classes, and AUROC the chance that a sample of a class gets more of it
than a sample of another (one class against the rest, averaged over classes). A class that the test
split lacks counts in no average.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

Figure = float | None
"""A share in [0, 1]; None where the samples do not tell it."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What a network's answers to labelled samples are worth; measured, not private."""

    samples: int
    accuracy: Figure
    balanced_accuracy: Figure  # mean recall over the classes that have samples
    auroc: Figure  # mean over the classes that have samples, and do not have all of them
    macro_f1: Figure  # mean over the classes that have samples
    recall: tuple[Figure, ...]  # one a class
    f1: tuple[Figure, ...]  # one a class; with precision 0 where nobody is called so

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self) | {"recall": list(self.recall), "f1": list(self.f1)}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Metrics":
        """What `to_json` wrote."""
        per_class = {name: tuple(record[name]) for name in ("recall", "f1")}
        return Metrics(**record | per_class)


def measure(logits: Float[Tensor, "n classes"], labels: Int64[Tensor, "n"]) -> Metrics:
    """All measures of a network's logits on samples with `labels`, 0..classes-1.

    It reads the labels, so it is a view of whoever holds them, and no release.
    """
    log_odds = logits.detach().double().log_softmax(1).nan_to_num(nan=-np.inf)
    scores = log_odds.clamp(min=-1e300).cpu().numpy()
    return measure_scores(scores, logits.argmax(1).cpu().numpy(), labels.cpu().numpy())


def measure_scores(scores: np.ndarray, answers: np.ndarray, labels: np.ndarray) -> Metrics:
    """All measures of a network's answers and scores.

    Args:
        scores: (n, classes), finite; the larger the likelier.
        answers: (n,), the class that is answered.
        labels: (n,), 0 to classes - 1.
    """
    from sklearn.metrics import accuracy_score, f1_score, recall_score, roc_auc_score

    classes = scores.shape[1]
    counts = np.bincount(labels, minlength=classes)
    present = [c for c in range(classes) if counts[c]]
    recall: list[Figure] = [None] * classes
    f1: list[Figure] = [None] * classes
    if present:
        per_class = {"labels": present, "average": None, "zero_division": 0.0}
        results = recall_score(labels, answers, **per_class), f1_score(labels, answers, **per_class)
        for c, r, f in zip(present, *results, strict=True):
            recall[c], f1[c] = float(r), float(f)
    ranked = [c for c in present if counts[c] < len(labels)]
    areas = [float(roc_auc_score(labels == c, scores[:, c])) for c in ranked]
    return Metrics(
        samples=len(labels),
        accuracy=float(accuracy_score(labels, answers)) if present else None,
        balanced_accuracy=_mean(recall),
        auroc=_mean(areas),
        macro_f1=_mean(f1),
        recall=tuple(recall),
        f1=tuple(f1),
    )


def _mean(figures: list[Figure] | list[float]) -> Figure:
    known = [x for x in figures if x is not None]
    return float(np.mean(known)) if known else None
