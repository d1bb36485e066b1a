"""What a site does when it is asked: bytes in, a code and bytes out.

Every verb may be repeated: a site that has done it already answers the same again, so that a server
that died can ask once more and nobody is charged twice. A refusal's reason is written to the site's
folder; a code alone crosses the wire.

To a hub elsewhere there is one way out. What is refused as a site joins, before it reads private
samples, follows from the message and the owner's settings. Later its memory may follow from
samples, also by what failed before. So nothing that goes wrong in a verb changes a code, also not a
message that makes no sense: a verb whose answer is a code says DONE, one that sends says ABSENT.
Only that the ledger has too little left is told. DONE means that the site is through, and not that
it succeeded; its owner reads why in `failed.json` and in the node's log.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from dprbft.messages import Code, Hello, Reply, Verb
from dprbft.methods.joined import site as joined
from dprbft.methods.rounds import site as rounds
from dprbft.methods.updates import site as updates
from dprbft.paths import SitePaths, failed_file, hello_file, refusal_file
from dprbft.secure_sum.signing import signing_of, summed_of
from dprbft.site.data import watching_rows
from dprbft.site.directory import read_site
from dprbft.site.federations import membership
from dprbft.site.joining import check_allowed, join, leave
from dprbft.site.results.seen import remembering
from dprbft.site.site import Site, config_of, open_site, same_ledger
from panas.runtime.errors import BadInput, BudgetExhausted, trail
from panas.runtime.store import read_bytes, write_json


@dataclass(frozen=True)
class Machine:
    """Where a site computes, and with how many processes of its own."""

    device: str = "cpu"
    workers: int = 1


VERBS: Mapping[str, Mapping[Verb, Callable[[Site, bytes], bytes | None]]] = {
    "joined": joined.VERBS,
    "rounds": rounds.VERBS,
    "updates": updates.VERBS,
}
"""What a site does, by the family of the run's method."""

GREETINGS = {Verb.HELLO: join, Verb.LEAVE: leave}
SILENT = (Verb.SEARCH, Verb.TUNE, Verb.FINISH, Verb.TRAIN, Verb.EXPORT)
"""Verbs whose answer is a code, and that compute on private samples."""


def serve(paths: SitePaths, machine: Machine, verb: Verb, content: bytes) -> Reply:
    """Do what the server asks; the answer to a refusal is a code, its reason stays here.

    Args:
        paths: of the site in the run.
        machine: where it computes.
        verb: what to do.
        content: the message of the verb, untrusted.
    """
    if not paths.is_present:
        return Reply(Code.ABSENT)
    reply, error, at_work = Reply(Code.DONE), Exception(), False
    with watching_rows() as rows_read:
        try:
            work = _work_of(paths, machine, verb, content)
            at_work = verb not in GREETINGS
            reply = Reply(Code.DONE, work() or b"")
        except Exception as e:
            reply, error = Reply(_code_of(e)), e
            at_work = at_work and not isinstance(e, BudgetExhausted)
        read = rows_read()
        hidden = (
            reply.code is not Code.DONE and (read or at_work) and _is_remote(paths, verb, content)
        )
    if not paths.is_present:  # it was taken away meanwhile: nothing leaves
        return Reply(Code.ABSENT)
    if reply.code is Code.DONE:
        return reply
    if reply.code is Code.FAILED and not hidden:
        raise error
    _note(paths, verb, reply.code, error, failed=hidden and (read or reply.code is Code.FAILED))
    if hidden:
        return Reply(Code.DONE if verb in SILENT else Code.ABSENT)
    return reply


def _code_of(error: Exception) -> Code:
    if isinstance(error, BadInput):
        return Code.REFUSED
    return Code.NO_BUDGET if isinstance(error, BudgetExhausted) else Code.FAILED


def _is_remote(paths: SitePaths, verb: Verb, content: bytes) -> bool:
    noted = hello_file(paths.home)
    hello = Hello.from_bytes(content if verb is Verb.HELLO else noted.read_bytes())
    return bool(config_of(hello.config).federation.remote)


def _note(paths: SitePaths, verb: Verb, code: Code, error: Exception, *, failed: bool) -> None:
    """Write for the owner what went wrong; of an error that was not foreseen no text, which may
    hold data."""
    unforeseen = code is Code.FAILED
    reason = type(error).__name__ if unforeseen else str(error)
    trace = trail(error) if unforeseen else []
    record = {"verb": verb, "code": code.name, "reason": reason, "trace": trace}
    write_json(refusal_file(paths.home), record)
    path = failed_file(paths.home)
    if failed and verb is not Verb.HELLO and not path.is_file():  # the first says why
        write_json(path, record)


def _work_of(
    paths: SitePaths, machine: Machine, verb: Verb, content: bytes
) -> Callable[[], bytes | None]:
    """What a verb has a site do; BadInput if the owner or the method does not allow it."""
    refusal_file(paths.home).unlink(missing_ok=True)
    if verb in GREETINGS:
        return partial(GREETINGS[verb], paths, content)
    check_allowed(paths)
    site = _with_keys(remembering(open_site(paths, machine.device, machine.workers)))
    method = site.config.federation.method
    verbs = VERBS[site.config.federation.family.name]
    if verb not in verbs:
        raise BadInput(f"expected what a site of method {method} does, got {verb}")

    def work() -> bytes | None:
        with same_ledger(site):
            return verbs[verb](site, content)

    return work


def _with_keys(site: Site) -> Site:
    """The site and its node key, where a run among machines sums in secret."""
    names = site.config.federation.remote
    if not names or not site.config.secure_sum:
        return site
    summed = summed_of(Hello.from_bytes(read_bytes(hello_file(site.home))))
    paths = site.paths
    named = read_site(paths.folder).federation
    keys = membership(paths.folder, named, paths.run).folder
    return replace(site, signing=signing_of(keys, names, site.id, paths.asked, summed))
