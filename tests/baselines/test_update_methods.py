"""One contract for all methods that exchange updates: `dprbft.methods.updates.contract`.

It holds for every module of `baselines` with a method, by the settings of its `SMOKE`.
"""

import hashlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from deaths import Death, die_in
from ledgers import accounts
from recorded_wire import RecordedWire
from tiny_methods import FREE, method_config, refused_options, side_of, tiny_options

from baselines import fedavg
from baselines.common.options import options_of
from dprbft.config.families import method_names
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig, participants
from dprbft.config.sections import FederationSettings
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Verb
from dprbft.methods import update_method
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import UpdateMethod
from dprbft.methods.updates.site import finish, ready
from dprbft.methods.updates.site import round as round_verb
from dprbft.paths import ledger_file, read_sites, round_folder, server_folder, state_file
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import train_stage
from dprbft.run.view import RunView
from dprbft.server.records import read_rounds
from dprbft.server.updates import MEMORY, result_bytes
from dprbft.site.results.report import SiteReport
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.data.samples import Samples
from panas.privacy.ledger.charge import Charge, Receipt
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import read_json

NAMES = [n for n in method_names() if FederationSettings(method=n).family.sends == "updates"]
of_every_method = pytest.mark.parametrize("name", NAMES)

MakeSite = Callable[..., Site]


PER_SITE = ("decnas", "perfedrlnas")
"""Methods whose server keeps something of each site."""


def config_of(name: str, privacy: dict[str, Any] | None = None, **federation: Any) -> RunConfig:
    """A run of two sites and two rounds that takes about half a second."""
    options = {**tiny_options(name), **federation.pop("options", {})}
    limit = 75 * federation.get("clients", 2)
    return method_config(name, options, privacy, limit=limit, **federation)


class Whole(NamedTuple):
    """A run that was carried to its end."""

    folder: Path
    config: RunConfig
    wire: RecordedWire


def carried(run: Path, config: RunConfig) -> Whole:
    prepare(run, config, resume=True)
    with InProcess(read_sites(run), 1) as engine:
        wire = RecordedWire(engine)
        train_stage(OpenRun(run, config, wire))
    return Whole(run, config, wire)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, float], Whole]:
    """A whole run of a method with a budget, the same for all tests that look at it."""
    known: dict[tuple[str, float], Whole] = {}

    def get(name: str, epsilon: float) -> Whole:
        if (name, epsilon) not in known:
            privacy = {"epsilon": epsilon, "allow_unprotected": epsilon == math.inf}
            folder = tmp_path_factory.mktemp(name) / "r"
            known[name, epsilon] = carried(folder, config_of(name, privacy))
        return known[name, epsilon]

    return get


Get = Callable[[str, float], Whole]


def test_the_methods_are_the_modules_of_baselines():
    files = Path(fedavg.__file__).parent.glob("[!_]*.py")
    assert sorted(NAMES) == sorted(file.stem for file in files)


@of_every_method
def test_it_keeps_the_protocol_and_runs_in_both_columns(name: str):
    method = update_method(name)
    assert isinstance(method, UpdateMethod)
    assert set(method.COLUMNS) == {"paper", "sound"}
    for column, settings in method.COLUMNS.items():
        config = build_config({"federation": {"method": name}}, dict(settings))
        method.Options.model_validate(config.federation.options)
        assert column == "paper" or math.isfinite(config.largest_epsilon)
    for settings in (getattr(method, size, {}) for size in ("SMOKE", "CPU")):
        config = build_config({"federation": {"method": name}}, dict(settings))
        method.Options.model_validate(config.federation.options)


def learnt(run: Whole) -> tuple[list[Bundle], list[dict[str, Any]]]:
    """All that a run has led to: what server and sites keep, and how the sites do."""
    server, sites = server_folder(run.folder), read_sites(run.folder)
    last = read_json(server / "latest.json")["round"]
    bundles = [Bundle.read(round_folder(server, last) / MEMORY)]
    bundles += [Bundle.read(state_file(paths.home)) for paths in sites]
    return bundles, [SiteReport.read(paths.home).to_json() for paths in sites]


