"""`panas node`: serve a site to federations until a signal stops it."""

import os
import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from dprbft.engines.node.call import SOCKET
from dprbft.engines.node.daemon import KEY, LOG, Node, Served
from dprbft.engines.node.listen import run_node
from dprbft.engines.watch.node import NodeMetrics
from dprbft.engines.watch.serve import serving
from dprbft.methods.serve import Machine
from dprbft.secure_sum.signing import check_own_key
from dprbft.site.directory import read_site, site_account, site_ledger
from dprbft.site.federations import memberships
from panas.runtime.device import device_named
from panas.runtime.log import Line, to_stderr
from panas.runtime.state import state_key
from panas_cli.text.privacy_card import budget_line, state_lines


def serve(folder: Path, socket: Path | None, device: str, workers: int) -> None:
    """Answer requests for a site; Ctrl-C and SIGTERM end it, and lose nothing.

    Args:
        folder: the site's.
        socket: where to listen; None: in the folder.
        device: auto, cpu or cuda.
        workers: processes of a search or of tuning, at least 1.
    """
    settings, path = read_site(folder), socket or folder / SOCKET
    state_key()  # or BadInput, where it can be kept nowhere
    own, *others = memberships(folder, settings.federation)
    for each in (own, *others):
        if (each.folder / KEY).is_file():
            check_own_key(each.folder)
    machine = Machine(device_named(device), workers)
    metrics, as_json = NodeMetrics(folder), settings.log_format == "json"

    def tell(served: Served) -> None:
        metrics.count(served)
        to_stderr(served.line().json()) if as_json else _say(_sentence(served))

    def say(text: str, warning: bool = False) -> None:
        line = Line("node", {"text": text}, "warning" if warning else "info")
        to_stderr(line.json()) if as_json else _say(f"warning: {text}" if warning else text)

    further = [
        (Node({each.site(): folder}, machine, tell=tell, member=each), each.folder / SOCKET)
        for each in others
    ]
    node = Node({settings.name: folder}, machine, tell=tell)
    account = site_account(folder, settings)
    signed = "signed" if (folder / KEY).is_file() else f"not signed: no {KEY}"

    def ready() -> None:
        say(
            f"site {settings.name} answers at {path} (answers are {signed}); "
            f"{budget_line(settings, account)}; Ctrl-C stops it"
        )
        for each, (_, at) in zip(others, further, strict=True):
            say(f"in federation {each.name} it is {each.site()}, and answers at {at}")
        for line in state_lines(site_ledger(folder)):
            say(line, warning=True)

    try:
        with ExitStack() as held:
            if settings.metrics:
                where = held.enter_context(serving(settings.metrics, folder, metrics.text))
                say(f"metrics: {where}")
            run_node(node, path, ready, further)
    except KeyboardInterrupt:
        say(f"site {settings.name} stopped; what was in progress is done when it is asked again")
        sys.stderr.flush()
        os._exit(0)  # a thread may compute still: what it would keep is on disk, or is done again


def _sentence(served: Served) -> str:
    what = f"{served.verb} of {served.run}" if served.verb else "no request"
    done = "done" if served.code == "DONE" else served.code.lower().replace("_", " ")
    if served.code == "FAILED":
        reason = f": {served.reason or 'see'}; where, says {LOG} in the site's directory"
    else:
        reason = f": {served.reason}" if served.reason else ""
    return f"{what}: {done} in {served.seconds:.1f} s{reason}"


def _say(line: str) -> None:
    now = datetime.now().strftime("%H:%M:%S")
    to_stderr(f"{now} {line}")
