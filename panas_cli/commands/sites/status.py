"""`panas deploy status`: at a hub who is connected and how far a run is; at a site its own ledger.

A hub knows what it received. What a release cost it computes from the noise that the release tells;
the label histogram beside it is not counted, and of a secure sum nothing is known. What a
site has spent in all is in its ledger, which never leaves it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprbft.config.files import load_config
from dprbft.config.schema import RunConfig
from dprbft.engines.deploy.checks import check_node
from dprbft.engines.deploy.settings import Hub, flower_hub
from dprbft.engines.flower.door.control import SAID, state
from dprbft.engines.node.daemon import LOG
from dprbft.paths import config_file, refused_file, server_folder
from dprbft.run.bookkeeping import is_done
from dprbft.run.hub import carried, sites_of, trust_of
from dprbft.run.stages import stages_of
from dprbft.server.records import read_rounds
from dprbft.site.directory import read_site, site_account, site_ledger
from panas.privacy.ledger.account import number
from panas.runtime.errors import BadInput, PanasError
from panas.runtime.store import read_lines
from panas_cli.text.output import releases_text
from panas_cli.text.printing import (
    LABELS,
    counted,
    figure,
    print_json,
    print_label,
    print_table,
    print_text,
    print_words,
    size_text,
)
from panas_cli.text.privacy_card import (
    budget_line,
    hub_lines,
    print_runs,
    run_rows,
    state_lines,
    trust_lines,
)
from panas_cli.text.sentences import STAGES

NOTE = (
    "epsilon: of the releases that arrived, by their noise, without label histograms; a run costs "
    "a site at most what it asked for; what a site has spent in all, its own ledger says there "
    "(panas deploy status --site DIR)"
)


def of_hub(folder: Path, run: Path | None, *, json: bool) -> None:
    """Who is connected; of a run, its round and what each site's releases cost.

    Args:
        folder: the hub's.
        run: directory of a run; None: the hub's latest.
        json: print one JSON object.
    """
    hub = flower_hub(folder)
    record = hub_record(hub, run)
    if json:
        print_json(record)
    else:
        print_hub(record, hub)


def hub_record(hub: Hub, run: Path | None) -> dict[str, Any]:
    """What a hub knows now, as JSON; of a run, or of its latest."""
    seen, result = look(hub), run or latest_run(hub)
    states = None if seen is None else dict(seen["connected"])
    return {
        "hub": hub.address,
        "answers": states is not None,
        "connected": {n: states.get(n, "not registered") for n in hub.settings.names}
        if states is not None
        else {},
        "refused_at_port": None if seen is None else dict(seen["closed"]),
        "run": None if result is None else _run(result, hub),
        "note": NOTE,
    }


def look(hub: Hub) -> dict[str, Any] | None:
    """What the hub's process says of its port and its sites; None if it does not answer."""
    try:
        return state(hub.home)
    except PanasError:
        return None


def latest_run(hub: Hub) -> Path | None:
    """The run of this hub's sites that was begun last, below the hub's folder or this one."""
    results = [
        path.parent
        for place in (hub.folder / "runs", Path("runs"))
        for path in place.glob(f"*/{config_file(Path()).name}")
        if set(load_config(path.parent).federation.remote) & set(hub.settings.names)
    ]
    return max(results, key=lambda path: config_file(path).stat().st_mtime_ns, default=None)


def _run(run: Path, hub: Hub) -> dict[str, Any]:
    config = _config(run)
    if not set(config.federation.remote) & set(hub.settings.names):
        raise BadInput(f"expected a run of the sites of this hub, got {run}; give its own --run")
    server = server_folder(run)
    rounds, sites, frames = read_rounds(server), sites_of(run, config), carried(server).values()
    return {
        "directory": str(run),
        "method": config.federation.method,
        "stage": next((s for s in stages_of(config) if not is_done(run, s)), None),
        "trust": trust_of(run),
        "rounds": len(rounds),
        "of_rounds": config.federation.planned_rounds,
        "absent": [s["name"] for s in sites if rounds and rounds[-1].round not in s["rounds"]],
        "refused_replies": len(read_lines(refused_file(server))),
        "down_bytes": sum(down for down, _ in frames),
        "up_bytes": sum(up for _, up in frames),
        "sites": [s | {"asks_for": number(config.budget(s["id"]).epsilon)} for s in sites],
    }


