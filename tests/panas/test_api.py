"""`panas.search`, `panas.tune` and `panas.load`: one data set in, its own network out."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ledgers import opened
from torch import Tensor

import panas
from panas.architecture.space import SearchSpace
from panas.evolution.records import EvolutionConfig
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.training.sgd import OptimizerConfig
from panas.tuning import network_tuning
from panas.tuning.space import DPSGDSettings, TuningSpace
from panas.tuning.trial import TrialRecord, TuningConfig

SPACE = SearchSpace(shape=(1, 8, 8), min_blocks=1, max_blocks=2, widths=(4, 8))
CONFIG = EvolutionConfig(population=3, generations=1, offspring=2)
SHORT = OptimizerConfig(optimiser="adam", learning_rate=0.01, batch_size=16, epochs=2)


def images(seed: int, n: int = 56) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, 8, 8, generator=g), torch.arange(n) % 4


def search(data: Any, out: Path | None, **more: Any) -> Any:
    return panas.search(
        data, out=out, space=SPACE, config=CONFIG, optimizer=SHORT, width=16, **more
    )


@pytest.mark.slow
def test_a_search_gives_a_network_and_goes_on_where_it_was(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        search(images(0), tmp_path / "a", progress=stop)
    result, whole = search(images(0), tmp_path / "a"), search(images(0), tmp_path / "b")
    assert result.network(torch.zeros(2, 1, 8, 8)).shape == (2, 4)
    for name in ("log.jsonl", "best.json", "network.safetensors", "history.png", "network.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert result.genome == whole.genome
    with pytest.raises(BadInput, match="data"):
        search(images(1), tmp_path / "a")
    with pytest.raises(BadInput, match="seed"):
        search(images(0), tmp_path / "a", seed=1)


def test_a_search_keeps_hard_limits_and_takes_a_fitness_of_ones_own() -> None:
    result = search(images(0), None, max_parameters=800, fitness=lambda g: 1 / len(g.blocks))
    assert result.cost.parameters <= 800
    assert result.fitness == 1.0
    with pytest.raises(BadInput, match="limits"):
        search(images(0), None, max_parameters=10)


def tune(private: Any, out: Path, trials: int = 2, **more: Any) -> Any:
    return panas.tune(
        private,
        "c4k3",
        public=images(9),
        out=out,
        epochs=1,
        config=TuningConfig(initial=1, trials=trials),
        warm=SHORT,
        width=16,
        **more,
    )


@pytest.mark.thorough
def test_of_private_samples_only_the_network_tells(tmp_path: Path) -> None:
    first, second = images(1), images(2)
    second[0][0, 0, 0, 0] = 7.0
    for name, data in (("a", first), ("b", second)):
        result = tune(data, tmp_path / name)
        assert result.epsilon <= 8.0
        assert result.epsilon == Ledger(tmp_path / name / "ledger.jsonl").account().spent()
    names = sorted(p.name for p in (tmp_path / "a").iterdir() if not p.name.startswith("."))
    wanted = "best.json ledger.head ledger.jsonl log.jsonl network.safetensors trials.png"
    assert names == wanted.split()
    for name in ("best.json", "log.jsonl", "trials.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.slow
def test_a_training_that_died_has_spent_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as m:
        m.setattr(network_tuning, "fit_private", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tune(images(1), tmp_path)
    with pytest.raises(BudgetExhausted):
        tune(images(1), tmp_path)
    account = Ledger(tmp_path / "ledger.jsonl").account()
    assert account.spent() <= 8.0
    assert len(account.entries) == 1
    assert not (tmp_path / "network.safetensors").exists()


@pytest.mark.slow
def test_a_finished_tuning_is_read_again(tmp_path: Path) -> None:
    first = tune(images(1), tmp_path)
    before = (tmp_path / "ledger.jsonl").read_bytes()
    again = tune(images(1), tmp_path)
    assert (tmp_path / "ledger.jsonl").read_bytes() == before
    x = torch.zeros(3, 1, 8, 8)
    with torch.no_grad():
        np.testing.assert_array_equal(first.network(x), again.network(x))
    assert (again.setting, again.accuracy) == (first.setting, first.accuracy)


@pytest.mark.slow
def test_what_was_saved_is_loaded_from_its_folder_or_file(tmp_path: Path) -> None:
    outcome, tuned = search(images(0), tmp_path / "found"), tune(images(1), tmp_path / "tuned")
    x = torch.rand(3, 1, 8, 8)
    for name, result in (("found", outcome), ("tuned", tuned)):
        for path in (str(tmp_path / name), tmp_path / name / "network.safetensors"):
            saved = panas.load(path)
            with torch.no_grad():
                assert torch.equal(saved.network(x), result.network.eval()(x))
            assert (saved.shape, saved.classes) == ((1, 8, 8), 4)
    saved = panas.load(tmp_path / "found")
    assert saved.genome == outcome.genome
    assert (saved.notes["fitness"], saved.notes["accuracy"]) == (outcome.fitness, outcome.accuracy)
    assert saved.class_names == ("0", "1", "2", "3")
    assert set(saved.predict(np.random.default_rng(0).random((5, 8, 8)))) <= set("0123")
    with pytest.raises(BadInput, match="a folder without network"):
        panas.load(tmp_path)


FULL = TuningSpace(batch_sizes=(64,), noise_factor=(1.0, 1.0))
"""Full batches, which have their price in closed form."""


class Constant:
    """A rehearsal that takes no time."""

    validation_samples = 10

    def __call__(self, settings: object) -> float:
        return 0.5


def quick_tune(private: Any, out: Path, **more: Any) -> Any:
    with pytest.MonkeyPatch.context() as m:
        m.setattr(network_tuning, "training_objective", lambda *a, **k: Constant())
        return tune(private, out, trials=1, space=FULL, **more)


@pytest.mark.slow
def test_two_tunings_spend_one_budget_for_life(tmp_path: Path) -> None:
    data, ledger = images(1), opened(tmp_path / "mine")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        first = quick_tune(data, tmp_path / "a", epsilon=4.0, ledger=ledger)
        left = ledger.account().left()
        second = quick_tune(data, tmp_path / "b", epsilon=left, ledger=tmp_path / "mine")
    account = ledger.account()
    assert len(account.runs) == 2
    assert not (tmp_path / "a" / "ledger.jsonl").exists()
    assert first.epsilon == account.of_run(str(tmp_path / "a")).spent() <= 4.0
    assert second.epsilon <= left < 8.0
    assert max(first.epsilon, second.epsilon) < account.spent() <= 8.0
    assert account.spent() > 7.5
    assert account.spent() == pytest.approx(epsilon(account.events(), 1e-5), abs=1e-2)
    with pytest.raises(BudgetExhausted, match="which is left of 8 for life"):
        quick_tune(data, tmp_path / "c", epsilon=2.0, ledger=ledger)
    assert not (tmp_path / "c" / "best.json").exists()
    assert ledger.account() == account


def test_a_share_that_does_not_fit_is_refused_first_and_a_ledger_is_opened_by_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path / "mine", Budget(1.0, 1e-5))
    monkeypatch.setattr(network_tuning, "training_objective", lambda *a, **k: 1 / 0)
    with pytest.raises(BudgetExhausted):
        tune(images(1), tmp_path / "a", epsilon=4.0, ledger=ledger.path)
    assert ledger.account().entries == ()
    with pytest.raises(BadInput, match="open it before"):
        tune(images(1), tmp_path / "a", ledger=tmp_path / "nothing.jsonl")
    other = opened(tmp_path, relation="replace-one")
    with pytest.raises(BadInput, match="under add-or-remove-one"):
        tune(images(1), tmp_path / "a", ledger=other)


@pytest.mark.slow
def test_samples_that_were_tuned_on_before_are_named_or_refused(tmp_path: Path) -> None:
    x, y = images(1)
    result = quick_tune((x, y), tmp_path / "a", epsilon=4.0)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(x))[:-10])
    again = x[order], y[order]
    with pytest.raises(BadInput, match="that have spent epsilon"):
        quick_tune(again, tmp_path / "b", epsilon=4.0, strict=True)
    assert not (tmp_path / "b" / "ledger.jsonl").exists()
    n = len(order)
    said = rf"{n} of these {n} samples have spent up to epsilon {result.epsilon:.3g} "
    with pytest.warns(UserWarning, match=said + "in earlier runs; together up to [5-7]"):
        quick_tune(again, tmp_path / "b", epsilon=4.0)
    with pytest.warns(UserWarning, match="in earlier runs; together up to [6-9]"):
        quick_tune(again, tmp_path / "c", epsilon=1.0, ledger=opened(tmp_path / "mine"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        quick_tune(images(3), tmp_path / "other", epsilon=1.0, strict=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": "a"}, "seed"),
        ({"device": "gpu"}, "cpu or cuda"),
        ({"fitness": 3}, "fitness as a function"),
        ({"fitness": lambda genome: 1 / 0}, "ZeroDivisionError"),
    ],
)
def test_what_a_search_cannot_use_is_told_in_one_line(given: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        search(images(0), None, **given)
    assert "\n" not in str(refused.value)


def test_what_cannot_be_learnt_or_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="a folder as out"):
        search(images(0), tmp_path / "file")
    x, y = images(0)
    with pytest.raises(BadInput, match="two or more classes"):
        search((x, 0 * y), None)
    # Private samples among the public ones.
    x, y = images(9)
    with pytest.raises(BadInput, match="without any sample of the private data"):
        tune((torch.cat([images(1)[0], x[:1]]), torch.cat([images(1)[1], y[:1]])), tmp_path)
    assert not (tmp_path / "ledger.jsonl").exists()


@pytest.mark.slow
def test_a_private_label_that_no_public_sample_has_is_warned_of(tmp_path: Path) -> None:
    x, y = images(1)
    with (
        pytest.warns(UserWarning, match="labels that no public sample has"),
        pytest.raises(BudgetExhausted),
    ):
        tune((x, y + 1), tmp_path, epsilon=1e-4)
    assert not (tmp_path / "log.jsonl").exists()  # nothing that refuses the call once it is mended


def test_a_notebook_is_shown_the_public_names_and_results_in_a_few_lines() -> None:
    assert {"search", "tune", "load", "epsilon", "as_samples"} <= set(dir(panas))
    assert all(getattr(panas, name) is not None for name in dir(panas))
    steps: list[Any] = []
    result = search(images(0), None, progress=steps.append, fitness=lambda g: 1 / len(g.blocks))
    assert len(repr(result)) < 1000
    assert str(steps[-1]).startswith(f"generation 1: best 1.000 ({result.genome}), mean")
    setting = DPSGDSettings(learning_rate=0.1, noise_multiplier=2.0, clip=1.0, batch_size=16)
    trial = TrialRecord(3, setting, None, "over budget", "random")
    assert str(trial) == "trial 4: over budget, learning rate 0.1, sigma 2, clip 1, batch 16"
