"""What one site's search looks at, and so what it costs."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from panas.data.samples import Samples
from panas.data.splits import resample_to, split
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class SearchData:
    """What a search looks at; the parts are disjoint in their origin."""

    warm: Samples  # what a network has seen before private training
    train: Samples  # stands for the private samples
    validation: Samples


def proxy_data(
    public: Samples, histogram: Float[Tensor, "classes"], *, samples: int, rng: np.random.Generator
) -> SearchData:
    """At least one public sample, resampled to a site's class frequencies and number of samples.

    Privacy: the outcome depends on private data through the site's noised label histogram alone;
    `samples`, the number of its training samples, counts as public.
    """
    if not len(public):
        raise BadInput(
            "expected public samples to search on, got none; give data.public_data, or raise "
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

    The last seventh is the paper's test part of the search, which nothing may choose by. `public`
    is what a warm start would see; it may be empty.

    Privacy: none; charge `Unprotected()` for the search split first.
    """
    s = split(search.y, search=0.0, validation=1 / 7, test=1 / 7, rng=rng)
    return SearchData(public, search.take(s.train), search.take(s.validation))
