"""The server's steps with sites that are simulated by arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from baselines.decnas import (
    Load,
    SearchSettings,
    Stand,
    Weights,
    after_round,
    assigned,
    begun,
    heard,
    planned,
    reports,
)
from baselines.networks.pruning import plain_network, prunable, resource_of, widths_of
from baselines.searches.decnas import GLOBAL, Progress, SiteFacts
from dprbft.updates import Bundle, Update, named
from panas.architecture.network import weights_of
from panas.runtime.errors import BadInput

SHAPE, SITES = (1, 8, 8), 4


def settings(drop: float = 0.33, groups: int = 3, rounds: int = 16) -> SearchSettings:
    whole = plain_network(SHAPE, 3, (8, 8), (40,), "group")
    return SearchSettings(
        schedule=planned(rounds, (0.25, 0.25), (1, 3, 3), 3, drop),
        whole=whole,
        shape=SHAPE,
        resource=resource_of("macs", SHAPE, (), whole),
        reduction=0.05,
        decay=0.98,
        target=0.3,
        pruning="layers",
        groups=groups,
        sites=SITES,
        classes=3,
        balance=1.1,
    )


def first(s: SearchSettings) -> Stand:
    torch.manual_seed(0)
    for p in s.whole.parameters():
        torch.nn.init.normal_(p)
    p = Progress(
        phase="start",
        step="both",
        widths=widths_of(s.whole),
        resource=s.resource(s.whole),
        sites={},
    )
    return begun(p, weights_of(s.whole), s)


def moved(weights: Weights, site: int) -> dict[str, torch.Tensor]:
    """What a site makes of a network by training: its own step in every weight."""
    return {name: array + site + 1 for name, array in weights.items()}


def played(stand: Stand, s: SearchSettings, waiting: dict, good: int = 8) -> tuple[Stand, dict]:
    """One round, in which the width of the second layer tells the accuracy; and what it asked."""
    p, models = stand
    asked = dict.fromkeys(range(SITES), Load(0, 0))
    updates = []
    rng = np.random.default_rng(p.played)
    jobs = {} if p.step == "send" else assigned(p, range(SITES), rng)
    if p.step == "send":
        for site, mine in waiting.items():
            stay = {c.id for c in p.candidates}
            arrays = {k: a for id, a in mine.items() if id in stay for k, a in a.items()}
            updates.append(Update(site, 1, Bundle(arrays, {"samples": 10 + site})))
        waiting.clear()
    for group, listed in jobs:
        for site in group:
            told = {"samples": 10 + site, "labels": [5.0, 3.0, 2.0 + site], "counts": {}}
            arrays = {c.id: named(c.id, moved(models[c.id], site)) for c in listed}
            if reports(p, s):
                told["counts"] = {c.id: [10.0 * (c.widths[1] == good), 10.0] for c in listed}
            n = len(listed)
            asked[site] = Load(n, n * reports(p, s))
            if p.step == "train":
                waiting[site] = arrays
                arrays = {}
            sent = {k: a for mine in arrays.values() for k, a in mine.items()}
            updates.append(Update(site, 1, Bundle(sent, told)))
    return after_round(p, heard(models, updates, s.classes), s), asked


@pytest.mark.slow
@pytest.mark.parametrize("drop", [0.0, 0.33, 1.0])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_a_whole_search_keeps_its_loads_and_budgets(drop: float, groups: int):
    s = settings(drop, groups)
    stand, waiting = first(s), {}
    search = sum(s.schedule.loads(3, groups)[:-4], start=Load(0, 0))
    asked_of = dict.fromkeys(range(SITES), Load(0, 0))
    for _ in range(s.schedule.rounds):
        assert Progress.from_json(stand[0].to_json()) == stand[0]
        final = stand[0].phase == "final"
        stand, asked = played(stand, s, waiting)
        for site in range(SITES) if not final else ():
            asked_of[site] = asked_of[site] + asked[site]
    p, models = stand
    assert (p.phase, p.candidates, set(models)) == ("final", (), {GLOBAL})
    # More rounds of final tuning than planned are planned anew; the search keeps to its part.
    assert all(load.trainings <= search.trainings for load in asked_of.values())
    assert all(load.reports <= search.reports for load in asked_of.values())
    assert len(p.frontier) == len(s.schedule.turns) > 0
    full = before = s.resource(s.whole)
    for t, point in enumerate(p.frontier):
        assert point.resource <= before - 0.05 * 0.98**t * full + 1e-9
        assert point.widths[1] == 8  # accuracies said so
        before = point.resource
    assert p.widths == p.frontier[-1].widths


def test_fusion_adds_the_weighted_mean_of_gradients():
    s = settings()
    p, models = first(s)
    (_, after), _ = played((p, models), s, {})
    for name, array in models[GLOBAL].items():
        fused = sum((10 + i) * (i + 1.0) for i in range(SITES)) / sum(10 + i for i in range(SITES))
        assert torch.allclose(after[GLOBAL][name], array + fused, atol=1e-5)


def test_groups_are_balanced_and_each_candidate_has_one():
    s, waiting = settings(), {}
    stand = first(s)
    while stand[0].phase == "start":
        stand, _ = played(stand, s, waiting)
    p = stand[0]
    assert (p.phase, p.step, p.iteration) == ("search", "train", 1)
    assert p.accuracy is not None
    assert len(p.candidates) == len(p.groups) == len(prunable(s.whole))
    assert {i for group in p.groups for i in group} == set(range(SITES))
    assert p.sites[3] == SiteFacts(13, (5.0, 3.0, 5.0))
    sizes = [sum(p.sites[i].samples for i in group) for group in p.groups]
    assert max(sizes) < 2.5 * min(sizes)
    jobs = assigned(p, range(SITES), np.random.default_rng(0))
    assert all(len(listed) == 1 for _, listed in jobs)
    # With fewer groups than candidates those without a free one wait, and come next.
    two = replace(p, groups=((0, 1), (2, 3)))
    jobs = assigned(two, range(SITES), np.random.default_rng(0))
    assert sorted(len(listed) for _, listed in jobs) == [1, 2]


def test_only_what_stays_is_fused_and_the_rest_is_as_it_was():
    s, waiting = settings(), {}
    stand = first(s)
    while stand[0].step != "train":
        stand, _ = played(stand, s, waiting)
    before = stand
    stand, _ = played(stand, s, waiting)
    p, models = stand
    assert p.step == "send"
    assert len(p.candidates) == len(before[0].candidates) - 1
    for c in p.candidates:
        assert all(torch.equal(a, models[c.id][n]) for n, a in before[1][c.id].items())


def test_a_search_ends_at_its_target_and_where_nothing_can_go():
    s = replace(settings(rounds=40), target=0.75)
    stand, waiting = first(s), {}
    for _ in range(40):
        stand, _ = played(stand, s, waiting)
    assert 1 <= len(stand[0].frontier) < len(s.schedule.turns)
    assert stand[0].resource <= 0.75 * s.resource(s.whole)
    nothing = replace(s, target=1e-9, reduction=0.9999)
    p, _ = begun(replace(stand[0], phase="start"), stand[1][GLOBAL], nothing)
    assert (p.phase, p.candidates) == ("final", ())


def test_uniform_multipliers_are_one_candidate_of_all_sites():
    s = replace(settings(groups=1), pruning="uniform")
    stand, waiting = first(s), {}
    while stand[0].phase == "start":
        stand, _ = played(stand, s, waiting)
    p = stand[0]
    assert p.groups == ((0, 1, 2, 3),)
    (only,) = p.candidates
    assert only.widths == (6, 6, 35)


@pytest.mark.parametrize(
    "record",
    [
        {"samples": 10, "labels": [1.0, 2.0]},
        {"samples": 10, "labels": "many"},
        {"samples": 10, "counts": {GLOBAL: [1.0, float("inf")]}},
        {"samples": "10"},
    ],
)
def test_updates_that_do_not_fit_are_refused(record):
    like = {GLOBAL: {"w": torch.zeros(2)}}
    with pytest.raises(BadInput):
        heard(like, [Update(0, 1, Bundle({}, record))], 3)


def test_weights_of_other_networks_are_refused():
    like = {GLOBAL: {"w": torch.zeros(2)}}
    for arrays in ({"other.w": torch.zeros(2)}, {"gm.w": torch.zeros(3)}):
        with pytest.raises(BadInput):
            heard(like, [Update(0, 1, Bundle(arrays, {"samples": 3}))], 3)
