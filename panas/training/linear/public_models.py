"""Models of a table's labelled public rows, which every site has beside its heads."""

from dataclasses import dataclass

from panas.data.samples import Samples
from panas.training.linear.public_forest import PublicForest, fit_public_forest
from panas.training.linear.public_logistic import PublicLogistic, fit_public_logistic


@dataclass(frozen=True)
class PublicModels:
    """What public rows alone have made; nothing where they cannot."""

    forest: PublicForest | None = None
    logistic: PublicLogistic | None = None


_FITTED: list[tuple[Samples, PublicModels]] = []


def public_models(public: Samples, *, table: bool) -> PublicModels:
    """The models of public samples; the last ones are kept for the next site.

    There are none of pictures: they are worse than the heads, and mislead an average that few
    samples weigh.
    """
    if not table:
        return PublicModels()
    for of, known in _FITTED[:]:  # a copy: another thread may serve another run
        if of is public:
            return known
    models = PublicModels(fit_public_forest(public), fit_public_logistic(public))
    _FITTED[:] = [(public, models)]
    return models
