"""Every search mode: what it charges, what it looks at, and that its search repeats."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from made_samples import random_bytes

from panas import search_modes
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.evolution.records import EvolutionConfig
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput
from panas.search_modes.mode import SearchPlan, SearchSite, mode_named, mode_names
from panas.training.sgd import OptimizerConfig

SHAPE = (1, 8, 8)


def site(folder: Path, epsilon: float = 8.0, id: int = 0, seed: int = 0) -> SearchSite:
    ledger = Ledger(folder / f"{id}.jsonl")
    budget = Budget(epsilon, 1e-5)
    ledger.open_account(budget, allow_unprotected=True, subsets=("train", "search"))
    return SearchSite(
        id=id,
        seed=seed,
        train=random_bytes(60, classes=4),
        units=60,
        search=random_bytes(40, classes=4),
        public=random_bytes(200, classes=4),
        warm_start=True,
        ledger=ledger,
        histogram_share=0.1,
    )


def plan() -> SearchPlan:
    return SearchPlan(
        spec=NetworkSpec(shape=SHAPE, classes=4, width=8),
        space=SearchSpace(shape=SHAPE, max_blocks=4, widths=(4, 8)),
        config=EvolutionConfig(population=3, generations=1),
        optimizer=OptimizerConfig(optimiser="adam", learning_rate=0.01, epochs=1),
    )


def test_the_folder_is_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert mode_names() == ["data-free", "public-proxy", "unaccounted"]
    (tmp_path / "one_of_mine.py").write_text("from panas.search_modes.data_free import MODE")
    monkeypatch.setattr(search_modes, "__path__", [*search_modes.__path__, str(tmp_path)])
    assert mode_named("one-of-mine") is mode_named("data-free")


@pytest.mark.parametrize("name", ["dp", "mode", "public_proxy", "../mode", ""])
def test_what_is_no_mode_is_refused(name: str):
    with pytest.raises(BadInput, match="data-free, public-proxy, unaccounted"):
        mode_named(name)
    with pytest.raises(BadInput, match="public-proxy, as proxy is called now"):
        mode_named("proxy")


@pytest.mark.parametrize("epsilon", [8.0, 1e-3, math.inf])
@pytest.mark.parametrize("name", mode_names())
def test_the_price_is_what_the_ledger_holds_afterwards(name: str, epsilon: float, tmp_path: Path):
    mode, own = mode_named(name), site(tmp_path, epsilon)
    price = mode.price(own, False)
    histogram = mode.pay(own)
    assert own.account.spent("search") == pytest.approx(price.epsilon)
    assert mode.price(own, True).epsilon == pytest.approx(price.epsilon)
    assert price.epsilon <= epsilon or not mode.protected
    if histogram is not None:
        assert len(histogram) == 4


@pytest.mark.thorough
@pytest.mark.parametrize("name", mode_names())
def test_a_search_repeats_and_differs_between_sites(name: str, tmp_path: Path):
    mode, histogram = mode_named(name), [1.0] * 4

    def history(**changes: int) -> list[tuple[str, float]]:
        result = mode.search(site(tmp_path, **changes), histogram, plan())
        return [(e.genome, e.fitness) for e in result.history]

    first = history()
    torch.manual_seed(99)
    np.random.seed(99)
    assert history() == first
    assert history(id=1) != first
    assert history(seed=1) != first


@pytest.mark.parametrize("name", mode_names())
def test_a_mode_says_whether_it_looks_at_samples(name: str, tmp_path: Path):
    mode, own = mode_named(name), site(tmp_path)
    if not mode.reads_samples:
        with pytest.raises(BadInput, match="looks at samples"):
            mode.data(own, None)
        return
    data = mode.data(own, [1.0] * 4)
    assert min(len(data.train), len(data.validation)) > 0
