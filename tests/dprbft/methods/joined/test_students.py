"""What students are taught and judged by: pictures made of few images, and else what there is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import carry_out

from dprbft.config.schema import RunConfig
from dprbft.methods.joined import student as module
from dprbft.methods.joined import student_search
from dprbft.site.site import Site
from panas.architecture.genome import Genome
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.data.samples import Samples
from panas.training.checkpoint import SavedNetwork
from panas.training.distillation import SoftSamples
from panas.training.sgd import Batches

Open = Callable[..., Site]


@pytest.fixture
def site(tiny: Callable[..., RunConfig], make_site: Open, tmp_path: Path) -> Site:
    config = tiny(federation__method="joined", data__public_limit=40, network__features=8)
    return make_site(config, tmp_path / "run")


def alike(x: torch.Tensor) -> torch.Tensor:
    return torch.full((len(x), 10), 0.1)


def network(site: Site) -> SavedNetwork:
    genome, spec, g = Genome.parse("c16k3"), site.spec, torch.Generator()
    return SavedNetwork(spec.bottom(genome, g), spec.head(g), genome, spec, {})


def pixels(samples: Samples) -> set[bytes]:
    return {x.numpy().tobytes() for x in samples.x}


def test_few_images_teach_and_judge_by_pictures_that_share_none_of_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[Samples] = []
    made_of = student_search.made_of

    def noted(samples: Samples, n: int, **options: Any) -> SoftSamples:
        sources.append(samples)
        return made_of(samples, n, **options)

    monkeypatch.setattr(student_search, "made_of", noted)
    inputs = module.learnt_from(site)
    taught, judged = student_search._lessons(inputs, alike, site)
    assert (len(taught), len(judged)) == student_search.MADE
    assert [len(s) for s in sources] == [28, 12]
    first, last = map(pixels, sources)
    assert not first & last
    assert first | last == pixels(inputs)


def test_many_images_teach_and_judge_as_they_are(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MANY", 40)
    inputs = module.learnt_from(site)
    taught, judged = student_search._lessons(inputs, alike, site)
    assert (len(taught), len(judged)) == (28, 12)
    assert pixels(taught.samples) | pixels(judged.samples) == pixels(inputs)


def as_rows(site: Site) -> Site:
    """A site whose pixels are the columns of a table."""
    columns = tuple(Column(name=f"column {i}") for i in range(64))
    names, shape = site.facts.class_names, site.facts.shape
    facts = Facts(class_names=names, shape=shape, dtype="float32", columns=columns)
    return replace(site, facts=facts)


def test_rows_teach_and_judge_by_rows_that_share_none_of_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[Samples] = []
    made_rows = student_search.made_rows

    def noted(samples: Samples, *rest: Any, **options: Any) -> SoftSamples:
        sources.append(samples)
        return made_rows(samples, *rest, **options)

    monkeypatch.setattr(student_search, "made_rows", noted)
    inputs = module.learnt_from(site)
    taught, judged = student_search._lessons(inputs, alike, as_rows(site))
    assert (len(taught), len(judged)) == student_search.MADE_ROWS
    assert [len(s) for s in sources] == [28, 12]
    assert not pixels(sources[0]) & pixels(sources[1])
    facts = as_rows(site).facts
    assert student_search.taught_to_candidates(facts, 40) == len(taught)
    assert student_search.taught_to_candidates(facts, 1) == 0


def test_a_student_of_rows_learns_as_many_rows_as_a_forecast_counts(site: Site) -> None:
    inputs, rng = module.learnt_from(site), np.random.default_rng(0)
    taught = module._taught(as_rows(site), inputs, alike, rng)
    assert len(taught) == module.taught_to_student(as_rows(site).facts, len(inputs)) == module.ROWS
    assert len(module._taught(site, inputs, alike, rng)) == len(inputs)
    assert module.taught_to_student(site.facts, len(inputs)) == len(inputs)


@pytest.mark.parametrize("table", [False, True])
def test_own_images_are_moved_anew_each_time_and_rows_are_not(
    site: Site, table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = torch.randint(256, (20, 1, 28, 28), dtype=torch.uint8)
    own = Samples(images, torch.arange(20) % 10, 10)
    of_table = Facts(
        class_names=site.facts.class_names,
        shape=(1, 1, 1),
        dtype="float32",
        columns=(Column(name="a column"),),
    )
    data = replace(site.data, train=own)
    facts = of_table if table else site.facts
    site = replace(site, facts=facts, read_data=lambda: data)
    given: list[Batches | None] = []
    monkeypatch.setattr(module, "fit", lambda *_, batches, **__: given.append(batches))
    module._from_own_samples(site, network(site), np.random.default_rng(0))
    if table:
        assert given == [None]
        return
    (batches,) = given
    assert batches
    at = torch.arange(5, 15)
    first, again, later = (batches(at, step) for step in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], later[0])
    assert all(torch.equal(y, own.y[at]) for _, y in (first, later))
    middles = slice(None), slice(None), slice(2, -2), slice(2, -2)
    for image, of in zip(first[0], own.inputs(at), strict=True):  # a crop of its own image
        assert any(
            torch.equal(image[middles[1:]], of[:, i : i + 24, j : j + 24])
            for i in range(5)
            for j in range(5)
        )


@pytest.mark.thorough
def test_a_run_asks_the_teacher_of_few_images_at_each_step(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    distil = module.distil

    def noted(*networks: Any, teacher: Any, **options: Any) -> None:
        assert teacher is not None

        def ask(x: torch.Tensor) -> torch.Tensor:
            asked.append(len(x))
            return teacher(x)

        distil(*networks, teacher=ask, **options)

    monkeypatch.setattr(module, "distil", noted)
    few = {"data__public_limit": 40, "network__features": 8, "training__student_steps": 60}
    config = tiny(federation__method="joined", federation__clients=1, **few)
    carry_out(tmp_path / "run", config)
    assert len(asked) >= 60
    assert max(asked) <= 32