def _config(run: Path) -> RunConfig:
    if not config_file(run).is_file():
        raise BadInput(f"expected a run directory at {run}, found none; check --run")
    return load_config(run)


def print_hub(record: dict[str, Any], hub: Hub) -> None:
    """The same in words."""
    if not record["answers"]:
        print_text(f"hub {hub.address}: does not answer; start it with {hub.folder}/start.sh")
    else:
        here = sum(state == "online" for state in record["connected"].values())
        print_text(f"hub {hub.address}: {here} of {counted(len(hub.keys), 'site')} connected")
        for why, number in sorted((record["refused_at_port"] or {}).items()):
            print_words(f"  {SAID[why]}: {number}, since it was started")
    run = record["run"]
    if run is None:
        states = record["connected"]
        there = [(name, states.get(name, "unknown")) for name in hub.settings.names]
        print_table(("site", "connection"), there, 2)
        print_text("no run of these sites was found here; name one by --run")
        return
    print_text(
        f"run {run['directory']}: {run['method']}, round {run['rounds']} of {run['of_rounds']}"
    )
    print_text(
        f"  {STAGES[run['stage']]} is under way" if run["stage"] else "  all stages are done"
    )
    down, up = (size_text(run[f"{way}_bytes"]) for way in ("down", "up"))
    print_text(f"  {down} to the sites, {up} from them")
    if run["absent"]:
        print_words(f"  absent in the last round: {', '.join(run['absent'])}")
    if run["refused_replies"]:
        file = refused_file(server_folder(Path(run["directory"])))
        print_words(f"  {counted(run['refused_replies'], 'reply', 'replies')} refused: {file}")
    rows = [
        (
            s["name"],
            record["connected"].get(s["name"], "unknown"),
            ", ".join(s["through"]) or "nothing yet",
            releases_text(run, s),
            _epsilon(s["epsilon_of_releases"]),
            _epsilon(s["asks_for"]),
        )
        for s in run["sites"]
    ]
    print_table(("site", "connection", "through", "releases", "their epsilon", "at most"), rows, 3)
    print_words(NOTE)


def _epsilon(value: float | str | None) -> str:
    return "not known" if value is None else figure(float(value))


def of_site(folder: Path, *, json: bool) -> None:
    """Whether the node answers, the last request, and the site's own ledger."""
    record = site_record(folder)
    if json:
        print_json(record)
    else:
        print_site(folder, record)


def site_record(folder: Path) -> dict[str, Any]:
    """What a site knows now, as JSON."""
    site = read_site(folder)
    account = site_account(folder, site)
    node = check_node(folder)
    return {
        "site": site.name,
        "node": node.line,
        "answers": node.holds,
        "last_request": last_request(folder / LOG),
        "budget": number(site.epsilon),
        "delta": site.delta,
        "spent": number(account.spent()),
        "left": number(account.left()),
        "runs": run_rows(account),
        "notes": state_lines(site_ledger(folder)),
    }


def print_site(folder: Path, record: Mapping[str, Any]) -> None:
    """The same in words."""
    site = read_site(folder)
    account = site_account(folder, site)
    print_text(f"site {site.name}: {'node ' if record['answers'] else ''}{record['node']}")
    if request := record["last_request"]:
        what = f"{request['verb']} of {request['run']}: {request['code'].lower()}"
        print_label("last", f"{request['time']} {what}")
    print_label("budget", budget_line(site, account))
    for line in hub_lines(site, account):
        print_label("hub", line)
    for line in trust_lines(account, LABELS):
        print_text(line)
    for line in record["notes"]:
        print_words(f"warning: {line}")
    print_runs(record["runs"])


def last_request(log: Path) -> dict[str, str] | None:
    """The last line of a node's log, without the reason of a refusal; None if there is none."""
    if not log.is_file():
        return None
    for line in reversed(log.read_bytes().splitlines()):
        try:
            record = json.loads(line)
            return {key: str(record[key]) for key in ("time", "verb", "run", "code")}
        except (ValueError, KeyError, TypeError):
            continue  # a line that is being written
    return None