def assert_same(a: Whole, b: Whole) -> None:
    (mine, reports), (others, other_reports) = learnt(a), learnt(b)
    for one, other in zip(mine, others, strict=True):
        assert one.record == other.record
        assert one.arrays.keys() == other.arrays.keys()
        assert all(torch.equal(one.arrays[k], other.arrays[k]) for k in one.arrays)
    assert reports == other_reports


KEEP = "dprbft.methods.updates.site:_keep"
DEATHS = [
    Death(KEEP, call=4),  # the second site in round 1: charged and trained, and not answered
    Death("dprbft.server.updates:UpdateServer._end"),  # all sites have answered
    Death("dprbft.server.updates:write_json"),  # round 1 is kept, and does not count yet
    Death(KEEP, call=3, after=True),  # the first site has the result, after both had round 2
]


@of_every_method
@pytest.mark.thorough
def test_a_run_that_died_again_and_again_ends_as_one_that_did_not(
    name: str, whole: Get, tmp_path: Path
):
    first = whole(name, math.inf)
    for death in DEATHS:
        die_in(tmp_path / "r", first.config, death)
    assert_same(first, carried(tmp_path / "r", first.config))


def updates_of(run: Whole) -> list[tuple[Update, bytes]]:
    sent = [(v, s, reply.release) for v, s, reply in run.wire.up if v is Verb.ROUND]
    return [(Update.from_bytes(content), content) for _, _, content in sent if content]


@of_every_method
@pytest.mark.thorough
def test_the_ledger_covers_all_that_leaves_and_every_byte_is_counted(name: str, whole: Get):
    run = whole(name, 8.0)
    ledgers = accounts(run.folder)
    for account in ledgers:
        assert 0 < account.spent() <= 8
    sent = updates_of(run)
    assert sent
    for update, _ in sent:
        entries = {e.id: e for e in ledgers[update.site].entries if e.finished}
        assert update.receipts
        assert set(update.receipts) <= set(entries)
    records = read_rounds(server_folder(run.folder))
    assert 1 <= len(records) <= run.config.federation.rounds
    for record in records:
        mine = {u.site: content for u, content in sent if u.round == record.round}
        assert record.up_bytes == sum(map(len, mine.values()))
        digests = {i: hashlib.sha256(content).hexdigest() for i, content in mine.items()}
        assert record.releases == digests
        assert list(record.sites) == participants(run.config)[record.round - 1]
    down = [(verb, content) for verb, _, content in run.wire.down]
    ordered = sum(len(content) for verb, content in down if verb is Verb.ROUND)
    assert sum(r.down_bytes for r in records) == ordered
    final = sum(len(content) for verb, content in down if verb is Verb.FINISH)
    assert result_bytes(server_folder(run.folder)) == final
    assert {v for v, _, r in run.wire.up if r.release} == {Verb.ROUND}


@of_every_method
@pytest.mark.slow
def test_orders_are_the_same_at_every_call_and_for_whoever_else_is_asked(name: str, whole: Get):
    run, method = whole(name, math.inf), update_method(name)
    view, server = RunView(run.folder, run.config), server_folder(run.folder)
    last = read_json(server / "latest.json")["round"]
    memory = Bundle.read(round_folder(server, last) / MEMORY)
    side = Side(run.config, view.facts, view.public)
    for number in (last, last + 1):
        both = method.orders(side, memory, [0, 1], number)
        assert set(both) == {0, 1}
        for site in (0, 1):
            alone = method.orders(side, memory, [site], number)[site]
            assert Order(number, alone).to_bytes() == Order(number, both[site]).to_bytes()


@of_every_method
@pytest.mark.thorough
def test_it_learns_in_its_smoke_setting(name: str, tmp_path: Path):
    smoke = getattr(update_method(name), "SMOKE", None)
    assert smoke is not None, f"no SMOKE in baselines/{name}.py: settings in which it learns"
    settings = {"method": name, "clients": 2, "partition": "iid"}
    data = {"dataset": "digits", "public_limit": 0}  # as a comparison's smoke size
    run = carried(tmp_path / "r", build_config({"federation": settings, "data": data}, dict(smoke)))
    for paths in read_sites(run.folder):
        report = SiteReport.read(paths.home)
        assert report.baselines is not None
        assert report.steps.joined > report.baselines.majority
    assert all(0 < account.spent() <= 8 for account in accounts(run.folder))


