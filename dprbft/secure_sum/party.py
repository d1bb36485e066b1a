"""One site's part in a secure sum, from its keys to its answer at the unmasking.

| step | the site | what leaves |
|---|---|---|
| `keys` | draws its three seeds | public keys, a commitment, a draw of holders |
| `shares` | shares its pair seed and its self seed | two shares a holder, encrypted, and tags |
| `mask` | adds its masks to its vector | the masked vector: uniform, to who lacks the seeds |
| `agree` | signs the list of survivors, once | the signature; only where keys are signed |
| `unmask` | opens the sum | *one* share of each site: self seed of a survivor, else pair seed |

Every step may be repeated, and gives the same again; a step with other input than the first time is
refused, because two different answers together would open one site's vector. So the state has to be
on disk before an answer leaves: `to_bytes` after every step, and `from_bytes` where a killed site
goes on. Once the sum is known nobody needs the secrets any more: `erased` is a party without them.

Trust: at most t sites collude with the server (`Session`), and keys are signed by keys that sites
know of each other (`Signing`). Nobody opens anything before n - t sites have signed one list of
survivors: with t below n / 3 there is no second list that so many would sign. Without signatures
the server must forge no keys, and tell all sites of the same list.

Holders are all sites, or drawn (`dprbft.secure_sum.graph`). A site is told the keys of its
neighbours: the holders that it has drawn, and the sites that have drawn it.

Sources: Bonawitz et al. 2017, figure 4, with its consistency check; Bell et al. 2020.
"""

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, field, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dprbft.secure_sum.answer import UnmaskAnswer
from dprbft.secure_sum.holders import holders
from dprbft.secure_sum.keys import (
    DRAW_BYTES,
    SEED_BYTES,
    Announced,
    Signing,
    commitment,
    derived,
    key_pair,
    public_bytes,
    read_keys,
)
from dprbft.secure_sum.masks import Masked, Vector, pair_mask, self_mask, with_check
from dprbft.secure_sum.messages import bytes_by_site, hex_by_site
from dprbft.secure_sum.session import Session
from dprbft.secure_sum.shares import deal, dealt_to, split, tags
from panas.runtime.errors import BadInput

PAIR_KEY, SEAL_KEY = "pair key", "seal key"


@dataclass(frozen=True, repr=False)
class Seeds:
    """A site's three secrets: of its pair masks, of the shares' encryption, of its self mask."""

    pair: bytes
    seal: bytes
    own: bytes


