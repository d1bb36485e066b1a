"""The process at a site that owns its data: answers requests, and tells its owner of each.

Torch is loaded once. Whatever goes wrong becomes a code; what it was stands in the site's own
`node.log`, without a value of data. All state is on disk: a node that was ended goes on as it was.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from dprbft.engines.frames import Answer, OtherWire, Request
from dprbft.engines.node.public import begun_elsewhere, local_hello, tidy
from dprbft.messages import Code, Hello, Reply, Verb
from dprbft.methods.serve import Machine, serve
from dprbft.paths import SitePaths, hello_file, refusal_file, settings_file
from dprbft.secure_sum.identity import sign
from dprbft.site.directory import read_site
from dprbft.site.federations import Membership
from panas.runtime.errors import BadInput, trail
from panas.runtime.log import Level, Line, append
from panas.runtime.store import read_json

KEY = "node.key"
LOG = "node.log"
HERE = Machine()
LEVELS: Mapping[str, Level] = {Code.DONE.name: "info", Code.FAILED.name: "error"}
"""Of a request in the log, by the code of its answer; all others are warnings."""
LOGGING = threading.Lock()
"""Of this process's logs: each has one writer at a time, of whichever hub a request is."""


@cache
def turn_of(folder: Path) -> threading.Lock:
    """What a site's requests wait for, of whichever hub they are."""
    return threading.Lock()


@dataclass(frozen=True)
class Served:
    """One request, as the site's owner hears of it."""

    site: str
    verb: str
    run: str
    code: str
    seconds: float
    reason: str = ""  # of a refusal; it may tell of data, and stays here
    received: int = 0  # bytes of the request
    sent: int = 0  # bytes of the answer

    def line(self, trace: Sequence[str] = ()) -> Line:
        """The request as a line of the log; `trace` says where something failed."""
        about = asdict(self) | {"seconds": round(self.seconds, 3)}
        about |= {"trace": list(trace)} if trace else {}
        return Line("request", about, LEVELS.get(self.code, "warning"))