@of_every_method
def test_a_bad_option_is_refused_in_one_line(name: str, tmp_path: Path):
    bad = [("nonsense", 1), *refused_options(name)]
    for key, value in bad:
        with pytest.raises(BadInput, match=r"^expected .*, got .*; .*$") as error:
            options_of(config_of(name, options={key: value}), update_method(name).Options)
        assert "\n" not in str(error.value)
        assert key in str(error.value)
    for key, value in (bad[0], bad[-1]):
        with pytest.raises(BadInput, match=key):
            prepare(tmp_path / "r", config_of(name, options={key: value}), resume=False)
        assert not (tmp_path / "r").exists()


class Sealed(Samples):
    """Samples that nobody may look at; a keyed hash may still divide them."""

    MAY = ("panas.data.splits", "panas.data.samples", __name__)

    def __getattribute__(self, name: str) -> Any:
        caller = sys._getframe(1).f_globals["__name__"]
        held = name in ("x", "y", "part") and caller not in Sealed.MAY
        if held or name in ("inputs", "histogram"):
            raise Looked(f"{caller} reads {name}")
        return object.__getattribute__(self, name)

    def take(self, indices: Any) -> Samples:
        return sealed(Samples(self.x, self.y, self.classes).take(indices))


class Looked(Exception):
    """Sealed samples were read."""


def sealed(samples: Samples) -> Samples:
    result = object.__new__(Sealed)
    for name in ("x", "y", "classes", "groups", "part"):
        object.__setattr__(result, name, getattr(samples, name))
    return result


class Refusing(Ledger):
    """A ledger on which nothing more fits."""

    def charge(self, charge: Charge, *, resumes: bool = False) -> Receipt:
        raise BudgetExhausted("expected room for the next charge, got none; raise --epsilon")


def first_turn(name: str, site: Site) -> tuple[UpdateMethod, Bundle, Order]:
    """A method, what a site keeps before round 1, and the order of that round."""
    method, side = update_method(name), side_of(site)
    memory = method.site_start(site)
    bundle = method.orders(side, method.server_start(side), [0, 1], 1)[site.id]
    return method, memory, Order.from_bytes(Order(1, bundle).to_bytes())


@of_every_method
@pytest.mark.parametrize("privacy", [{}, FREE], ids=["sound", "unprotected"])
def test_nothing_is_read_if_the_ledger_refuses(
    name: str, privacy: dict[str, Any], make_site: MakeSite, tmp_path: Path
):
    site = make_site(config_of(name, privacy), tmp_path / "r")
    method, memory, order = first_turn(name, site)
    closed = replace(site.data, train=sealed(site.data.train))
    site = replace(
        site,
        read_data=lambda: closed,
        ledger=Refusing(ledger_file(site.paths.folder), site.paths.run),
    )
    with pytest.raises(Looked):
        site.data.train.take([0]).inputs()
    with pytest.raises(BudgetExhausted):
        method.site_round(site, memory, order)


def strange(samples: Samples) -> Samples:
    """The same with two samples that no camera took."""
    x = samples.inputs().clone()
    x[0], x[1] = math.nan, 1e30
    return Samples(x, samples.y, samples.classes, samples.groups, samples.part)


@pytest.mark.slow
@of_every_method
def test_strange_samples_change_nothing_but_within_the_noise(
    name: str, make_site: MakeSite, tmp_path: Path
):
    site = make_site(config_of(name), tmp_path / "r")
    odd = replace(site.data, train=strange(site.data.train))
    method, memory, order = first_turn(name, replace(site, read_data=lambda: odd))
    turn = method.site_round(replace(site, read_data=lambda: odd), memory, order)
    known = {entry.id for entry in site.account.entries}
    assert known.issuperset(turn.receipts)
    for bundle in (turn.update, turn.memory):
        assert all(bool(torch.isfinite(a).all()) for a in bundle.arrays.values())
    Update(site.id, 1, turn.update, turn.receipts).to_bytes()  # refuses what is not finite
    assert site.account.spent() <= 8


def sizes(run: Whole) -> Iterator[int]:
    """Bytes of what the server keeps, but for the lines that tell of each round."""
    for path in server_folder(run.folder).rglob("*"):
        if path.is_file() and path.name != "rounds.jsonl":
            yield path.stat().st_size


A_ROUND = 200
"""Bytes of a round that a server may note, as a score."""


