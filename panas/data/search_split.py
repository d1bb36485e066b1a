"""What one client's search looks at, and so what it costs.

`proxy_data` draws everything from public samples, resampled to the client's own noised label
histogram: personal, and paid for by the histogram alone. `private_data` is the paper's way, on the
client's search split: nothing here accounts for it, and the ledger says infinity.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from panas.data.samples import Samples
from panas.data.splits import resample_to, split
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class SearchData:
    """What a search looks at; the parts are disjoint in their origin.

    `warm` stands for what a network has seen before private training, `train` for the private
    samples, `validation` scores.
    """

    warm: Samples
    train: Samples
    validation: Samples


def proxy_data(
    public: Samples,
    histogram: Float[Tensor, "classes"],
    *,
    samples: int,
    rng: np.random.Generator,
) -> SearchData:
    """Public samples made to look like a client's: its class frequencies, its number of samples.

    Args:
        public: public samples, at least one.
        histogram: the client's noised label counts.
        samples: n, the client's number of training samples (treated as public).
        rng: which samples are drawn.

    Privacy: the outcome depends on private data through `histogram` alone.

    """
    if not len(public):
        raise BadInput(
            "expected public samples to search on, got none; give --public-data, or raise "
            "data.public_fraction"
        )
    s = split(public.y, search=0.4, validation=0.3, test=0.0, rng=rng)
    warm, train, validation = (public.take(part) for part in (s.search, s.train, s.validation))

    def alike(part: Samples, size: int) -> Samples:
        source = part if len(part) else public
        return source.take(resample_to(source.y, histogram, size, rng))

    return SearchData(warm, alike(train, samples), alike(validation, max(200, len(validation))))


def private_data(search: Samples, public: Samples, rng: np.random.Generator) -> SearchData:
    """The paper's way: five sevenths of the private search split train, one seventh validates.

    The remaining seventh is the paper's test part of the search, which nothing may choose by.
    `public` is what a warm start would see; it may be empty.

    Privacy: none; charge `Unprotected()` for the search split first.

    """
    s = split(search.y, search=0.0, validation=1 / 7, test=1 / 7, rng=rng)
    return SearchData(public, search.take(s.train), search.take(s.validation))
