"""How many sites does one hub carry? Real connections over TLS, each with a key of its own.

    python -m benchmarks.load [--sites 10 50 200] [--each 20] [--json]

A hub (`panas deploy start`), and one process with the light sites: for each a thread that connects
as a SuperNode does (Flower's own client, TLS, signature, heartbeats), looks for messages once a
second, and lets a `Node` answer from the site's own folder, data and ledger. A run joins them all
(method `joined`, by default a secure sum), and is timed from hello to the shared head.

| figure | what it is |
|---|---|
| connect | seconds until all are connected, from the start of the process with the sites |
| idle | hub's processor seconds a minute, when nothing is asked |
| MB | memory (resident) of the hub's processes, idle and at most during the run |
| run | seconds of the run; processor seconds of the hub; bytes at its port a site |

Sites share one process and its two cores, so the run's seconds are mostly theirs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.datasets import load_digits

from dprbft.config.files import build_config, without_unread
from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.register import link_of
from dprbft.engines.deploy.settings import CA, NODE_KEY, Hub, flower_hub, read_federation
from dprbft.engines.flower.carrier import FlowerCarrier
from dprbft.engines.flower.door.control import state, tell
from dprbft.engines.flower.hub import QUIET, answers, free_port
from dprbft.engines.node.daemon import Node
from dprbft.paths import server_folder, traffic_file
from dprbft.run.directory import Ground, prepare
from dprbft.run.hub import Wire, open_hub
from dprbft.run.stages import begin, exchange_stage
from dprbft.server.records import read_rounds
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site
from panas.runtime.store import read_json

IDLE = 20.0  # seconds that the hub is watched while nothing is asked
LOOK = 1.0  # seconds between a light site's looks for messages
PUBLIC = 100  # samples
EPSILON, DELTA = 8.0, 1e-3


def make(folder: Path, sites: int, each: int, *, epsilon: float = EPSILON) -> None:
    """The deployment, and the sites' data, of digits drawn with replacement.

    Args:
        folder: exists.
        sites: how many.
        each: samples of a site.
        epsilon: of each site for life.
    """
    names = tuple(f"s{i:03d}" for i in range(sites))
    make_deployment(folder / "all", Deployment(sites=names, port=free_port()))
    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8) * 15).astype(np.uint8)
    rng = np.random.default_rng(0)
    np.savez(folder / "public.npz", x=images[:PUBLIC], y=y[:PUBLIC])
    for name in names:
        at, data = rng.integers(PUBLIC, len(y), each), folder / f"{name}.npz"
        np.savez(data, x=images[at], y=y[at])
        settings = SiteSettings(name=name, data=str(data), epsilon=epsilon, delta=DELTA)
        site = folder / "all" / "sites" / name
        write_site(site, settings, facts=declared(site, settings)[0])


def light(folder: Path) -> None:
    """All sites of a deployment, each with a connection of its own, until a signal."""
    os.environ.update(QUIET)
    import flwr.supernode.start_client_internal  # noqa: F401  (before threads: see `flower.site`)

    places = {site.name: site for site in sorted((folder / "all" / "sites").iterdir())}
    node = Node(places)
    threads = [
        threading.Thread(target=_connected, args=(site, node), daemon=True)
        for site in places.values()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _connected(site: Path, node: Node) -> None:
    """Answer what the hub asks one site."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supernode.fleet_http_connection import http_request_response

    key: Any = load_ssh_private_key((site / NODE_KEY).read_bytes(), None)
    with http_request_response(
        read_federation(site).hub,
        insecure=False,
        root_certificates=(site / CA).read_bytes(),
        authentication_keys=(key, key.public_key()),
    ) as link:
        while True:
            with suppress(Exception):  # a run that has ended, say
                if _one(link, node):
                    continue
            time.sleep(LOOK)


def _one(link: Sequence[Any], node: Node) -> bool:
    """Answer one message; False if there is none."""
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import (
        pull_and_inflate_object_from_tree,
        push_objects,
    )

    _, receive, send, _, _, pull, push, confirm = link
    if (received := receive()) is None:
        return False
    run, number = received[0].metadata.run_id, received[0].metadata.message_id
    asked = pull_and_inflate_object_from_tree(
        received[1], partial(pull, run), partial(confirm, run), return_type=Message
    )
    asked.metadata.__dict__["_message_id"] = number
    answer = node.answer(cast(bytes, asked.content.config_records["job"]["frame"])) or b""
    content = ConfigRecord({"state": "answered", "answer": answer})
    reply = Message(RecordDict({"job": content}), reply_to=asked)
    with no_object_id_recompute():
        reply.metadata.__dict__["_message_id"] = reply.object_id
        parts = get_all_nested_objects(reply)
        wanted, session = send(reply, get_object_tree(reply), 0.0)
        push_objects(parts, partial(push, run, session), object_ids_to_push=wanted)
    return True