@of_every_method
@pytest.mark.thorough
def test_what_the_server_keeps_does_not_grow(name: str, whole: Get, tmp_path: Path):
    two = sum(sizes(whole(name, math.inf)))
    six = sum(sizes(carried(tmp_path / "rounds", config_of(name, FREE, rounds=6))))
    assert six <= 1.02 * two + 4 * A_ROUND
    four = carried(tmp_path / "sites", config_of(name, FREE, clients=4))
    if name not in PER_SITE:
        assert sum(sizes(four)) <= 1.02 * two + 2 * A_ROUND


def wrong_orders(order: Order) -> Iterator[tuple[str, Order]]:
    """An order as no server of the run sends it, changed in one place."""
    arrays, record = dict(order.bundle.arrays), dict(order.bundle.record)

    def changed(**more: Any) -> Order:
        return Order(order.round, Bundle(**({"arrays": arrays, "record": record} | more)))

    yield "one more", changed(arrays={**arrays, "more": torch.zeros(1)})
    yield "nothing", changed(arrays={})
    for name in sorted(arrays, key=lambda n: arrays[n].is_floating_point())[-1:]:
        yield "missing", changed(arrays={n: a for n, a in arrays.items() if n != name})
        yield "shape", changed(arrays={**arrays, name: arrays[name].flatten()[:-1]})
        yield "type", changed(arrays={**arrays, name: arrays[name].to(torch.uint8)})
        yield "large", changed(arrays={**arrays, name: torch.full_like(arrays[name], 1e7)})
    yield "record", changed(record={**record, "more": 1})
    for key in record:
        yield f"without {key}", changed(record={k: v for k, v in record.items() if k != key})
        for value in ("no such", -1, {"normal": 1}, [10**6], [{"id": "gm", "widths": [10**6]}]):
            yield f"{key}: {value}", changed(record={**record, key: value})
    for number in (0, 3, 10**6):
        yield f"round {number}", replace(order, round=number)


def unread(site: Site) -> Site:
    """A site whose samples cannot be read, and whose ledger takes nothing."""

    def read() -> Any:
        raise Looked("the site's samples")

    ledger = Refusing(ledger_file(site.paths.folder), site.paths.run)
    return replace(site, read_data=read, ledger=ledger)


@pytest.mark.slow
@of_every_method
def test_an_order_that_no_server_sends_is_refused_before_anything_is_read(
    name: str, make_site: MakeSite, tmp_path: Path
):
    site = make_site(config_of(name), tmp_path / "r")
    ready(site, b"")
    _, _, order = first_turn(name, site)
    charged = len(site.account.entries)
    for what, wrong in wrong_orders(order):
        for verb in (round_verb,) if "round" in what else (round_verb, finish):
            try:
                verb(unread(site), wrong.to_bytes())
            except BadInput:
                continue
            pytest.fail(f"{what} is taken")
    assert len(site.account.entries) == charged


@pytest.mark.slow
@of_every_method
@pytest.mark.parametrize("privacy", [{}, FREE], ids=["sound", "unprotected"])
def test_training_that_diverges_sends_as_much_as_any_other(
    name: str,
    privacy: dict[str, Any],
    make_site: MakeSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    site = make_site(config_of(name, privacy), tmp_path / "r")
    method, memory, order = first_turn(name, site)
    usual = method.site_round(site, memory, order)
    step = torch.optim.SGD.step

    def diverging(self: torch.optim.SGD, *args: Any) -> None:
        step(self, *args)
        for group in self.param_groups:
            for p in group["params"]:
                p.data.fill_(math.nan)

    monkeypatch.setattr(torch.optim.SGD, "step", diverging)
    site = make_site(site.config, tmp_path / "diverging")
    method, memory, order = first_turn(name, site)
    turn = method.site_round(site, memory, order)
    shapes = {n: a.shape for n, a in usual.update.arrays.items()}
    assert turn.update.record.keys() == usual.update.record.keys()
    if "means" not in shapes:  # how many classes are noised above nothing is a draw
        assert {n: a.shape for n, a in turn.update.arrays.items()} == shapes
    Update(site.id, 1, turn.update, turn.receipts).to_bytes()  # refuses what is not finite
    Bundle(turn.memory.arrays, turn.memory.record).write(tmp_path / "memory")