class Node:
    """Answers for one site or several of this machine, each by name in its own directory.

    One request of a site is served at a time.

    Args:
        sites: directories of the sites, by name.
        machine: device and processes.
        shared: the run's directory, for the sites of one simulation: there what is public stands
            already, and a refusal is noted.
        tell: hears of every request.
        member: the federation whose hub asks; None: that of each site's own folder.
    """

    def __init__(
        self,
        sites: Mapping[str, Path],
        machine: Machine = HERE,
        *,
        shared: Path | None = None,
        tell: Callable[[Served], None] = lambda served: None,
        member: Membership | None = None,
    ) -> None:
        for name, folder in sites.items() if member is None else ():
            if (actual := read_site(folder).name) != name:
                raise BadInput(f"expected site {name} at {folder}, got {actual}; check the folder")
        self.sites = {name: folder.resolve() for name, folder in sites.items()}
        self.machine = machine
        self._shared, self._tell, self._member = shared, tell, member
        self._turns = {name: turn_of(folder) for name, folder in self.sites.items()}

    def answer(self, frame: bytes, gone: Callable[[], bool] = lambda: False) -> bytes | None:
        """The answer to a frame; None if it is no request to a site here, or nobody waits for it.

        `gone` is asked once it is this request's turn. Nothing is raised.
        """
        begun = time.monotonic()
        try:
            request = Request.from_bytes(frame)
        except BadInput as e:
            self.refuse(e)
            return e.answer(int(Code.REFUSED)) if isinstance(e, OtherWire) else None
        folder = self.sites.get(request.site)
        if folder is None:
            about = (request.run, request.site, request.verb, request.nonce)
            return Answer(*about, int(Code.ABSENT)).to_bytes()
        with self._turns[request.site]:
            if gone():
                return None
            reply, reason, trace = self._safely(folder, request)
            run = self._called(request)
            served = Served(request.site, request.verb, run, reply.code.name, 0.0, reason)
            try:
                answer = self._signed(folder, request, reply)
            except Exception as e:  # a broken key, say: nothing leaves
                served, trace = replace(served, code=Code.FAILED.name), trail(e)
                answer = None
        served = replace(served, received=len(frame), sent=len(answer or b""))
        self._note(folder, replace(served, seconds=time.monotonic() - begun), trace)
        return answer

    def refuse(self, error: BadInput) -> None:
        """Note in a log here what was no request."""
        somewhere = next(iter(self.sites.values()))
        self._note(somewhere, Served("", "", "", Code.REFUSED.name, 0.0, str(error)))

    def _safely(self, folder: Path, request: Request) -> tuple[Reply, str, list[str]]:
        """The reply, the reason of a refusal, and where something failed."""
        paths = SitePaths(request.number, request.site, folder, self._called(request))
        try:
            reply, reason, failed = self._served(paths, request)
        except BadInput as e:
            reply, reason, failed = Reply(Code.REFUSED), str(e), []
        except Exception as e:
            reply, reason, failed = Reply(Code.FAILED), type(e).__name__, trail(e)
        try:
            if self._shared is None:
                tidy(paths)
        except OSError as e:
            return Reply(Code.FAILED), type(e).__name__, trail(e)
        return reply, reason, failed

    def _served(self, paths: SitePaths, request: Request) -> tuple[Reply, str, list[str]]:
        if request.verb not in list(Verb):
            raise BadInput(
                f"expected a verb of {', '.join(Verb)}, got {request.verb:.40}; ask again"
            )
        verb, content = Verb(request.verb), request.content
        if not paths.is_present:
            return Reply(Code.ABSENT), f"no {settings_file(paths.folder).name} there", []
        if verb in (Verb.HELLO, Verb.LEAVE):
            content = local_hello(paths, request, self._shared)
        elif request.files:
            raise BadInput(f"expected no files with {verb}, got some; leave them out")
        else:
            _check_joined(paths, elsewhere=self._shared is None)
        reply = serve(paths, self.machine, verb, content)
        if not refusal_file(paths.home).is_file():
            return reply, "", []
        record = read_json(refusal_file(paths.home))
        return reply, str(record["reason"]), list(record["trace"])

    def _called(self, request: Request) -> str:
        """What the site calls the run of a request."""
        return self._member.run(request.run) if self._member else request.run

    def _signed(self, folder: Path, request: Request, reply: Reply) -> bytes:
        about = (request.run, request.site, request.verb, request.nonce)
        keys = self._member.folder if self._member else folder
        answer, key = Answer(*about, int(reply.code), reply.release), keys / KEY
        if key.is_file():
            answer = replace(answer, signature=sign(key.read_bytes(), answer.signed_part()))
        return answer.to_bytes()

    def _note(self, folder: Path, served: Served, trace: Sequence[str] = ()) -> None:
        """A line in the site's log, and to who listens."""
        try:  # a full disk keeps no answer back
            with LOGGING:
                if settings_file(folder).is_file():
                    append(folder / LOG, served.line(trace))
        except OSError as e:
            lost = f"{LOG} could not be written ({e.strerror or e})"
            where = ", ".join(trace[-2:-1]) if trace else ""
            served = replace(served, reason="; ".join(filter(None, (served.reason, where, lost))))
        with suppress(OSError):
            self._tell(served)


def _check_joined(paths: SitePaths, *, elsewhere: bool) -> None:
    """Refuse a run that the site has not joined, or has joined under another number.

    Of a hub that is `elsewhere`, refuse also a run that was begun on this machine: its files are
    not in the hub's folder.
    """
    noted = hello_file(paths.home)
    if not noted.is_file():
        raise BadInput(f"expected a run that the site has joined, got {paths.run}; say hello first")
    hello = Hello.from_bytes(noted.read_bytes())
    if hello.site != paths.index:
        raise BadInput(
            f"expected site {hello.site} of run {paths.run}, got {paths.index}; ask as that"
        )
    if elsewhere and not begun_elsewhere(paths, hello):
        raise BadInput(
            f"expected a run that a hub has begun, got {paths.run}, which was begun on this "
            "machine; give another directory"
        )