@dataclass
class Party:
    """A site's secrets in one session, and what it has answered so far."""

    session: Session
    site: int
    signing: Signing | None = field(repr=False)
    _seeds: Seeds
    _announced: bytes = b""
    _known: dict[int, bytes] = field(default_factory=dict)  # keys of neighbours, and its own
    _sent: dict[int, bytes] = field(default_factory=dict, repr=False)  # dealt shares, by peer
    # of self and pair seeds, by site that masks were agreed with; empty where it was dealt wrong
    _held: dict[int, bytes] = field(default_factory=dict, repr=False)
    _masked: str = ""  # a digest of what was masked
    _survivors: tuple[int, ...] = ()

    @staticmethod
    def new(session: Session, site: int, signing: Signing | None = None) -> "Party":
        """Fresh seeds from the operating system; BadInput if the site does not take part.

        Args:
            session: of this sum, the same at all its sites.
            site: number of the site in it.
            signing: how its keys are signed; None where nothing is.
        """
        session.check_site(site)
        return Party(session, site, signing, Seeds(*(os.urandom(SEED_BYTES) for _ in range(3))))

    def keys(self) -> bytes:
        """What the site announces; the server passes it on to all others."""
        if not self._announced:
            pair = key_pair(self._seeds.pair, self.session, PAIR_KEY, self.site)
            seal_key = key_pair(self._seeds.seal, self.session, SEAL_KEY, self.site)
            committed = commitment(self._seeds.own, self.session, self.site)
            draw = derived(self._seeds.seal, self.session, "draw", self.site)[:DRAW_BYTES]
            drawn = draw if self.session.graph.sparse else b""
            about = Announced(public_bytes(pair), public_bytes(seal_key), committed, draw=drawn)
            content = about.signed_part(self.session, self.site)
            signature = self.signing.sign(content) if self.signing else b""
            self._announced = about.to_bytes() + signature
        return self._announced

    def _holders(self, site: int | None = None) -> tuple[int, ...]:
        """Who holds shares of this site's secrets, or of a neighbour's."""
        of, session = self.site if site is None else site, self.session
        content = self.keys() if of == self.site else self._known[of]
        return holders(session, of, Announced.from_bytes(content, of, session).draw)

    def shares(self, all_keys: Mapping[int, bytes]) -> dict[int, bytes]:
        """This site's shares for each of its holders that announced keys, encrypted, by site; and
        the tags of all, also of its own.

        `all_keys` are those of its neighbours, and its own. BadInput if they are of fewer than T
        holders, or of a site that is no neighbour, a signature is wrong, this site's own keys are
        not among them, or other keys came before.
        """
        self._check_open()
        verify = self.signing.verify if self.signing else None
        known, held_by = read_keys(self.session, all_keys, verify), self._holders()
        self.session.check_holders(len(known.keys() & set(held_by)), "keys")
        if all_keys.get(self.site) != self.keys():
            raise BadInput(
                f"expected the own keys of site {self.site} among all, got others; the server has "
                "changed them, ask its administrator"
            )
        if self._sent and self._known != dict(all_keys):
            raise BadInput("expected the keys of the first time, got others; start a new run")
        if not self._sent:
            for site, announced in known.items():
                theirs = holders(self.session, site, announced.draw)
                if site not in held_by and self.site not in theirs:
                    raise BadInput("expected keys of neighbours in a secure sum, got others")
            self._known = dict(all_keys)
            self._deal({site: known[site] for site in held_by if site in known})
        return dict(self._sent)

    def _deal(self, known: Mapping[int, Announced]) -> None:
        """Split the two seeds among all holders; those that announced keys are sent theirs."""
        opens, everybody = self.session.graph.opens, self._holders()
        pair, own = (split(s, opens, everybody) for s in (self._seeds.pair, self._seeds.own))
        key = key_pair(self._seeds.seal, self.session, SEAL_KEY, self.site)
        both = {site: own[site] + pair[site] for site in known}
        self._held = {self.site: both[self.site]}
        self._sent = {
            site: deal(both[site], self.session, (self.site, site), key, of.seal)
            if site != self.site
            else tags(both[site], self.session, (site, site))
            for site, of in known.items()
        }

    def mask(self, vector: Vector, received: Mapping[int, bytes]) -> Masked:
        """The vector and its check number under masks, one number longer than the vector.

        `received` holds the encrypted shares for this site, by who sent them, and nothing by its
        other neighbours that have sent some. Masks are agreed with all these, also with one whose
        shares are not what its tags say: they are left out of the answer. BadInput if with this
        site fewer than T holders have sent some, or, of all sites, right ones; or if another vector
        or other shares came before.

        Privacy: to whoever lacks the seeds the result is uniform, whatever the vector.
        """
        self._check_open()
        if vector.dtype != np.uint64 or vector.ndim != 1:
            raise BadInput(f"expected a vector of uint64, got {vector.dtype} {vector.shape}")
        if not self._sent or self.site in received or not received.keys() <= self._known.keys():
            raise BadInput("expected shares of the other sites that announced keys, got others")
        self.session.check_holders(len(received.keys() & self._sent.keys()) + 1, "shares")
        digest = hashlib.sha256(vector.astype("<u8").tobytes())
        for site in sorted(received):
            digest.update(site.to_bytes(4, "big") + received[site])
        if self._masked and self._masked != digest.hexdigest():
            raise BadInput(
                "expected the vector and the shares that were masked before, got others: two "
                "vectors under one mask would show their difference; start a new run"
            )
        if not self._masked:
            key = key_pair(self._seeds.seal, self.session, SEAL_KEY, self.site)
            held = {site: self._opened(site, received[site], key) for site in received}
            if not self.session.graph.sparse:
                self.session.check_enough(sum(map(bool, held.values())) + 1, "right shares")
            self._held = {self.site: self._held[self.site], **held}
        masked = self._under_masks(with_check(vector, self.session))
        self._masked = digest.hexdigest()
        return masked

    def _opened(self, site: int, sealed: bytes, key: X25519PrivateKey) -> bytes:
        if self.site not in self._holders(site):
            return b""
        public = Announced.from_bytes(self._known[site], site, self.session).seal
        return dealt_to(sealed, self.session, (site, self.site), key, public)

    def _under_masks(self, vector: Masked) -> Masked:
        total = vector + self_mask(self._seeds.own, self.session, self.site, len(vector))
        key = key_pair(self._seeds.pair, self.session, PAIR_KEY, self.site)
        for site in self._held:
            if site != self.site:
                peer = site, Announced.from_bytes(self._known[site], site, self.session).pair
                total += pair_mask(key, self.session, self.site, peer, len(vector))
        return total

    @property
    def wrongly_dealt(self) -> tuple[int, ...]:
        """The sites whose shares were not what their tags say."""
        empty = (site for site in sorted(self._held) if not self._held[site])
        return tuple(site for site in empty if self.site in self._holders(site))

    def agree(self, survivors: Collection[int]) -> bytes:
        """This site's signature of the list of survivors, for all others; empty without keys.

        BadInput as `unmask`, which takes this list and no other from now on.
        """
        self._settle(survivors)
        return self.signing.sign(self._agreed_part()) if self.signing else b""

    def unmask(
        self, survivors: Collection[int], agreed: Mapping[int, bytes] | None = None
    ) -> bytes:
        """The shares that open the sum over `survivors`: those whose masked vectors arrived.

        `agreed` is what `agree` gave at each of n - t of them or more; not needed without signing.

        BadInput if they are fewer than n - t, or hold fewer than T of this site's holders or not
        itself, a neighbour among them sent no shares, another list came before, or fewer than n - t
        have signed this one: two lists would open a vector of a single site.
        """
        self._settle(survivors)
        self._check_agreed(agreed or {})
        held, asked = self._held, self._survivors
        right = {s: share for s, share in held.items() if share}
        of_self = {s: share[:SEED_BYTES] for s, share in right.items() if s in asked}
        of_pair = {s: share[SEED_BYTES:] for s, share in right.items() if s not in asked}
        return UnmaskAnswer(of_self, of_pair).to_bytes()

    def _agreed_part(self) -> bytes:
        sites = b"".join(site.to_bytes(4, "big") for site in self._survivors)
        return b"secure sum survivors" + self.session.context + sites

    def _check_agreed(self, agreed: Mapping[int, bytes]) -> None:
        if self.signing is None:
            return
        content, verify = self._agreed_part(), self.signing.verify
        good = [s for s in self._survivors if s in agreed and verify(s, content, agreed[s])]
        self.session.check_enough(len(good), "signatures of one list of survivors")

    def _settle(self, survivors: Collection[int]) -> None:
        self._check_open()
        asked = tuple(sorted(set(survivors)))
        near = {*self._holders(), *self._known} if self._masked else set()
        strange = set(asked) - set(self.session.sites) | (near & set(asked)) - self._held.keys()
        if not self._masked or self.site not in asked or strange:
            raise BadInput(
                "expected to unmask a sum over sites that shared their secrets, this one among "
                "them, got another; start a new run"
            )
        self.session.check_enough(len(asked), "masked vectors")
        self.session.check_holders(len({*self._holders()} & {*asked}), "masked vectors")
        if self._survivors and self._survivors != asked:
            raise BadInput(
                "expected one unmasking of a secure sum, got a second with other sites; two sums "
                "would show a single site's release, start a new run"
            )
        self._survivors = asked

    @property
    def over(self) -> bool:
        """Whether its secrets are erased."""
        return not self._seeds.pair

    def erased(self) -> "Party":
        """The same without any secret: it answers nothing more, and knows what it has answered."""
        announced, nothing = self.keys(), Seeds(b"", b"", b"")
        return replace(self, _announced=announced, _seeds=nothing, _known={}, _sent={}, _held={})

    def _check_open(self) -> None:
        if self.over:
            raise BadInput(
                "expected nothing more of a secure sum that is over, whose secrets are erased, "
                "got a request; start a new run"
            )

    def to_bytes(self) -> bytes:
        """All of the state, secrets included: keep it private on this site's disk."""
        session = self.session
        state = {
            "session": [session.id.hex(), session.sites, session.missing],
            "site": self.site,
            "seeds": [seed.hex() for seed in astuple(self._seeds)],
            "announced": self._announced.hex(),
            "known": hex_by_site(self._known),
            "sent": hex_by_site(self._sent),
            "held": hex_by_site(self._held),
            "masked": self._masked,
            "survivors": self._survivors,
        }
        return json.dumps(state).encode()

    @staticmethod
    def from_bytes(content: bytes, signing: Signing | None = None) -> "Party":
        """The party that `to_bytes` wrote; it goes on to the same masks. BadInput if it is none."""
        try:
            state = json.loads(content)
            id, sites, missing = state["session"]
            known, sent, held = (
                bytes_by_site(state[name], "a state") for name in ("known", "sent", "held")
            )
            return Party(
                Session(bytes.fromhex(id), tuple(sites), missing),
                state["site"],
                signing,
                Seeds(*(bytes.fromhex(seed) for seed in state["seeds"])),
                bytes.fromhex(state["announced"]),
                known,
                sent,
                held,
                state["masked"],
                tuple(state["survivors"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise BadInput(
                "expected the state of a secure sum, got a damaged file; start a new run"
            ) from e
