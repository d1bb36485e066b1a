"""What holds after every run that ended well, at its server and at its sites."""

import hashlib
from pathlib import Path

from ledgers import accounts

from dprbft.config.schema import RunConfig, participants
from dprbft.messages import Release
from dprbft.methods.rounds.state import State
from dprbft.paths import (
    SitePaths,
    last_model_file,
    model_file,
    read_sites,
    round_folder,
    sent_file,
    server_folder,
    state_file,
)
from dprbft.run.view import RunView
from dprbft.server.records import RoundRecord, read_rounds
from dprbft.site.results.scores import read_scores
from panas.privacy.ledger.account import Account
from panas.training.checkpoint import load_network
from panas.training.evaluate import accuracy


def state_of(paths: SitePaths) -> State:
    path = state_file(paths.home)
    return State.from_bytes(path.read_bytes(), path)


def release_in(run: Path, round: int, site: int) -> Path:
    """Where the server has a release."""
    return round_folder(server_folder(run), round) / f"site-{site:04d}.safetensors"


def check_whole(run: Path, config: RunConfig) -> list[tuple[int, int]]:
    """Check a run; returns the (round, site) of releases that were skipped: none, if none died."""
    records = read_rounds(server_folder(run))
    assert [r.round for r in records] == list(range(1, config.federation.rounds + 1))
    assert [list(r.sites) for r in records] == participants(config)
    skipped = []
    for account, paths in zip(accounts(run), read_sites(run), strict=True):
        assert account.spent_protected() <= account.budget.epsilon
        took = [r for r in records if paths.index in r.sites]
        check_site(run, config, paths, [r.round for r in took])
        sends = config.federation.method != "local" and config.privacy.release != "none"
        assert sends or not list((paths.home / "releases").glob("*"))
        for record in took if sends else []:
            if paths.index in record.releases:
                check_release(run, config, paths, record, account)
            else:
                skipped.append((record.round, paths.index))
    return skipped


def check_site(run: Path, config: RunConfig, paths: SitePaths, rounds: list[int]) -> None:
    """What a site has after these rounds of its own."""
    state, data = state_of(paths), RunView(run, config).site(paths.index)
    assert (state.round, state.answered) == (rounds[-1] if rounds else 0, True)
    assert [score.round for score in read_scores(paths.home)] == [0, *rounds]
    saved = load_network(model_file(paths.home))
    assert saved.notes["client"] == paths.index
    assert saved.notes["round"] == state.kept.round
    assert accuracy(saved.bottom, saved.head, data.test) == state.kept.accuracy
    assert load_network(last_model_file(paths.home)).notes["round"] == state.round


def check_release(
    run: Path, config: RunConfig, paths: SitePaths, record: RoundRecord, account: Account
) -> None:
    """That the server has what the site sent, and the ledger what it cost."""
    content = release_in(run, record.round, paths.index).read_bytes()
    assert content == sent_file(paths.home, record.round).read_bytes()
    assert record.releases[paths.index] == hashlib.sha256(content).hexdigest()
    facts = RunView(run, config).facts
    size = {"width": config.network.width, "classes": facts.classes}
    release = Release.from_bytes(content, **size)
    assert (release.kind, release.site) == (config.privacy.release, paths.index)
    charged = {e.id: e.charge.round for e in account.entries if e.finished}
    assert charged[release.receipt] == release.round == record.round