class Watched:
    """Memory and processor time of a process and all that it has started."""

    def __init__(self, process: int) -> None:
        self.process, self.most = process, 0.0

    def family(self) -> list[int]:
        """The process and its descendants."""
        parents = dict[int, int]()
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
        found, added = {self.process}, True
        while added:
            more = {p for p, parent in parents.items() if parent in found} - found
            found, added = found | more, bool(more)
        return sorted(found)

    def megabytes(self) -> float:
        """Resident memory of all."""
        total = 0
        for process in self.family():
            with suppress(OSError):
                pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
                total += pages * os.sysconf("SC_PAGE_SIZE")
        self.most = max(self.most, total / 1e6)
        return total / 1e6

    def seconds(self) -> float:
        """Processor time of those that live, with their dead children's."""
        ticks = 0
        for process in self.family():
            with suppress(OSError):
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process, ended with all that it has started."""
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", *words], stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def measured(folder: Path, sites: int, each: int) -> dict[str, Any]:
    """Connect so many sites, wait, and join them in one run."""
    os.environ["PANAS_STATE"] = str(folder / "state")
    make(folder, sites, each)
    hub = flower_hub(folder / "all" / "hub")
    start = ("panas_cli", "deploy", "start", "--hub", str(hub.folder))
    with started(folder / "hub.log", *start) as process:
        host, port = hub.local_address.rpartition(":")[::2]
        assert answers((host, int(port)), 60, lambda: process.poll() is None)
        begun = time.monotonic()
        with started(folder / "sites.log", "benchmarks.load", "--light", str(folder)):
            while sum(s == "online" for s in _states(hub).values()) < sites:
                assert time.monotonic() - begun < 600, (folder / "sites.log").read_text()[-2000:]
                time.sleep(0.5)
            connect, watched = time.monotonic() - begun, Watched(process.pid)
            time.sleep(5)
            before = watched.seconds()
            time.sleep(IDLE)
            idle = (watched.seconds() - before) * 60 / IDLE
            quiet = watched.megabytes()
            found = {
                "sites": sites,
                "seconds_to_connect": round(connect, 1),
                "idle_cpu_seconds_a_minute": round(idle, 1),
                "idle_megabytes": round(quiet),
            }
            _say(json.dumps(found))  # the run may take long
            return found | _joined(folder, hub, watched)


def _states(hub: Hub) -> dict[str, str]:
    with suppress(Exception):
        return dict(state(hub.home)["connected"])
    return {}


def _joined(folder: Path, hub: Hub, watched: Watched) -> dict[str, Any]:
    """The figures of one run, up to the shared head."""
    names, run = hub.settings.names, folder / "run"
    config = build_config(
        without_unread(
            {
                "data": {"public_data": str(folder / "public.npz")},
                "federation": {"remote": names, "clients": len(names), "baselines": False},
                "privacy": {"epsilon": EPSILON, "delta": DELTA, "network": "stays"},
                "tuning": {"trials": 0},
            }
        )
    )
    done = threading.Event()

    def watch() -> None:
        while not done.wait(1.0):
            watched.megabytes()

    threading.Thread(target=watch, daemon=True).start()
    before, begun = watched.seconds(), time.monotonic()
    prepare(run, config, resume=False)
    with FlowerCarrier(link_of(hub), minimum=len(names), patience=300.0, tell=_say) as carrier:
        wire = Wire(carrier, hub.keys, lambda event: tell(hub.home, event))
        opened = open_hub(run, config, hub.settings, wire, listener=lambda event: None)
        begin(opened, Ground.of(run))
        hello = time.monotonic() - begun
        exchange_stage(opened)
        seconds, cpu = time.monotonic() - begun, watched.seconds() - before
    done.set()
    (record,) = read_rounds(server_folder(run))
    carried = json.dumps(read_json(traffic_file(server_folder(run))))
    return {
        "seconds_to_hello": round(hello, 1),
        "seconds_to_head": round(seconds, 1),
        "hub_cpu_seconds": round(cpu, 1),
        "hub_megabytes_at_most": round(watched.most),
        "joined": len(record.sites),
        "secure_sum": config.privacy.trust,
        "traffic": json.loads(carried),
    }


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> None:
    """Measure, and print a line for each number of sites, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", nargs="+", type=int, default=[10, 50, 200])
    parser.add_argument("--each", type=int, default=20, help="samples of a site")
    parser.add_argument("--light", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    if a.light:
        light(a.light)
        return
    for sites in a.sites:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(Path(folder), sites, a.each)
        text = json.dumps(found) if a.json else "  ".join(f"{k} {v}" for k, v in found.items())
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
