"""An exported program prepares samples as `panas` does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from patients import INPUTS, ROWS, TABLE

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts, fit
from panas.data.files.columns import Column, side_of
from panas.data.files.raw import Raw
from panas.data.load import unlabelled
from panas.training.checkpoint import SavedNetwork
from panas.training.export.program import Pixels, Rows, cell_codes, program_of, samples_of

PICTURES = Facts(class_names=("a", "b"), shape=(3, 5, 4), dtype="uint8")
TEXTS = ("f", "m", "other", "")


def saved_of(facts: Facts) -> SavedNetwork:
    """An untrained network for these facts."""
    spec = NetworkSpec(shape=facts.shape, classes=facts.classes, width=8)
    genome, generator = Genome.parse("c8k3"), torch.Generator().manual_seed(1)
    bottom, head = spec.bottom(genome, generator).eval(), spec.head(generator).eval()
    return SavedNetwork(bottom, head, genome, spec, {"facts": facts.to_json()})


@pytest.mark.parametrize(
    "facts",
    [
        PICTURES,
        replace(PICTURES, dtype="float32"),
        replace(PICTURES, dtype="float32", unit=False),
        TABLE,
    ],
    ids=["bytes", "floats", "scaled floats", "table"],
)
def test_a_program_answers_as_its_network(facts: Facts):
    saved = saved_of(facts)
    x = samples_of(facts, 6, torch.Generator().manual_seed(2))
    with torch.no_grad():
        got = program_of(saved)(x)
    if facts.columns:
        wanted = saved.probabilities(ROWS)
        with torch.no_grad():
            got = program_of(saved)(cell_codes(unlabelled(ROWS, facts), facts))
    else:
        wanted = saved.probabilities(x)
    assert got.shape == wanted.shape
    assert torch.allclose(got, wanted, atol=1e-6)
    assert torch.allclose(got.sum(1), torch.ones(len(got)))


def test_deep_pictures_come_as_a_share_of_their_largest_value():
    facts = Facts(class_names=("a", "b"), shape=(1, 2, 2), dtype="float32", bits=12)
    x = np.array([0, 1, 2000, 4095], np.uint16).reshape(1, 1, 2, 2)
    wanted = fit(Raw(x, np.zeros(1, np.int64), facts.class_names), facts).inputs()
    share = torch.from_numpy(x.astype(np.float32) / 4095)
    assert torch.allclose(Pixels(facts)(share), wanted, atol=1e-6)


def test_rows_are_encoded_as_in_training():
    got = Rows(TABLE.columns)(cell_codes(unlabelled(ROWS, TABLE), TABLE))
    assert torch.equal(got, INPUTS)


@st.composite
def columns(draw: st.DrawFn) -> tuple[Column, ...]:
    results = []
    for i in range(draw(st.integers(1, 6))):
        kind, missing = draw(st.sampled_from(["number", "date", "text"])), draw(st.booleans())
        reach = draw(st.sampled_from([None, 0.5, 30.0, 1e6])) if kind != "text" else None
        known = draw(st.sampled_from([(), ("f",), ("f", "m")])) if kind == "text" else ()
        results.append(
            Column(
                name=f"c{i}",
                kind=kind,  # type: ignore[arg-type]
                centre=0.0 if kind == "text" else draw(st.sampled_from([0.0, -3.5, 1e9])),
                reach=reach,
                categories=known,
                missing=missing,
                angle=draw(st.booleans()),
            )
        )
    return tuple(results)


@given(columns(), st.integers(0, 2**32))
def test_any_columns_are_encoded_as_their_features(columns: tuple[Column, ...], seed: int):
    side, rng = side_of(sum(c.width for c in columns)), np.random.default_rng(seed)
    facts = Facts(class_names=("a", "b"), shape=(1, side, side), dtype="float32", columns=columns)
    cells = np.stack(
        [
            rng.integers(0, len(TEXTS), 7).astype(float)
            if c.kind == "text"
            else c.centre + (c.reach or 1) * rng.normal(0, 1.5, 7)
            for c in columns
        ],
        axis=1,
    )
    cells[rng.random(cells.shape) < 0.2] = np.nan
    raw = Raw(
        cells,
        np.zeros(7, np.int64),
        facts.class_names,
        tuple(c.name for c in columns),
        kinds={c.name: c.kind for c in columns if c.kind != "number"},
        texts={c.name: TEXTS for c in columns if c.kind == "text"},
    )
    got = Rows(columns)(cell_codes(raw, facts))
    assert torch.allclose(got, fit(raw, facts).inputs(), atol=1e-7)
