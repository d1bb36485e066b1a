"""One client's search: what it may look at, that it repeats, and that it respects the budget."""

from pathlib import Path

import numpy as np
import pytest
import torch

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.samples import Samples
from panas.data.search_split import private_data, proxy_data
from panas.evolution.records import EvolutionConfig
from panas.evolution.site_search import search_architecture
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, epsilon_of
from panas.privacy.schedule import TrainingSchedule
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.seeds import stream
from panas.training.sgd import OptimizerConfig
from panas.tuning.objective import tune_settings, warm_started
from panas.tuning.space import TuningSpace
from panas.tuning.trial import TrialRecord, TuningConfig

SHAPE = (1, 8, 8)
CPU = torch.device("cpu")
BLUEPRINT = NetworkSpec(shape=SHAPE, classes=4, width=8)
GENOME = Genome.parse("c4k3-max-c4k3")
BUDGET = Budget(4.0, 1e-5)
SCHEDULE = TrainingSchedule(samples=60, epochs=1, rounds=2, releases=2, release_share=0.3)


def numbered(n: int, classes: int = 4) -> Samples:
    """Images that spell their own number, and whose brightness tells the class."""
    x = torch.zeros(n, *SHAPE, dtype=torch.uint8)
    y = torch.arange(n) % classes
    x[:, 0, 2:] = (60 * y[:, None, None]).to(torch.uint8)
    x[:, 0, 0, 0], x[:, 0, 0, 1] = torch.arange(n) // 256, torch.arange(n) % 256
    return Samples(x, y, classes)


def numbers(samples: Samples) -> set[int]:
    return {int(a) * 256 + int(b) for a, b in samples.x[:, 0, 0, :2].tolist()}


PUBLIC = numbered(400)


def proxy(histogram: torch.Tensor | None = None, samples: int = 60):
    frequencies = torch.ones(4) if histogram is None else histogram
    return proxy_data(PUBLIC, frequencies, samples=samples, rng=stream(0, "proxy"))


def test_a_proxy_has_the_clients_size_and_class_frequencies():
    data = proxy(torch.tensor([30.0, 10.0, -5.0, 0.0]), samples=80)
    assert data.train.histogram().tolist() == [60, 20, 0, 0]
    share = data.validation.histogram() / len(data.validation)
    assert share.tolist() == pytest.approx([0.75, 0.25, 0.0, 0.0], abs=0.01)


def test_the_parts_of_a_proxy_are_disjoint_in_origin():
    data = proxy(samples=500)
    parts = [numbers(p) for p in (data.warm, data.train, data.validation)]
    assert all(parts)
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert set.union(*parts) <= numbers(PUBLIC)


def test_a_proxy_repeats_from_its_generator():
    assert torch.equal(proxy().train.x, proxy().train.x)
    other = proxy_data(PUBLIC, torch.ones(4), samples=60, rng=stream(1, "proxy"))
    assert not torch.equal(proxy().train.x, other.train.x)


def test_a_proxy_without_public_samples_is_refused():
    with pytest.raises(BadInput, match="--public-data"):
        proxy_data(PUBLIC.take([]), torch.ones(4), samples=10, rng=stream(0))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_proxy_of_next_to_no_public_samples_still_has_all_parts(n: int):
    data = proxy_data(PUBLIC.take(range(n)), torch.ones(4), samples=10, rng=stream(0))
    assert len(data.train) == 10
    assert len(data.validation) >= 200


def test_the_papers_search_split_is_divided_five_to_one_to_one():
    private, public = numbered(70), PUBLIC.take(range(300, 310))
    data = private_data(private, public, stream(0))
    assert (len(data.train), len(data.validation)) == (50, 10)
    assert not numbers(data.train) & numbers(data.validation)
    assert numbers(data.train) | numbers(data.validation) < numbers(private)
    assert numbers(data.warm) == numbers(public)


def found(client: int = 0, seed: int = 0, population: int = 3):
    return search_architecture(
        proxy(),
        spec=BLUEPRINT,
        space=SearchSpace(shape=SHAPE, max_blocks=4, widths=(4, 8)),
        config=EvolutionConfig(population=population, generations=1),
        optimizer=OptimizerConfig(optimiser="adam", learning_rate=0.01, epochs=1),
        seed=seed,
        client=client,
        device=CPU,
    )


def test_a_search_repeats_and_differs_between_clients():
    first = found()
    assert (first.best, first.fitness) == (found().best, found().fitness)
    torch.manual_seed(99)
    np.random.seed(99)
    assert found().history == first.history
    assert found(client=1).history != first.history
    assert found(seed=1).history != first.history


SPACE = TuningSpace(learning_rate=(0.1, 1.0), clip=(0.5, 2.0), batch_sizes=(20, 30))


def tuned(
    budget: Budget = BUDGET,
    schedule: TrainingSchedule = SCHEDULE,
    trials: int = 3,
    on_trial=None,
    warm: OptimizerConfig | None = None,
    client: int = 0,
):
    return tune_settings(
        proxy(),
        GENOME,
        spec=BLUEPRINT,
        space=SPACE,
        config=TuningConfig(initial=2, trials=trials),
        budget=budget,
        schedule=schedule,
        warm=warm,
        momentum=0.0,
        train_head=False,
        seed=0,
        client=client,
        device=CPU,
        on_trial=on_trial,
    )


def test_every_trial_would_fit_the_budget_after_what_is_spent():
    spent = (Gaussian(5.0),)
    schedule = TrainingSchedule(
        samples=60, epochs=1, rounds=2, releases=2, release_share=0.3, spent=spent
    )
    seen: list[TrialRecord] = []
    result = tuned(schedule=schedule, on_trial=seen.append)
    assert result.trials == tuple(seen)
    for trial in result.trials:
        s = trial.setting
        plan = calibrate(BUDGET, schedule, batch_size=s.batch_size, clip=s.clip)
        assert s.noise_multiplier >= 0.999 * plan.noise_multiplier
        assert epsilon_of([*spent, *plan.events()], BUDGET) <= BUDGET.epsilon
        assert trial.status == "done"


@pytest.mark.slow
def test_tuning_repeats_although_it_rehearses_with_noise():
    assert tuned(trials=2).trials == tuned(trials=2).trials
    assert tuned(trials=2).trials != tuned(trials=2, client=1).trials


def test_a_budget_that_fits_nothing_says_what_it_should_afford():
    with pytest.raises(BudgetExhausted, match="raise --epsilon"):
        tuned(budget=Budget(1e-4, 1e-6))


def test_all_clients_deploy_with_the_same_head_but_their_own_bottom():
    def deployed(client: int, warm: OptimizerConfig | None = None, public: Samples = PUBLIC):
        return warm_started(
            GENOME,
            spec=BLUEPRINT,
            public=public,
            warm=warm,
            train_head=False,
            seed=0,
            client=client,
            device=CPU,
        )

    def weights(module: torch.nn.Module) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    (a, head_a), (b, head_b) = deployed(0), deployed(1)
    assert torch.equal(weights(head_a), weights(head_b))
    assert not torch.equal(weights(a), weights(b))
    assert torch.equal(weights(a), weights(deployed(0)[0]))
    adam = OptimizerConfig(optimiser="adam", learning_rate=0.01, epochs=1)
    warm, head = deployed(0, adam)
    assert not torch.equal(weights(a), weights(warm))
    assert torch.equal(weights(head_a), weights(head))
    cold, _ = deployed(0, adam, PUBLIC.take([]))
    assert torch.equal(weights(a), weights(cold))


def test_the_package_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found(population=2)
    assert list(tmp_path.iterdir()) == []
