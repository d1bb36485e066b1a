"""The kinds of a release, and where they are found.

The folder `panas/privacy/release/kinds/` is the registry: a module in it that has what
`ReleaseKind` asks for is a kind, and its name is the module's. Adding one touches that file and
its test; everything else (gate, messages, heads, configuration, attacks) asks the kind.

| kind | what leaves | charged as | what that says of a sample |
|---|---|---|---|
| `moments` | noised sums u u^T and e_y u^T | `Gaussian(m)` | as much as its epsilon allows |
| `class_sums` | noised class sums and counts | `Gaussian(m)` | the same |
| `public_rows` | rows of public samples | `PostProcessing()` | what DP-SGD's weights say |
| `raw_rows` | a row and label of every sample | `Unprotected()` | all: it can be reconstructed |

With `Unprotected()` any kind leaves without noise: what a run without a budget does. Releases are
accounted for under add-or-remove-one.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Literal, Protocol, cast, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from panas.privacy.accounting.events import Gaussian, PostProcessing, Unprotected
from panas.privacy.noise import NoiseSource
from panas.privacy.release import kinds
from panas.privacy.release.estimate import ArraySpec, Estimate, Moments, Rows
from panas.runtime.errors import BadInput

ReleaseEvent = Gaussian | PostProcessing | Unprotected


@runtime_checkable
class ReleaseKind(Protocol):
    """What a kind of release says of itself; a module with these names is one."""

    CHARGED_AS: type[ReleaseEvent]  # what it is; any kind without noise is `Unprotected`
    SENSITIVITY: float | None  # to one unit more or less, in L2 norm; None: nothing bounds it
    READS: Literal["training", "public"]  # the site's training samples, or public ones
    UNIT: bool  # whether it needs representations of norm at most 1
    BARE: str  # what leaves where nothing protects it, for the privacy card

    def run(self, rows: Rows, classes: int, scale: float, noise: NoiseSource) -> dict[str, Tensor]:
        """What leaves, computed from checked rows.

        Args:
            rows: finite representations (n, d), classes, and groups where they are the privacy
                unit.
            classes: C.
            scale: s, standard deviation of the noise on each number; 0 where there is none.
            noise: what draws it; unused at scale 0.
        """

    def arrays(self, classes: int, d: int) -> dict[str, ArraySpec]:
        """What crosses the wire, by name."""

    def estimate(self, arrays: Mapping[str, Tensor], classes: int, scale: float) -> Estimate:
        """What a receiver makes of it: unbiased sums, or the rows.

        Args:
            arrays: what `run` returned, decoded and checked.
            classes: C.
            scale: s, standard deviation of their noise, which is public.
        """


@runtime_checkable
class SummedKind(ReleaseKind, Protocol):
    """A kind whose releases add up, so that a receiver may see their sum alone."""

    SUM_SENSITIVITY: float  # of `numbers`, to one unit more or less, in L2 norm

    def numbers(self, rows: Rows, classes: int) -> Float[Tensor, "k"]:
        """What leaves, without noise, as numbers that take noise of one size."""

    def from_numbers(self, numbers: Float[Tensor, "k"], classes: int, scale: float) -> Moments:
        """What a receiver makes of such numbers, or of their sum.

        Args:
            numbers: all that a release holds, in one row of k.
            classes: C.
            scale: standard deviation of the noise on each number.
        """

    def to_numbers(self, moments: Moments) -> Float[Tensor, "k"]:
        """The numbers that `from_numbers` takes for this."""

    def numbers_of(self, width: int, classes: int) -> int:
        """How many these numbers are, for representations of this width."""


def kind_names() -> tuple[str, ...]:
    """The names of all kinds."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(kinds.__path__)))


def kind_named(name: str) -> ReleaseKind:
    """The kind of a name; BadInput if there is none."""
    if name not in kind_names():
        raise BadInput(f"expected a release of {', '.join(kind_names())}, got {name!r:.40}")
    kind = cast(ReleaseKind, importlib.import_module(f"{kinds.__name__}.{name}"))
    if is_noised(kind) and not (kind.SENSITIVITY or 0.0) > 0:
        raise BadInput(f"expected a SENSITIVITY above 0 of {name}, which is noised; state it")
    return kind


def summed_kind(name: str) -> SummedKind:
    """The kind of a name whose releases add up; BadInput if they do not."""
    kind = kind_named(name)
    if not isinstance(kind, SummedKind):
        raise BadInput(f"expected a release that adds up, got {name}; use privacy.trust=server")
    return kind


def is_noised(kind: ReleaseKind) -> bool:
    """Whether noise protects it."""
    return kind.CHARGED_AS is Gaussian


def noise_scale(kind: ReleaseKind, noise_multiplier: float | None) -> float:
    """Standard deviation s of the noise on each number of a release; 0 where there is none."""
    return (kind.SENSITIVITY or 0.0) * (noise_multiplier or 0.0)


def event_of(kind: ReleaseKind, noise_multiplier: float | None) -> ReleaseEvent:
    """What a release of a kind is charged as, where the weights are protected."""
    if not is_noised(kind):
        return kind.CHARGED_AS()  # type: ignore[call-arg]
    if noise_multiplier is None:
        raise BadInput("expected a plan with releases, got one without; set release_noise")
    return Gaussian(noise_multiplier)
