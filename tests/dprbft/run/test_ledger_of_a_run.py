"""A run and its ledger: nobody pays for a round that fails, and no other ledger serves."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import accounts, ledger_lines, ledgers

from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Code, Hello, Reply, Verb
from dprbft.methods.serve import Machine, serve
from dprbft.paths import (
    book_file,
    home,
    latest_file,
    read_sites,
    refusal_file,
    rounds_file,
    server_folder,
)
from dprbft.run.directory import OpenRun
from dprbft.run.events import Event, RoundEnded, SiteTrained
from dprbft.run.stages import train_stage
from dprbft.run.summary import summarise
from dprbft.run.view import RunView
from dprbft.site.site import Site
from panas.privacy.ledger.account import Account
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import read_json, read_lines

Carry = Callable[..., None]
Tiny = Callable[..., RunConfig]


def rounds_charged(account: Account) -> list[int | None]:
    return [e.charge.round for e in account.entries if e.charge.phase != "search"]


@pytest.mark.slow
@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_nobody_is_charged_for_training_if_one_budget_is_too_small_for_it(
    participation: float, tiny: Tiny, carry: Carry, tmp_path: Path
):
    run = tmp_path / "r"
    config = tiny(
        federation__clients=3,
        federation__participation=participation,
        federation__rounds=4,
        privacy__epsilons=[8.0, 8.0, 0.003],
    )
    with pytest.raises(BudgetExhausted, match=r"client-002: .*epsilon 0\.003") as refused:
        carry(run, config)
    assert refused.value.exit_code == 3
    assert [rounds_charged(a) for a in accounts(run)] == [[], [], []]
    assert read_lines(rounds_file(server_folder(run))) == []


@pytest.mark.slow
def test_nobody_is_charged_for_a_round_that_one_fixed_noise_cannot_pay(
    tiny: Tiny, carry: Carry, tmp_path: Path
):
    run = tmp_path / "r"
    config = tiny(
        privacy__epsilons=[12.0, 8.0],
        training__noise_multiplier=0.9,
        training__batch_size=16,
        federation__rounds=200,
    )
    with pytest.raises(BudgetExhausted, match=r"client-00\d: expected to stay within epsilon"):
        carry(run, config)
    whole = len(read_lines(rounds_file(server_folder(run))))
    assert whole >= 1
    both = [r for r in range(1, whole + 1) for _ in range(2)]  # training and release
    assert [rounds_charged(a) for a in accounts(run)] == [both, both]


def files(run: Path) -> list[Path]:
    return [run / "sites" / "client-000" / name for name in ("ledger.jsonl", "ledger.head")]


def keep(run: Path, folder: Path) -> None:
    """Copy a ledger aside."""
    folder.mkdir()
    for path in files(run):
        shutil.copy(path, folder)


def delete_both(run: Path, old: Path) -> None:
    for path in files(run):
        path.unlink()


def delete_the_ledger(run: Path, old: Path) -> None:
    files(run)[0].unlink()


def put_back_old_copies(run: Path, old: Path) -> None:
    for path in files(run):
        shutil.copy(old / path.name, path)


def forget_the_last_line(run: Path, old: Path) -> None:
    lines = files(run)[0].read_bytes().splitlines(keepends=True)
    files(run)[0].write_bytes(b"".join(lines[:-1]))


def spend_less(run: Path, old: Path) -> None:
    content = files(run)[0].read_bytes()
    files(run)[0].write_bytes(content.replace(b'"steps": ', b'"steps": 0'))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (delete_both, "it was deleted, or another copy was put in its place"),
        (put_back_old_copies, "it was deleted, or another copy was put in its place"),
        (delete_the_ledger, "no such file, although ledger.head knows of one"),
        (forget_the_last_line, "ledger.head says"),
        (spend_less, r"line \d+ was changed"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_run_goes_on_with_its_own_ledger_only(
    tamper: Callable[[Path, Path], None], message: str, tiny: Tiny, carry: Carry, tmp_path: Path
):
    run, old, config = tmp_path / "r", tmp_path / "old", tiny()
    carry(run, config, stages="s")
    keep(run, old)
    carry(run, config)
    carry(run, config)  # untouched, it goes on
    tamper(run, old)
    left = {p: p.read_bytes() for p in files(run) if p.exists()}
    with pytest.raises(BadInput, match=message):
        carry(run, config)
    assert {p: p.read_bytes() for p in files(run) if p.exists()} == left


@pytest.mark.slow
def test_a_ledger_deleted_before_training_is_missed_too(tiny: Tiny, carry: Carry, tmp_path: Path):
    run, config = tmp_path / "r", tiny()
    carry(run, config, stages="s")
    delete_both(run, tmp_path)
    with pytest.raises(BadInput, match="it was deleted"):
        carry(run, config)
    assert not any(path.exists() for path in files(run))
    assert read_lines(rounds_file(server_folder(run))) == []


@pytest.mark.slow
def test_a_new_run_does_not_begin_a_ledger_anew(
    tiny: Tiny, make_site: Callable[..., Site], tmp_path: Path
):
    """A site that has spent in one run is not greeted by another with an empty ledger."""
    site = make_site(tiny(), tmp_path / "r")
    assert serve(site.paths, Machine(), Verb.SEARCH, b"").code is Code.DONE
    delete_both(tmp_path / "r", tmp_path)
    other = replace(site.paths, run="another")
    hello = Hello.from_bytes(RunView(tmp_path / "r", tiny()).hello(0))
    assert serve(other, Machine(), Verb.HELLO, hello.to_bytes()) == Reply(Code.REFUSED)
    assert "one to site 0 in run simulated" in read_json(refusal_file(other.home))["reason"]
    greeting = replace(hello, run="another").to_bytes()
    assert serve(other, Machine(), Verb.HELLO, greeting) == Reply(Code.REFUSED)
    assert "it was deleted" in read_json(refusal_file(other.home))["reason"]
    assert not any(path.exists() for path in files(tmp_path / "r"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", [RoundEnded, SiteTrained("client-000", 2), SiteTrained("client-001", 2)]
)
def test_a_ledger_exchanged_while_it_trains_is_missed(
    moment: object, tiny: Tiny, carry: Carry, tmp_path: Path
):
    run, old, right = tmp_path / "r", tmp_path / "old", tmp_path / "right"
    config = tiny(federation__rounds=3)
    carry(run, config, stages="st")

    def listen(event: Event) -> None:
        if moment in (event, type(event)):
            keep(run, right)
            put_back_old_copies(run, old)

    keep(run, old)
    with pytest.raises(BadInput, match="put the right"), InProcess(read_sites(run)) as engine:
        train_stage(OpenRun(run, config, engine, listener=listen))
    assert read_json(latest_file(server_folder(run)))["round"] == 1
    put_back_old_copies(run, right)
    carry(run, config)


@pytest.mark.slow
def test_each_site_and_the_summary_note_the_ledgers_last_line(
    tiny: Tiny, carry: Carry, tmp_path: Path
):
    run, config = tmp_path / "r", tiny()
    carry(run, config)
    last = [ledger.head() for ledger in ledgers(run)]
    assert sum(count for count, _ in last) == len(ledger_lines(run))
    summary = summarise(run, config)
    told = [{"count": count, "hash": digest} for count, digest in last]
    assert [c["ledger"] for c in summary["clients"]] == told
    assert {c["unit"] for c in summary["clients"]} == {"one training sample"}
    assert [read_json(book_file(home(run, i))) for i in range(2)] == told
    assert {c["relation"] for c in summary["clients"]} == {"add-or-remove-one"}


@pytest.mark.slow
def test_everything_that_a_whole_run_charged_came_to_its_end(
    tiny: Tiny, carry: Carry, tmp_path: Path
):
    run = tmp_path / "r"
    carry(run, tiny(federation__rounds=2))
    kinds = [json.loads(x)["kind"] for x in ledger_lines(run)]
    assert kinds.count("charge") == kinds.count("commit") == 2 * (1 + 2 * 2)
    assert all(e.finished for a in accounts(run) for e in a.entries)
