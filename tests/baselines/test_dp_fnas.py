"""DP-FNAS: first-order DARTS without a budget; clipped and noised as it is charged with one."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sample_gradients import loop
from tiny_methods import FREE, method_config, side_of
from torch import Tensor
from torch.nn import functional as F

from baselines import dp_fnas
from baselines.common.halves import halves, planned_halves
from baselines.networks.darts import SuperNetwork, discretised
from baselines.networks.searched import alphas_of, weights_but_alphas
from baselines.searches import dp_fnas as gradients
from baselines.searches.dp_fnas import asked, loaded, search_rounds
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.data.samples import Samples, concat
from panas.privacy.accounting.events import SampledGaussian, Unprotected
from panas.privacy.noise import SystemNoise
from panas.runtime.errors import BadInput, BudgetExhausted

TINY: dict[str, Any] = {
    "operations": ["skip_connect", "sep_conv_3x3", "none"],
    **{"cells": 2, "channels": 2, "stem": 1, "evaluation_cells": 1, "evaluation_channels": 4},
    **{"batch_size": 1000, "learning_rate": 0.3, "evaluation_rate": 0.2, "architecture_rate": 2.0},
    "momentum": 0.0,
}
MakeSite = Callable[..., Site]
Arrays = dict[str, Tensor]


def config_of(
    rounds: int = 6, privacy: dict[str, Any] | None = None, clients: int = 1, **options: Any
) -> RunConfig:
    how: dict[str, Any] = {"clients": clients, "rounds": rounds, "limit": 60 * clients}
    return method_config(
        "dp_fnas", {"search_share": 0.67, **TINY, **options}, privacy or FREE, **how
    )


class Party:
    """One site and its server, without an engine between."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.side = side_of(site)
        self.server = dp_fnas.server_start(self.side)
        self.memory = dp_fnas.site_start(site)
        self.round = 0

    def order(self) -> Order:
        number = self.round + 1
        return Order(number, dp_fnas.orders(self.side, self.server, [0], number)[0])

    def update(self) -> Arrays:
        turn = dp_fnas.site_round(self.site, self.memory, self.order())
        self.memory, self.round = turn.memory, self.round + 1
        self.sent = Update(0, self.round, turn.update, turn.receipts)
        return dict(turn.update.arrays)

    def step(self) -> Arrays:
        self.update()
        rng = torch.Generator()
        self.server = dp_fnas.server_round(self.side, self.server, [self.sent], rng)  # type: ignore[arg-type]
        return self.server.part("network")


def mean_gradient(model: torch.nn.Module, samples: Samples, of: list[Any]) -> list[Tensor]:
    loss = F.cross_entropy(model(samples.inputs()), samples.y)
    return list(torch.autograd.grad(loss, of))


def naive_darts(party: Party, together: bool) -> list[Arrays]:
    """First-order DARTS and the training after it, written out: the arrays after each round."""
    site, o, after = party.site, TINY, list[Arrays]()
    val, train = halves(site)[1], halves(site)[0]
    model = loaded(site, party.server)
    searching = search_rounds(site.config)
    for number in range(1, site.config.federation.rounds + 1):
        if number > searching:
            moves = [(list(model.parameters()), concat([train, val]), o["evaluation_rate"])]
        else:
            w = (weights_but_alphas(model), train, o["learning_rate"])
            a = (alphas_of(model), val, o["architecture_rate"])
            moves = [w, a] if together else [w] if number % 2 else [a]
        values = [mean_gradient(model, samples, of) for of, samples, _ in moves]
        with torch.no_grad():
            for (of, _, rate), grads in zip(moves, values, strict=True):
                for p, g in zip(of, grads, strict=True):
                    p -= rate * g
        if number == searching:
            assert isinstance(model, SuperNetwork)
            genotype = discretised(model).to_json()
            fresh = dp_fnas.begun(
                site.spec, dp_fnas.options_of(site.config, dp_fnas.Options), 0, genotype
            )
            model = fresh
        after.append({n: p.detach().clone() for n, p in model.named_parameters()})
    return after


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["alternate", "together"])
def test_one_party_without_noise_is_first_order_darts(
    exchange: str, make_site: MakeSite, tmp_path: Path
):
    site = make_site(config_of(exchange=exchange), tmp_path / "r")
    party = Party(site)
    expected = naive_darts(party, exchange == "together")
    for number, arrays in enumerate(expected, start=1):
        result = party.step()
        assert result.keys() == arrays.keys(), number
        for name, array in arrays.items():
            assert torch.allclose(result[name], array, rtol=1e-4, atol=1e-6), (number, name)


