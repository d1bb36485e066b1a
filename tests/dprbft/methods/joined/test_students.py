"""What students are taught and judged by: pictures made of few images, and else what there is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import carry_out, joined_config

from dprbft.config.schema import RunConfig
from dprbft.methods.joined import networks, student_search
from dprbft.methods.joined import student as module
from dprbft.methods.joined.inputs import learnt_from
from dprbft.methods.joined.residual import public_heads
from dprbft.methods.joined.state import JoinedState
from dprbft.paths import CANDIDATES, model_file, read_sites
from dprbft.site.results.records import SearchRecord
from dprbft.site.site import Site
from panas.architecture.genome import Genome
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.data.samples import Samples
from panas.runtime.store import Busy, read_tensors
from panas.training.checkpoint import SavedNetwork, load_network
from panas.training.common import CommonTraining, want, wanted
from panas.training.distillation import SoftSamples
from panas.training.linear.predictor import Candidates
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
    inputs = learnt_from(site)
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
    inputs = learnt_from(site)
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
    inputs = learnt_from(site)
    taught, judged = student_search._lessons(inputs, alike, as_rows(site))
    assert (len(taught), len(judged)) == student_search.MADE_ROWS
    assert [len(s) for s in sources] == [28, 12]
    assert not pixels(sources[0]) & pixels(sources[1])
    facts = as_rows(site).facts
    assert student_search.taught_to_candidates(facts, 40) == len(taught)
    assert student_search.taught_to_candidates(facts, 1) == 0


def test_a_student_of_rows_learns_as_many_rows_as_a_forecast_counts(site: Site) -> None:
    inputs, table = learnt_from(site), as_rows(site)
    lessons = module.lessons_of(table, inputs)
    assert len(lessons.samples) == module.taught_to_student(table.facts, 40) == module.ROWS
    assert torch.equal(lessons.z, site.phi(lessons.samples.inputs()))
    assert module.taught_to_student(site.facts, 40) == 40


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
    monkeypatch.setattr(networks, "fit", lambda *_, batches, **__: given.append(batches))
    networks._from_own_samples(site, network(site), np.random.default_rng(0))
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


def test_pictures_are_made_once_for_all_sites(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PICTURES", 50)
    inputs = learnt_from(site)
    first = module.lessons_of(site, inputs)
    assert (len(first.samples), first.z.shape) == (50, (50, 8))
    assert torch.equal(first.z, site.phi(first.samples.inputs()))
    monkeypatch.setattr(module, "pictures_of_two", None)  # nobody makes any from here on
    again = module.lessons_of(site, inputs)
    assert torch.equal(first.samples.x, again.samples.x)
    assert torch.equal(first.z, again.z)


def test_some_lessons_are_drawn_with_their_rows(site: Site) -> None:
    inputs = learnt_from(site)
    lessons = module.Lessons(inputs, site.phi(inputs.inputs()))
    some = lessons.some(7, np.random.default_rng(1))
    assert len(pixels(some.samples)) == 7
    assert torch.equal(some.z, site.phi(some.samples.inputs()))
    assert len(lessons.some(99, np.random.default_rng(1)).samples) == 40


@pytest.mark.parametrize("over", ["shared", "public", None])
@pytest.mark.parametrize("adapted", [False, True])
def test_a_teacher_answers_by_the_head_that_the_site_builds_on(
    site: Site, over: str | None, adapted: bool
) -> None:
    """As the candidates of its predictor do, which compute rows themselves."""
    g = torch.Generator().manual_seed(0)
    state = JoinedState(
        histogram=(9.0, *[1.0] * 9), shared=torch.randn(10, 8, generator=g), over=over
    )
    if adapted:
        weight, bias = torch.randn(10, 8, generator=g), torch.randn(10, generator=g)
        state = replace(state, residual=(weight, bias))
    inputs = learnt_from(site)
    x = inputs.inputs()
    assert state.shared is not None
    candidates = Candidates(
        phi=site.phi,
        heads={"shared": state.shared, **public_heads(site)},
        log_prior=state.log_prior,
        residual=state.linear(),
        over=over,
    )
    values = candidates.logits(x)
    expected = values["residual"] if adapted else values["shared"] + state.log_prior
    answers = module.answers_to(site, state, module.Lessons(inputs, site.phi(x)))
    torch.testing.assert_close(answers, expected.softmax(1))


@pytest.mark.slow
def test_sites_share_latencies_a_search_and_what_a_genome_s_student_is_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = list[str]()
    train = CommonTraining._train_part

    def noted(self: CommonTraining) -> None:
        if self.left == 1:
            trained.append(str(self.genome))
        train(self)

    monkeypatch.setattr(CommonTraining, "_train_part", noted)
    limit = {"max_latency_ms": 50.0, "max_parameters": 2000}
    carry_out(tmp_path / "run", joined_config(search=limit))
    sites = read_sites(tmp_path / "run")
    records = [SearchRecord.read(site.home) for site in sites]
    assert len(list((tmp_path / "run").rglob("latency.json"))) == 1
    assert [bool(record.result.passes) for record in records] == [True, False]
    assert all(record.cost.parameters <= 2000 for record in records)
    assert sorted(trained) == sorted({str(record.genome) for record in records})
    common = tmp_path / "run" / CANDIDATES
    assert sorted(wanted(common)) == sorted(trained)


def test_while_a_genome_is_trained_elsewhere_a_site_trains_what_others_will_want(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    genome, busy, tried = Genome.parse("c16k3"), [True], list[tuple[str, bool]]()
    monkeypatch.setattr(SearchRecord, "read", lambda home: Namespace(genome=genome))
    for text in ("c16k3", "c16k5", "c16k3-max"):
        want(site.common, Genome.parse(text))

    class Training(Namespace):
        genome: Genome
        left: float

        def go_on(self, *, wait: bool = True) -> None:
            tried.append((str(self.genome), wait))
            if self.genome == genome and busy[0] and not wait:
                raise Busy("expected nobody")
            self.left -= 0.5

        def weights(self) -> dict[str, torch.Tensor]:
            assert not self.left
            return {"of": torch.tensor(len(tried))}

    shares = {"c16k3": 1.0, "c16k5": 0.5, "c16k3-max": 1.0}

    def training(g: Genome) -> Training:
        return Training(genome=g, left=shares[str(g)])

    networks._in_common(site, training)  # type: ignore[arg-type]
    others = [text for text, _ in tried if text != "c16k3"]
    assert others[0] == "c16k3-max"  # of which most is left
    assert sorted(others) == ["c16k3-max", "c16k3-max", "c16k5"]
    own = [wait for text, wait in tried if text == "c16k3"]
    assert own[-1]  # it waits only when nothing else is left
    assert not any(own[:3])
    tried.clear()
    busy[0] = False
    networks._in_common(site, training)  # type: ignore[arg-type]
    assert tried == [("c16k3", False)] * 2


@pytest.mark.slow
def test_without_public_samples_a_network_that_stays_learns_from_own_ones(tmp_path: Path) -> None:
    nothing = {"public_limit": 0}
    for name, promise in (("leaves", "protected"), ("stays", "stays")):
        run = tmp_path / name
        carry_out(run, joined_config(data=nothing, privacy={"network": promise}))
        networks_of = [model_file(site.home) for site in read_sites(run)]
        assert [path.is_file() for path in networks_of] == [name == "stays"] * 2
        assert not list(run.glob(f"{CANDIDATES}/pictures-*"))  # no picture of own samples leaves
    first, second = (load_network(path) for path in networks_of)
    assert first.notes["network"] == "stays"
    if first.genome == second.genome:  # each is of its own samples
        assert not torch.equal(first.bottom.adapt.weight, second.bottom.adapt.weight)


@pytest.mark.slow
@pytest.mark.parametrize("few", [True, False])
def test_many_sites_move_the_last_layer_alone(
    few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "FEW_SITES", 2 if few else 1)
    carry_out(tmp_path / "run", joined_config())
    common = tmp_path / "run" / CANDIDATES
    trained = {
        read_tensors(path)[1]["genome"]: read_tensors(path)[0]
        for path in common.glob("student-*.safetensors")
    }
    for site in read_sites(tmp_path / "run"):
        network = load_network(model_file(site.home))
        own = torch.nn.Sequential(network.bottom, network.head).state_dict()
        shared = trained[str(network.genome)]
        moved = {name for name in own if not torch.equal(own[name], shared[name])}
        assert {"0.adapt.weight", "0.adapt.bias"} <= moved
        assert (len(moved) > 2) == few
    assert len(list(common.glob("maps-*.safetensors"))) == (0 if few else len(trained))


@pytest.mark.parametrize(("channels", "times"), [(3, 2), (1, 1)])
def test_photographs_that_a_trunk_reads_are_mirrored_with_their_answers(
    channels: int, times: int, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(site: Site, samples: Samples, *, mirrored: bool = False) -> Samples:
        return replace(samples, x=samples.x.flip(3)) if mirrored else samples

    monkeypatch.setattr(module, "as_read", read)
    monkeypatch.setattr(module, "trunk_for", lambda site: object())
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(256, size=(6, channels, 8, 8), dtype=np.uint8))
    inputs = Samples(x, torch.zeros(6, dtype=torch.int64), 10)
    of_pictures = replace(site, facts=replace(site.facts, shape=(channels, 8, 8)))
    z = torch.arange(12.0).view(6, 2)
    lessons = module._with_mirrored(of_pictures, inputs, z)
    assert len(lessons.samples) == len(lessons.z) == 6 * times
    assert torch.equal(lessons.samples.x[:6], x)
    assert torch.equal(lessons.z[:6], z)
    if times == 2:
        assert torch.equal(lessons.samples.x[6:], x.flip(3))
        assert torch.equal(lessons.z[6:], z)
