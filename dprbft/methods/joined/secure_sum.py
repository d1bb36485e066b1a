"""A site's part in a secure sum, verb by verb; each may be repeated, and gives the same bytes.

| verb | what the site does | what leaves |
|---|---|---|
| ready | offers to take part | the noise multiplier that its budget needs |
| keys | checks the plan of the sum | public keys |
| share | shares its secrets | encrypted shares, one a peer |
| round | charges, sums, adds its noise, masks | the masked vector |
| unmask | signs who is summed, where sites have keys | the signature |
| unmask | opens the sum, once | its shares of what masks the sum |
| finish | erases its secrets | nothing |

All of it stands in one file, replaced whole before an answer leaves: a killed site goes on, and the
vector without its mask is never on disk. Before a vector is masked another plan may replace the
first, since nothing of the data has left; after it none may. When the server answers the round, the
sum is open, and the secrets go; what stays are the plan, the masked vector and whose sum it was.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from dprbft.messages import Verb
from dprbft.methods.joined.budget import planned_release
from dprbft.methods.joined.state import unsent_event
from dprbft.paths import sum_file, sum_refusals_file
from dprbft.secure_sum.messages import MaskedRelease, Offer, Parts, SumPlan, Survivors
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.release import KIND, ROUND, masked_size, noise_of, to_vector
from dprbft.secure_sum.session import MOST_SITES
from dprbft.site.directory import read_site
from dprbft.site.site import Site
from panas.privacy.accounting.events import Gaussian
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import ReleaseRequest, Summand, SumNoise, add_to_sum
from panas.runtime.errors import BadInput
from panas.runtime.store import append_note, pack_tensors, read_bytes, unpack_tensors, write_bytes


@dataclass(frozen=True)
class SumState:
    """Where a site stands in a secure sum; secret, but for what it has sent."""

    plan: SumPlan
    party: Party
    masked: bytes = b""  # the message, once it is made

    def write(self, site: Site) -> None:
        """Keep it in the site's folder for the run."""
        array = torch.frombuffer(bytearray(self.masked), dtype=torch.uint8) if self.masked else None
        tensors = {} if array is None else {"masked": array}
        about = {"plan": self.plan.to_bytes().hex(), "party": self.party.to_bytes().hex()}
        write_bytes(sum_file(site.home), pack_tensors(tensors, about))

    @staticmethod
    def read(site: Site) -> "SumState | None":
        """Where the site stands; None before it has a plan. BadInput if the file is damaged."""
        path = sum_file(site.home)
        if not path.exists():
            return None
        tensors, about = unpack_tensors(read_bytes(path), path)
        masked = tensors["masked"].numpy().tobytes() if "masked" in tensors else b""
        plan = SumPlan.from_bytes(bytes.fromhex(about["plan"]))
        party = Party.from_bytes(bytes.fromhex(about["party"]), site.signing)
        return SumState(plan, party, masked)


def offer(site: Site) -> bytes:
    """Before the sum: what its budget needs; BudgetExhausted if that pays for no noise."""
    state = SumState.read(site)
    if state and state.masked:
        return Offer(True, state.plan.noise_multiplier).to_bytes()
    event = unsent_event(site) or planned_release(site)
    return Offer(event is not None, float(getattr(event, "noise_multiplier", 0.0))).to_bytes()


def keys(site: Site, content: bytes) -> bytes:
    """Take part in the sum of this plan, if it keeps what the site was promised."""
    plan, state = SumPlan.from_bytes(content), SumState.read(site)
    if state and state.plan != plan and (state.masked or state.party.over):
        raise BadInput(
            "expected the secure sum that the site has released in, got another; a run that has "
            "joined cannot begin anew: give another directory"
        )
    if state is None or state.plan != plan:
        _check_plan(site, plan)
        state = SumState(plan, Party.new(plan.session, site.id, site.signing))
    announced = state.party.keys()
    state.write(site)
    return announced


