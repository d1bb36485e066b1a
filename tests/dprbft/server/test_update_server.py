"""The server of methods with messages of their own: who is absent, what a death leaves, bytes."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deaths import Death, Stop, die, dies, plant

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import Code, Reply, Verb
from dprbft.paths import round_folder
from dprbft.server.events import Event, SiteAbsent, SiteTrained
from dprbft.server.records import read_rounds
from dprbft.server.updates import MEMORY, ServerHalf, UpdateServer, result_bytes
from dprbft.updates import Bundle, Order, Update
from panas.runtime.store import read_json

ROUNDS = 3


@dataclass
class Sites:
    """Sites that send their number, the round and the sum that they were sent, once a round."""

    absent: set[tuple[Verb, int, int]] = field(default_factory=set)  # verb, site, round
    silent: set[int] = field(default_factory=set)
    code: Code = Code.DONE  # of site 1 in a round
    claimed: int | None = None  # round that messages say they are of
    asked: list[tuple[Verb, int, int]] = field(default_factory=list)
    sent: dict[tuple[int, int], bytes] = field(default_factory=dict)
    told: dict[int, bytes] = field(default_factory=dict)

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        for site, content in messages.items():
            number = Order.from_bytes(content).round if content else 0
            self.asked.append((verb, site, number))
            if (verb, site, number) in self.absent:
                yield site, Reply(Code.ABSENT)
            elif verb is Verb.ROUND:
                yield site, self._answer(site, Order.from_bytes(content))
            else:
                if verb is Verb.FINISH:
                    self.told[site] = content
                yield site, Reply(Code.DONE)

    def _answer(self, site: int, order: Order) -> Reply:
        if site == 1 and self.code is not Code.DONE:
            return Reply(self.code)
        if site in self.silent:
            return Reply(Code.DONE)
        total = order.bundle.arrays["total"] + 10 * site + order.round
        update = Update(site, self.claimed or order.round, Bundle({"part": total}), (f"r{site}",))
        self.sent[site, order.round] = update.to_bytes()
        return Reply(Code.DONE, self.sent[site, order.round])


def start() -> Bundle:
    return Bundle({"total": torch.zeros(3)})


def orders(memory: Bundle, sites: Sequence[int], number: int) -> Mapping[int, Bundle]:
    return dict.fromkeys(sites, memory)


def answer(memory: Bundle, sent: Iterable[Update], rng: np.random.Generator) -> Bundle:
    parts = [update.bundle.arrays["part"] for update in sent]
    drawn = torch.tensor(rng.random(), dtype=torch.float32)
    return Bundle({"total": sum(parts, memory.arrays["total"]) / 10 + drawn})


def server(
    folder: Path,
    sites: Sites,
    heard: list[Event] | None = None,
    half: Any = None,
    **federation: Any,
) -> UpdateServer:
    settings = {"method": "fedavg", "clients": 2, "rounds": ROUNDS} | federation
    config: RunConfig = build_config({"federation": settings})
    return UpdateServer(
        folder=folder,
        config=config,
        sites=frozenset(range(config.federation.clients)),
        engine=sites,
        half=half or ServerHalf(start=start, orders=orders, round=answer),
        listener=(heard if heard is not None else []).append,
    )


def result(folder: Path) -> torch.Tensor:
    last = read_json(folder / "latest.json")["round"]
    return Bundle.read(round_folder(folder, last) / MEMORY).arrays["total"]


def test_every_site_is_asked_once_a_round_and_told_the_result(tmp_path: Path):
    sites = Sites()
    server(tmp_path, sites).train()
    rounds = [(Verb.ROUND, i, r) for r in range(1, ROUNDS + 1) for i in (0, 1)]
    assert sites.asked[:2] == [(Verb.READY, 0, 0), (Verb.READY, 1, 0)]
    assert sites.asked[2:-2] == rounds
    assert sites.asked[-2:] == [(Verb.FINISH, 0, ROUNDS + 1), (Verb.FINISH, 1, ROUNDS + 1)]
    final = Order.from_bytes(sites.told[0]).bundle.arrays["total"]
    assert torch.equal(final, result(tmp_path))


def test_rounds_tell_bytes_and_digests_and_updates_go(tmp_path: Path):
    sites = Sites(silent={1})
    server(tmp_path, sites).train()
    for record in read_rounds(tmp_path):
        content = sites.sent[0, record.round]
        assert record.up_bytes == len(content)
        assert record.releases == {0: hashlib.sha256(content).hexdigest()}
        assert (record.sites, record.absent) == ((0, 1), ())
    assert result_bytes(tmp_path) == sum(map(len, sites.told.values()))
    kept = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("[!.]*"))
    memory = ["round-003", "round-003/memory.safetensors"]
    assert kept == ["latest.json", "result.json", *memory, "rounds.jsonl"]


def test_a_round_goes_on_without_a_site_and_counts_no_byte_of_it(tmp_path: Path):
    heard: list[Event] = []
    sites = Sites(absent={(Verb.ROUND, 1, 2), (Verb.FINISH, 1, ROUNDS + 1)})
    server(tmp_path, sites, heard).train()
    first, second, third = read_rounds(tmp_path)
    assert (second.sites, second.absent) == ((0,), (1,))
    assert second.up_bytes == len(sites.sent[0, 2])
    assert second.down_bytes == third.down_bytes // 2 == first.down_bytes // 2
    assert result_bytes(tmp_path) == len(sites.told[0])
    absences = [e for e in heard if isinstance(e, SiteAbsent)]
    assert absences == [SiteAbsent(1, 2), SiteAbsent(1, ROUNDS)]
    assert sum(isinstance(e, SiteTrained) for e in heard) == 5


def test_who_is_not_ready_is_not_asked(tmp_path: Path):
    sites = Sites(absent={(Verb.READY, 1, 0)})
    server(tmp_path, sites).train()
    assert not any(site == 1 for verb, site, _ in sites.asked if verb is not Verb.READY)
    assert [r.absent for r in read_rounds(tmp_path)] == [(1,)] * ROUNDS


@pytest.mark.parametrize("verb", [Verb.READY, Verb.ROUND])
def test_where_nobody_is_there_a_run_stops(verb: Verb, tmp_path: Path):
    sites = Sites(absent={(verb, i, int(verb is Verb.ROUND)) for i in (0, 1)})
    with pytest.raises(SiteRefusal) as refusal:
        server(tmp_path, sites).train()
    assert refusal.value.code is Code.ABSENT
    assert read_rounds(tmp_path) == []
    sites.absent.clear()
    server(tmp_path, sites).train()
    assert len(read_rounds(tmp_path)) == ROUNDS


def test_a_site_that_refuses_stops_the_run_which_goes_on_where_it_was(tmp_path: Path):
    sites = Sites(code=Code.NO_BUDGET)
    with pytest.raises(SiteRefusal) as refusal:
        server(tmp_path, sites).train()
    assert (refusal.value.site, refusal.value.code) == (1, Code.NO_BUDGET)
    sites.code = Code.DONE
    server(tmp_path, sites).train()
    assert sites.asked.count((Verb.ROUND, 0, 1)) == 1  # its update had arrived


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["write_bytes", "write_json", "write_rounds", "digest_of"])
def test_whatever_a_server_was_at_when_it_died_it_ends_alike(
    name: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    server(tmp_path / "whole", Sites()).train()
    run, sites, deaths = tmp_path / "r", Sites(), 0
    for call in (1, 2, 3):
        with monkeypatch.context() as m:
            death = Death(f"dprbft.server.updates:{name}", call=call, after=after)
            plant(death, die, m.setattr)
            try:
                server(run, sites).train()
            except Stop:
                deaths += 1
    server(run, sites).train()
    assert deaths >= 2
    assert torch.equal(result(run), result(tmp_path / "whole"))
    told = [
        [(r.up_bytes, r.down_bytes, r.releases, r.broadcast) for r in read_rounds(f)]
        for f in (run, tmp_path / "whole")
    ]
    assert told[0] == told[1]
    files = [sorted(p.name for p in f.rglob("*")) for f in (run, tmp_path / "whole")]
    assert files[0] == files[1]
    # Each site has answered the same round alike, however often it was asked.
    assert len(sites.sent) == 2 * ROUNDS


def test_what_a_site_sent_before_it_went_counts_in_its_round(tmp_path: Path):
    server(tmp_path / "whole", Sites(), rounds=1).train()
    run, sites = tmp_path / "r", Sites()
    with dies(Death("dprbft.server.updates:UpdateServer._end", call=2)):
        server(run, sites, rounds=1).train()
    sites.absent.add((Verb.READY, 1, 0))
    server(run, sites, rounds=1).train()
    (record,) = read_rounds(run)
    assert (record.sites, record.absent) == ((0, 1), ())
    assert torch.equal(result(run), result(tmp_path / "whole"))


def test_an_update_of_another_round_or_site_is_refused(tmp_path: Path):
    heard: list[Event] = []
    with pytest.raises(SiteRefusal):  # of both sites: nothing is left to go on with
        server(tmp_path, Sites(claimed=2), heard).train()
    assert not list(tmp_path.rglob("site-*"))
    refused = [e.refused for e in heard if isinstance(e, SiteAbsent)]
    assert refused == [f"expected an update of site {i} in round 1" for i in (0, 1)]


def test_a_bad_update_costs_its_site_alone_the_round(tmp_path: Path):
    class Bad(Sites):
        def _answer(self, site: int, order: Order) -> Reply:
            reply = super()._answer(site, order)
            wrong = site == 1 and order.round == 2
            return Reply(Code.DONE, reply.release[:-1]) if wrong else reply

    server(tmp_path / "a", Bad()).train()
    server(tmp_path / "b", Sites(absent={(Verb.ROUND, 1, 2)})).train()
    assert [r.absent for r in read_rounds(tmp_path / "a")] == [(), (1,), ()]
    assert torch.equal(result(tmp_path / "a"), result(tmp_path / "b"))


def test_a_record_that_says_done_ends_the_run_also_when_it_is_resumed(tmp_path: Path):
    def stop(memory: Bundle, sent: Iterable[Update], rng: np.random.Generator) -> Bundle:
        return Bundle(answer(memory, sent, rng).arrays, {"done": True})

    sites, half = Sites(), ServerHalf(start=start, orders=orders, round=stop)
    for _ in range(2):
        server(tmp_path, sites, half=half).train()
        assert len(read_rounds(tmp_path)) == 1
    assert sites.asked.count((Verb.ROUND, 0, 1)) == 1
    assert Order.from_bytes(sites.told[0]).round == 2


def test_equal_orders_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    encoded = []
    original = Order.to_bytes
    monkeypatch.setattr(Order, "to_bytes", lambda o: encoded.append(o) or original(o))
    server(tmp_path, Sites(), rounds=1, clients=5)._orders(start(), range(5), 1)
    assert len(encoded) == 1


def test_part_of_the_sites_take_part_in_a_round(tmp_path: Path):
    sites = Sites()
    server(tmp_path, sites, clients=4, participation=0.5).train()
    for record in read_rounds(tmp_path):
        asked = [
            s for verb, s, number in sites.asked if (verb, number) == (Verb.ROUND, record.round)
        ]
        assert asked == list(record.sites)
        assert len(asked) == 2
        assert record.absent == ()
    assert sorted(sites.told) == [0, 1, 2, 3]
