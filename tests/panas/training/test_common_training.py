"""A training that is common to sites: the same bytes whoever trains, and once for all."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_networks import data

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.runtime.errors import BadInput
from panas.runtime.pool import Pool
from panas.runtime.seeds import one_thread, stream
from panas.runtime.store import Busy, exclusive
from panas.training import common as module
from panas.training.common import CommonTraining, load, want, wanted
from panas.training.distillation import Change, SoftSamples, student_trainer
from panas.training.last_layer import averaged_maps
from panas.training.sgd import OptimizerConfig, Trainer

SPEC = NetworkSpec(shape=(1, 4, 4), classes=3, width=3)
CONFIG = OptimizerConfig(
    optimiser="adam", learning_rate=0.02, batch_size=4, epochs=3, decay="cosine"
)
GENOME = Genome.parse("c4k3-max-c6k3")


def taught(seed: int = 4) -> SoftSamples:
    answers = torch.randn(15, 3, generator=torch.Generator().manual_seed(seed))
    samples = data(15)
    large = samples.x.repeat_interleave(4, 2).repeat_interleave(4, 3)  # enough to be moved
    return SoftSamples(replace(samples, x=large), answers.softmax(1))


def training(folder: Path, changed: Change | None = None) -> CommonTraining:
    lessons = taught()
    return CommonTraining(
        genome=GENOME,
        spec=replace(SPEC, shape=lessons.samples.shape),
        taught=lessons,
        config=CONFIG,
        seed=3,
        device="cpu",
        changed=changed,
        folder=folder,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.glob("student-*.safetensors")}


def _train(threads: int, folder: Path) -> None:
    torch.set_num_threads(threads)
    training(folder).weights()


def test_it_has_the_same_bytes_whoever_trains(tmp_path: Path) -> None:
    for name, threads in (("a", 1), ("b", 2)):
        _train(threads, tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert len(contents(tmp_path / "a")) == 1


def test_one_trains_and_the_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = training(tmp_path).weights()
    monkeypatch.setattr(module, "student_trainer", None)  # nobody trains from here on
    again = training(tmp_path).weights()
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    bottom, head = training(tmp_path).spec.network(GENOME, np.random.default_rng())
    load(bottom, head, first)
    assert torch.equal(bottom.adapt.weight, first["0.adapt.weight"])


def test_processes_that_want_the_same_train_it_once(tmp_path: Path) -> None:
    with Pool(3, 1, preload=("panas.training.common",)) as pool:
        for _ in pool.map(_train, [tmp_path] * 3):
            pass
    _train(1, tmp_path / "alone")
    assert contents(tmp_path) == contents(tmp_path / "alone")


def test_a_training_that_another_is_at_is_waited_for_or_left(tmp_path: Path) -> None:
    own = training(tmp_path)
    with exclusive(tmp_path / f"student-{own.key}.safetensors"), pytest.raises(Busy):
        own.weights(wait=False)
    assert own.weights(wait=False)


def test_a_death_costs_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTS", 3)
    passes, run = list[int](), Trainer.run

    def dying(self: Trainer, epochs: int) -> int:
        passes.append(self.epochs)
        if len(passes) == 2:
            exit("killed")
        return run(self, epochs)

    monkeypatch.setattr(Trainer, "run", dying)
    with pytest.raises(SystemExit):
        training(tmp_path).weights()
    assert training(tmp_path).left == pytest.approx(2 / 3)
    training(tmp_path).weights()
    assert passes == [0, 1, 1, 2]
    assert training(tmp_path).left == 0


@pytest.mark.parametrize("changed", [None, "moved", "thinned"])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_parts_change_nothing(
    parts: int, changed: Change | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = training(tmp_path / "whole", changed)
    rng = stream(whole.seed, "common student", str(GENOME), "")
    bottom, head = whole.spec.network(GENOME, rng)
    config = replace(CONFIG, train_head=whole.spec.head_moves)
    with one_thread():
        trainer = student_trainer(
            bottom,
            head,
            whole.taught,
            config=config,
            rng=rng,
            changed=changed and (changed, whole.seed),
        )
        trainer.run(config.epochs)
    monkeypatch.setattr(module, "PARTS", parts)
    weights = training(tmp_path, changed).weights()
    expected = torch.nn.Sequential(bottom, head).state_dict()
    assert all(torch.equal(weights[name], t) for name, t in expected.items())
    assert weights.keys() == expected.keys()


def test_it_begins_where_the_search_has_left_a_network(tmp_path: Path) -> None:
    first = training(tmp_path).weights()
    still = replace(
        training(tmp_path), config=replace(CONFIG, epochs=0), origin="a", begin=lambda: first
    )
    kept = still.weights()
    assert all(torch.equal(first[name], kept[name]) for name in first)
    nothing = replace(still, origin="b", begin=lambda: {}).weights()  # a search that diverged
    assert not torch.equal(nothing["0.adapt.weight"], first["0.adapt.weight"])


@pytest.mark.parametrize(
    "what", ["genome", "spec", "taught", "config", "seed", "changed", "origin"]
)
def test_another_training_is_not_mistaken_for_it(what: str, tmp_path: Path) -> None:
    base = training(tmp_path)
    others = {
        "genome": Genome.parse("c4k3-avg-c6k3"),
        "spec": replace(base.spec, unit=False),
        "taught": taught(5),
        "config": replace(CONFIG, batch_size=5),
        "seed": 4,
        "changed": "moved",
        "origin": "another",
    }
    assert replace(base, **{what: others[what]}).key != base.key


def test_labels_do_not_reach_it(tmp_path: Path) -> None:
    base = training(tmp_path)
    samples = base.taught.samples
    relabelled = SoftSamples(replace(samples, y=2 - samples.y), base.taught.targets)
    assert replace(base, taught=relabelled).key == base.key


def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path) -> None:
    training(tmp_path).weights()
    (path,) = tmp_path.glob("student-*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadInput, match="damaged or edited file; move it") as e:
        training(tmp_path).weights()
    assert "\n" not in str(e.value)


def test_what_is_wanted_is_noted_once_and_not_by_whom(tmp_path: Path) -> None:
    assert wanted(tmp_path) == []
    for text in ("c4k3", "c6k3-max", "c4k3"):
        want(tmp_path, Genome.parse(text))
    assert sorted(wanted(tmp_path)) == ["c4k3", "c6k3-max"]


def test_maps_are_computed_once_by_the_weights_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = training(tmp_path)
    first = own.maps()
    bottom, head = own.spec.network(GENOME, np.random.default_rng())
    load(bottom, head, own.weights())
    torch.testing.assert_close(first, averaged_maps(bottom, own.taught.samples))
    monkeypatch.setattr(module, "averaged_maps", None)  # nobody computes any from here on
    assert torch.equal(training(tmp_path).maps(), first)