@pytest.mark.slow
def test_the_second_order_term_is_that_of_equation_7(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(order="second"), tmp_path / "r")
    party, xi = Party(site), TINY["learning_rate"]
    before = party.server.part("network")
    after = party.step()
    train, val = halves(site)
    model = loaded(site, Bundle(party.server.arrays, {"genotype": None}))
    first = mean_gradient(model, val, alphas_of(model))
    direction = mean_gradient(model, val, weights_but_alphas(model))
    length = math.sqrt(sum(float(v.square().sum()) for v in direction))
    step, sides = 0.01 / length, list[list[Tensor]]()
    for sign in (1, -1):
        with torch.no_grad():
            names = [n for n, _ in model.named_parameters() if not dp_fnas.is_alpha(n)]
            for name, p, v in zip(names, weights_but_alphas(model), direction, strict=True):
                p.copy_(before[name] + sign * step * v)
        sides.append(mean_gradient(model, train, alphas_of(model)))
    expected = [f - xi / (2 * step) * (p - m) for f, p, m in zip(first, *sides, strict=True)]
    result = party.update()
    assert [*result] == [n for n in after if dp_fnas.is_alpha(n)]
    for g, e, f in zip(result.values(), expected, first, strict=True):
        assert torch.allclose(g, e, rtol=2e-2, atol=2e-4)
        assert not torch.allclose(g, f, rtol=2e-2, atol=2e-4)


class Silent(SystemNoise):
    """No noise, and every sample in every batch."""

    def uniform(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)

    def normal(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64)


def clipped_mean(model: torch.nn.Module, samples: Samples, clip: float) -> Tensor:
    rows = torch.cat([g.flatten(1) for g in loop(model, samples.inputs(), samples.y)], 1)
    return (rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "clip"), [("W", 0.5), ("A", 0.02)])
def test_gradients_are_clipped_a_sample_at_a_time(
    part: str, clip: float, make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gradients, "SystemNoise", Silent)
    options = {"exchange": "together", "clip": 0.5, "architecture_clip": 0.02}
    site = make_site(config_of(privacy={"epsilon": 8.0}, **options), tmp_path / "r")
    party = Party(site)
    model = loaded(site, party.server)
    for p in alphas_of(model) if part == "W" else weights_but_alphas(model):
        p.requires_grad_(False)
    samples = halves(site)[part == "A"]
    result = party.update()
    # Divided by the number that the site plans with, which is a noised one.
    expected = clipped_mean(model, samples, clip)
    expected *= samples.units / planned_halves(site)[part == "A"]
    off = flat(result, part == "A") - expected
    assert float(off.norm()) <= 1e-5 * float(expected.norm())


def flat(arrays: Arrays, alpha: bool) -> Tensor:
    """What an update holds of A, or of W, as one vector."""
    return torch.cat([g.flatten() for n, g in arrays.items() if dp_fnas.is_alpha(n) == alpha])


def noise_ratios(party: Party, times: int) -> tuple[float, float]:
    """The standard deviation of what is added to W and to A, over what is charged."""
    rows = list[Arrays]()
    for _ in range(times):
        party.round = 0  # the same order again
        rows.append(party.update())

    def ratio(alpha: bool, clip: float) -> float:
        spread = torch.stack([flat(row, alpha) for row in rows]).double().std(0)
        return float(spread.square().mean().sqrt()) * planned_halves(party.site)[alpha] / clip / 3

    return ratio(False, 0.5), ratio(True, 0.02)


@pytest.mark.slow
def test_noise_has_the_scale_that_is_charged(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options = {"exchange": "together", "clip": 0.5, "architecture_clip": 0.02}
    settings = {"rounds": 60, "steps_a_charge": 100, "noise_multiplier": 3.0}
    party = Party(make_site(config_of(**settings, **options), tmp_path / "r"))
    for ratio in noise_ratios(party, 16):
        assert 0.84 < ratio < 1.16
    usual = SystemNoise.normal
    monkeypatch.setattr(SystemNoise, "normal", lambda *a: usual(*a) * 0.65)
    for ratio in noise_ratios(party, 16):
        assert ratio < 0.84


def steps_of(site: Site, subset: str) -> int:
    events = [e.event for e in site.account.entries if e.charge.subset == subset]
    return sum(e.steps for e in events if isinstance(e, SampledGaussian))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["first", "second"])
