"""The folder of kinds is the registry: what is in it is found, and says all that is asked of it."""

from pathlib import Path

import pytest
import torch

from panas.privacy.accounting.events import Gaussian, PostProcessing, Unprotected
from panas.privacy.release import kinds
from panas.privacy.release.kind import (
    ReleaseKind,
    event_of,
    is_noised,
    kind_named,
    kind_names,
)
from panas.runtime.errors import BadInput


def test_every_module_of_the_folder_is_a_kind_and_nothing_else_is() -> None:
    files = {p.stem for p in Path(kinds.__path__[0]).glob("*.py")} - {"__init__"}
    assert set(kind_names()) == files == {"moments", "class_sums", "public_rows", "raw_rows"}
    for name in kind_names():
        kind = kind_named(name)
        assert isinstance(kind, ReleaseKind)
        assert kind.READS in ("training", "public")
        assert kind.BARE


@pytest.mark.parametrize("name", ["", "none", "kind", "moments.run", "..kind", "os"])
def test_a_name_that_is_no_kind_is_refused_and_never_imported(name: str) -> None:
    with pytest.raises(BadInput, match="class_sums, moments, public_rows, raw_rows"):
        kind_named(name)


@pytest.mark.parametrize("name", kind_names())
def test_noise_is_where_it_is_charged(name: str) -> None:
    kind = kind_named(name)
    noised = [spec.noise is not None for spec in kind.arrays(3, 4).values()]
    assert all(noised) if is_noised(kind) else not any(noised)
    assert (kind.SENSITIVITY or 0.0) > 0 if is_noised(kind) else not kind.SENSITIVITY
    for spec in kind.arrays(3, 4).values():
        assert spec.noise is None or spec.noise.shape == torch.Size(spec.shape)  # type: ignore[arg-type]


def test_the_event_is_the_one_that_a_kind_is_charged_as() -> None:
    events = {name: event_of(kind_named(name), 1.5) for name in kind_names()}
    assert events == {
        "moments": Gaussian(1.5),
        "class_sums": Gaussian(1.5),
        "public_rows": PostProcessing(),
        "raw_rows": Unprotected(),
    }
    with pytest.raises(BadInput, match="plan with releases"):
        event_of(kind_named("moments"), None)