def _check_plan(site: Site, plan: SumPlan) -> None:
    f, n = site.config.federation, len(plan.sites)
    if not site.config.secure_sum:
        raise BadInput("expected a run with privacy.trust = secure-sum, got one without")
    if plan.round != ROUND or site.id not in plan.sites or plan.sites[-1] >= f.clients:
        raise BadInput("expected a secure sum of this run's round and sites, got another")
    if n < f.secure_minimum or plan.missing < f.secure_missing_of(n):
        raise BadInput(
            f"expected a secure sum over at least {f.secure_minimum} sites, of which "
            f"{f.secure_missing_of(n)} or more may be missing, got {n} and {plan.missing}"
        )
    read_site(site.paths.folder).check_missing(plan.missing)
    event = unsent_event(site) or planned_release(site)
    if event is None:
        raise BadInput("expected no secure sum, since a release would not pay, got one")
    if isinstance(event, Gaussian) and plan.noise_multiplier < event.noise_multiplier:
        raise BadInput(
            f"expected a secure sum of noise multiplier {event.noise_multiplier:.4g} at least, "
            f"which the budget needs, got {plan.noise_multiplier:.4g}"
        )


def share(site: Site, content: bytes) -> bytes:
    """Shares of the site's secrets for all who announced keys."""
    state = _begun(site)
    shares = state.party.shares(Parts.from_bytes(content).parts)
    state.write(site)
    return Parts(shares).to_bytes()


def masked_release(site: Site, content: bytes, rows: Rows) -> tuple[bytes, SumNoise]:
    """Charge, and mask what is to be summed: moments and label counts with the site's noise.

    Returns the message, the same whenever it is asked for, and the noise of the sum. Where a
    process died before the message was on disk, nothing has left for its charge, which then pays
    for this message (`panas.privacy.release.gate`).

    BudgetExhausted, and nothing leaves, if the budget pays for none.

    Args:
        site: its ledger, its labels and its part in the sum.
        content: encrypted shares for the site, as `Parts`.
        rows: of all training samples; what cannot be computed is not charged.
    """
    state = _begun(site)
    if not state.masked:
        read_site(site.paths.folder).check_missing(state.plan.missing)  # as it says by now
        state = _mask(site, state, Parts.from_bytes(content), rows)
    size = masked_size(site.width, site.spec.classes)
    site.ledger.end(MaskedRelease.from_bytes(state.masked, size).receipt)  # if it died just then
    return state.masked, noise_of(state.plan, site.width, site.spec.classes)


def _mask(site: Site, state: SumState, received: Parts, rows: Rows) -> SumState:
    """The state with the message, which is on disk before its charge is noted as used."""
    # Refused before anything is charged, where the shares do not open; nothing of this leaves.
    Party.from_bytes(state.party.to_bytes()).mask(np.zeros(1, np.uint64), received.parts)
    noise, classes = noise_of(state.plan, site.width, site.spec.classes), site.spec.classes
    request = ReleaseRequest(
        kind=KIND, event=noise.event, site=site.id, round=ROUND, classes=classes
    )

    def message(summand: Summand) -> bytes:
        numbers = state.party.mask(to_vector(summand.steps), received.parts)
        receipt = summand.receipt.id
        return MaskedRelease(site=site.id, round=ROUND, receipt=receipt, numbers=numbers).to_bytes()

    add_to_sum(
        request,
        lambda: rows,
        noise=noise,
        ledger=site.ledger,
        keep=lambda summand: replace(state, masked=message(summand)).write(site),
    )
    if wrong := state.party.wrongly_dealt:
        _note(site, Verb.ROUND, wrong, "expected the shares that their tags tell, got others")
    return _begun(site)


def unmask(site: Site, content: bytes) -> bytes:
    """Sign the list of these sites, or open the sum over them where enough have signed it.

    BadInput, and a note, at a second list.
    """
    state, asked = _begun(site), Survivors.from_bytes(content)
    party, sites = state.party, asked.sites
    try:
        signs = party.signing is not None and not asked.agreed
        answer = party.agree(sites) if signs else party.unmask(sites, asked.agreed)
    except BadInput as e:
        _note(site, Verb.UNMASK, sites, str(e))
        raise
    state.write(site)
    return answer


def close(site: Site) -> None:
    """Erase the secrets of a sum that is over, from the one file that has them; it may be repeated.

    Privacy: from then on nothing on this disk takes the masks between sites off a masked vector.
    """
    state = SumState.read(site)
    if state and not state.party.over:
        replace(state, party=state.party.erased()).write(site)


def _note(site: Site, verb: Verb, sites: tuple[int, ...], reason: str) -> None:
    """Note what was refused, of which sites."""
    path, asked = sum_refusals_file(site.home), sites[:MOST_SITES]
    append_note(path, verb=verb, asked=asked, reason=reason)


def _begun(site: Site) -> SumState:
    state = SumState.read(site)
    if state is None:
        raise BadInput("expected a secure sum that the site has announced keys for, got none")
    return state