def test_every_read_is_charged_on_its_part(order: str, make_site: MakeSite, tmp_path: Path):
    settings = {"order": order, "steps_a_charge": 1}
    site = make_site(config_of(privacy={"epsilon": 8.0}, **settings), tmp_path / "r")
    party, c = Party(site), site.config
    kinds = [asked(c, r) for r in range(1, 7)]
    assert kinds == ["W", "A", "W", "A", "E", "E"]
    second, seen = order == "second", {"train": 0, "search": 0}
    for kind in kinds:
        party.step()
        seen["train"] += {"W": 1, "A": int(second), "E": 1}[kind]
        seen["search"] += {"W": 0, "A": 1 + second, "E": 1}[kind]
        assert {k: steps_of(site, k) for k in seen} == seen
        assert party.sent.receipts
    assert site.account.spent() <= 8
    assert site.account.spent() > 7.9  # the plan was for all of these


@pytest.mark.slow
def test_a_charge_pays_for_steps_to_come(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(privacy={"epsilon": 8.0}, steps_a_charge=3), tmp_path / "r")
    party = Party(site)
    for _ in range(6):
        party.step()
    count, *charges = site.account.entries
    assert count.charge.mechanism == "count"
    train = [e for e in charges if e.charge.subset == "train"]
    assert [e.event.steps for e in train] == [2, 2]  # of 4 steps, in as few charges as 3 allow
    assert site.account.spent() <= 8


@pytest.mark.slow
def test_the_last_network_without_noise_is_charged_as_unprotected(
    make_site: MakeSite, tmp_path: Path
):
    site = make_site(config_of(noise_multiplier=2.0, evaluation="plain"), tmp_path / "r")
    party = Party(site)
    for _ in range(6):
        party.step()
    plain = [e.charge.subset for e in site.account.entries if isinstance(e.event, Unprotected)]
    assert sorted(plain) == ["search", "search", "train", "train"]
    assert site.account.spent() == math.inf
    assert 0 < site.account.spent_protected() < math.inf
    assert (steps_of(site, "train"), steps_of(site, "search")) == (2, 2)


@pytest.mark.slow
def test_the_theorem_stands_beside_the_exact_epsilon(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(noise_multiplier=2.0, batch_size=10), tmp_path / "r")
    party = Party(site)
    for _ in range(6):
        party.step()
    n, steps = planned_halves(site)[0], steps_of(site, "train")
    told = dp_fnas.size(site, party.memory).about["theorem_3_1"]
    assert "approximate" in told["note"]
    expected = 10 / n * math.sqrt(steps * (math.exp(1 / 2**2) - 1))
    assert math.isclose(told["train"]["mu"], expected, rel_tol=1e-9)
    assert 0 < told["train"]["epsilon"] < site.account.spent() * 1.5


def test_a_noise_too_small_for_the_budget_is_refused(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(privacy={"epsilon": 1.0}, noise_multiplier=0.5), tmp_path / "r")
    with pytest.raises(BudgetExhausted, match="noise of at least"):
        dp_fnas.site_start(site)


@pytest.mark.parametrize(
    ("told", "privacy"),
    [
        ({"order": "second", "exchange": "together"}, FREE),
        ({"operations": ["none"]}, FREE),
        ({"operations": ["conv_9x9"]}, FREE),
        ({"evaluation": "plain"}, {"epsilon": 8.0}),
        ({"rounds": 1}, FREE),
    ],
)
def test_what_cannot_be_served_is_refused(
    told: dict[str, Any], privacy: dict[str, Any], make_site: MakeSite, tmp_path: Path
):
    with pytest.raises(BadInput, match=r"^expected .*, got .*; .*$"):
        make_site(config_of(privacy=privacy, **told), tmp_path / "r")


@pytest.mark.parametrize("rounds", [3, 10])
def test_a_search_has_steps_of_weights_and_of_the_architecture(rounds: int):
    options = {"search_share": 0.1}
    federation = {"method": "dp_fnas", "rounds": rounds, "options": options}
    config = build_config({"federation": federation})
    assert [asked(config, k) for k in range(1, 4)] == ["W", "A", "E"]


def test_rounds_without_a_step_of_the_architecture_are_refused():
    side: Any = SimpleNamespace(
        config=build_config({"federation": {"method": "dp_fnas", "rounds": 2}})
    )
    with pytest.raises(BadInput, match="at least 3"):
        dp_fnas.check(side)
    together = {"method": "dp_fnas", "rounds": 2, "options": {"exchange": "together"}}
    side.config = build_config({"federation": together})
    dp_fnas.check(side)
