"""The ledger of one site's data: what was spent of its budget, written before the data are touched.

One append-only file for all runs (`panas.privacy.ledger.chain` says which changes it detects).
`charge` forces a *reservation* to disk before it returns the receipt without which nothing is
released (`panas.privacy.release.gate`). A reservation is never given back: a process that dies has
spent what it charged. A release that died before anything left may be made again for the same
charge. An unprotected event makes the total infinite; only an account that allows it may have one,
and its protected part is bounded all the same.

What a ledger refuses: shares that a budget for life does not hold, events that fit none.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from panas.privacy.accounting.epsilon import ACCOUNTANT
from panas.privacy.accounting.events import ADD_OR_REMOVE, Relation, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import UNIT, Account, Allotment, number, within
from panas.privacy.ledger.book import Book, Note, book_of
from panas.privacy.ledger.charge import ISSUER, Charge, Receipt, covers, number_of
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import exclusive


def check_share(account: Account, run: str, share: Budget, path: Path) -> None:
    """Refuse a share that the budget for life does not hold.

    Args:
        account: of the ledger, with its charges so far.
        run: name of the run that asks.
        share: what it asks for; its delta may differ from the account's.
        path: the ledger's file, for the message.
    """
    if not account.admits(share):
        own = share.at(account.budget.delta)
        there = "" if own == share else f", which is epsilon {share.epsilon:g} at {share.delta:g}"
        raise BudgetExhausted(
            f"expected a share of at most epsilon {account.left():.3f} for run {run} on the data "
            f"of {path.parent}, which is left of {account.budget.epsilon:g} for life, got "
            f"{own.epsilon:g} at delta {own.delta:g}{there}; lower epsilon"
        )


def check_allotted(account: Account, allotment: Allotment, share: Budget) -> None:
    """Refuse a share that one hub's part of the budget does not hold.

    Args:
        account: of the ledger, with its charges so far.
        allotment: of the hub that asks.
        share: what its run asks for.
    """
    own = allotment.of(account)
    if not own.admits(share):
        raise BudgetExhausted(
            f"expected a share of at most epsilon {own.left():.3f}, which is left of "
            f"{own.budget.epsilon:g} for hub {allotment.hub} (site.toml), got "
            f"{share.at(own.budget.delta).epsilon:g} at delta {own.budget.delta:g}; lower epsilon"
        )


def check_fits(account: Account, charge: Charge, path: Path) -> None:
    """Refuse an event for which the account has no leave, no run or no budget.

    Args:
        account: of the ledger, with its charges so far.
        charge: what comes next; its run, if it names one, has begun.
        path: the ledger's file, for the message.
    """
    if charge.run and charge.run not in account.shares:
        raise BadInput(
            f"expected a run that has begun on {path}, got {charge.run!r}; begin it with its share "
            "of the budget"
        )
    if isinstance(charge.event, Unprotected):
        if not account.allow_unprotected:
            raise BadInput(
                f"expected every event on {path} to be protected, got {charge.mechanism} in the "
                f"{charge.phase}, which has epsilon infinity; allow it with "
                "allow_unprotected (of a run privacy.allow_unprotected=true, or preset = paper)"
            )
        return
    _check_total(account, charge, f"the data of {path.parent}")
    if charge.run:
        _check_total(account.of_run(charge.run), charge, f"run {charge.run} on {path.parent}")


def _check_total(account: Account, charge: Charge, what: str) -> None:
    """Refuse an event that does not fit the budget of an account, or the share of a run's."""
    # Beside other runs, the parts that this charge does not concern may have become dearer too.
    alone = {e.charge.run for e in account.entries} <= {charge.run}
    concerned = {leaf: within(leaf, charge.subset) for leaf in account.leaves}
    total = max(
        account.price([*account.events_on(leaf, charge.run), *[charge.event] * concerned[leaf]])
        for leaf in account.leaves
        if concerned[leaf] or not alone
    )
    if not total <= account.budget.epsilon:
        raise BudgetExhausted(
            f"expected {what} to stay within epsilon {account.budget.epsilon:g}, got {total:.3f} "
            f"with the next {charge.mechanism}; stopped before it, the last valid model is kept; "
            "raise epsilon or plan fewer rounds"
        )


class Ledger:
    """The ledger at `path`; safe to use from several processes and threads.

    Args:
        path: its file; the head lies beside it.
        run: name of the run that charges through this object, once it has begun; "" for none.
        id: 32 hexadecimal digits that it is called by if it is not there yet; "": drawn at random.
            Where the user's state folder knows a ledger of this id, an empty one is an older copy.
        allotment: what this run and others of its hub may spend together; None: all that is left.

    >>> import tempfile
    >>> import panas
    >>> charge = panas.Charge(
    ...     event=panas.Gaussian(4.0), phase="release", mechanism="label counts",
    ...     recipient="the server", sensitivity=1.0,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = panas.Ledger(f"{folder}/ledger.jsonl")
    ...     _ = ledger.open_account(panas.Budget(8.0, 1e-5), replicated=False)
    ...     with ledger.charge(charge):
    ...         pass  # what reads the samples
    ...     round(ledger.account().spent(), 2)
    0.93
    """

    def __init__(
        self, path: str | Path, run: str = "", id: str = "", allotment: Allotment | None = None
    ) -> None:
        self.path, self.run, self.given, self.allotment = Path(path), run, id, allotment

    def open_account(
        self,
        budget: Budget,
        *,
        allow_unprotected: bool = False,
        relation: Relation = ADD_OR_REMOVE,
        subsets: tuple[str, ...] = ("train",),
        unit: str = UNIT,
        replicated: bool = True,
    ) -> Account:
        """Note the terms once; opening the account again on the same terms changes nothing.

        Args:
            budget: what may be spent on each subset, by all runs together.
            allow_unprotected: whether events without protection may happen.
            relation: which datasets are neighbours, for everything on this account.
            subsets: names of disjoint subsets of the samples; see `panas.privacy.ledger.account`.
            unit: whose privacy the budget bounds, in words.
            replicated: whether the user's state folder keeps its lines, so that a restored backup
                is noticed (`panas.privacy.ledger.replica`); not of samples that are no secret.

        Raises:
            BadInput: if there is an account on other terms, or this copy lacks charges.
        """
        if not subsets or len(set(subsets)) < len(subsets) or not all(subsets):
            raise BadInput(f"expected different names of subsets, got {subsets}; name each once")
        terms = Account(budget, allow_unprotected, (), relation, subsets, unit)
        self.check_current()
        book = self._read()
        if book.terms is None:
            with self._locked() as book:  # another object, if another thread was first
                if book.terms is None:
                    book.replicated = replicated
                    book.append({"kind": "account", **terms.to_json()})
        if book.terms != terms:
            assert book.terms is not None
            raise BadInput(
                f"expected {self.path} to keep its budget of {book.terms.terms}, got "
                f"{terms.terms}; give the same again"
            )
        return self.account()

    def begin_run(self, run: str, share: Budget) -> "Ledger":
        """Ask for a share of the budget for life; returns the ledger that this run charges.

        Opening a run of the same name and share again resumes it; before it has charged anything,
        it may ask for another share. How a share is weighed against
        what was charged before: `panas.privacy.ledger.account`.

        Raises:
            BudgetExhausted: if the budget for life does not hold the share; nothing is written.
            BadInput: if the run has begun with another share, or this copy lacks charges.
        """
        if not run:
            raise BadInput("expected a name of a run, got none; give it one")
        with self._locked() as book:
            account = book.account()
            charged = any(e.charge.run == run for e in account.entries)
            begun = account.shares[run] if charged else share
            if account.shares.get(run) != begun:
                if self.allotment:
                    check_allotted(account, self.allotment, share)
                check_share(account, run, share, self.path)
                terms = {"epsilon": number(share.epsilon), "delta": share.delta}
                book.append({"kind": "run", "run": run, "time": time.time(), **terms})
        if begun != share:
            raise BadInput(
                f"expected run {run!r} on {self.path} with epsilon {begun.epsilon:g} at delta "
                f"{begun.delta:g}, as it began, got {share.epsilon:g} at {share.delta:g}; give the "
                "same, or begin a run of another name"
            )
        return Ledger(self.path, run, self.given, self.allotment)

    def charge(self, charge: Charge, *, resumes: bool = False) -> Receipt:
        """Reserve an event on the account, on disk before this returns.

        Use it as `with ledger.charge(...) as receipt:` around what touches the data. `resumes`: an
        earlier charge of this run for the same, whose block never ended, pays for this one, and
        nothing is charged, `MOST_AGAIN` times at most. That is sound where what leaves does so
        after the block alone: then nothing has left for that charge. The earlier block cannot end
        any more.

        Raises:
            BudgetExhausted: if the event does not fit the run's share, or what is left for life;
                the ledger is unchanged.
            BadInput: if there is no account, or this copy lacks charges, or its run has not
                begun, or the subset is not declared, or the event is unprotected without leave,
                or has no price under the account's relation.
        """
        charge = replace(charge, run=charge.run or self.run)
        with self._locked(charging=True) as book:
            account = book.account()
            account.check_subset(charge.subset)
            begun = [e for e in account.entries if e.resumable and covers(e.charge, charge)]
            if resumes and begun:
                entry = begun[-1]
                book.append({"kind": "again", "id": entry.id, "time": time.time()})
                return self._receipt(book, entry.id, entry.charge)
            check_fits(account, charge, self.path)
            if self.allotment and not isinstance(charge.event, Unprotected):
                what = f"the runs of hub {self.allotment.hub} on {self.path.parent}"
                _check_total(self.allotment.of(account), charge, what)
            line = {"kind": "charge", "time": time.time(), "count": len(account.entries) + 1}
            line |= charge.to_json(relation=account.relation) | {"accountant": ACCOUNTANT}
            id = number_of(book.name, line)
            book.append({"kind": "charge", "id": id, **line})
            return self._receipt(book, id, charge)

    def _receipt(self, book: Book, id: str, charge: Charge) -> Receipt:
        return Receipt(ISSUER, id, charge, partial(self._commit, book.begun_again(id)))

    def _commit(self, resumed: int, id: str) -> None:
        with self._locked() as book:
            if book.begun_again(id) != resumed:
                raise BadInput(
                    f"expected a receipt that is still good in {self.path}, got one of a release "
                    "that was begun again since; take the newer one"
                )
            if id not in book.numbers:
                raise BadInput(
                    f"expected the charge of this receipt in {self.path}, got none; put it back"
                )
            book.append({"kind": "commit", "id": id, "time": time.time()})

    def end(self, id: str) -> None:
        """Note that what a charge paid for is on disk, if nobody has: nothing else may leave."""
        if not any(e.id == id and e.finished for e in self.account().entries):
            self._commit(self._read().begun_again(id), id)

    def account(self) -> Account:
        """The account; BadInput if it was never opened, or the file was changed."""
        return self._read().account()

    @property
    def is_open(self) -> bool:
        """Whether the account was opened."""
        return self._read().terms is not None

    @property
    def id(self) -> str:
        """What this ledger is called wherever it lies; a copy has the same. BadInput if the account
        was never opened."""
        book = self._read()
        book.account()
        return book.name

    @property
    def notes(self) -> tuple[Note, ...]:
        """When it went on where nothing was known of it, and when it got missing lines back."""
        return tuple(self._read().notes)

    @property
    def is_unknown(self) -> bool:
        """Whether it was charged, and the user's state folder, which should, has nothing of it."""
        book = self._read()
        return bool(book.entries and book.replicated and not book.replica.begun)

    @property
    def is_behind(self) -> bool:
        """Whether this copy lacks what another was charged: it can be read only."""
        return self._read().is_behind and self._with_lock().is_behind

    def check_current(self) -> None:
        """Refuse a copy that lacks what another was charged (BadInput)."""
        if self._read().is_behind:  # perhaps since another process has written meanwhile
            self._with_lock().check_current()

    def accept_restored(self) -> int:
        """Charge what this copy lacks: all lines of the replica that are not here.

        Returns how many charges that were. A copy that only ends too early becomes the very ledger
        that it was; one that has gone on by itself keeps its own charges, too. What was acted upon
        counts, even beyond the budget. After a death within it, do it again.

        Raises:
            BadInput: if nothing is missing, or the replica was changed.
        """
        with exclusive(self.path):
            book = self._book()
            book.refresh(locked=True)
            with book.replica.held():
                if not book.is_behind:
                    raise BadInput(
                        f"expected a ledger at {self.path} that lacks charges, as of a restored "
                        "backup, got one that has all that are known here; leave out --restored"
                    )
                before = len(book.entries)
                for record in book.replica.missing(book.chain):
                    book.restore(record)
                result = len(book.entries) - before
                book.replica.become(book.chain)
                book.append(book.note("restored", result))
        return result

    @property
    def begun(self) -> int:
        """How often a run has begun, or asked for another share: a line each."""
        return self._read().begun

    def head(self) -> tuple[int, str]:
        """Number and hash of the last line, to be noted elsewhere for `check_holds`."""
        return self._read().chain.head()

    def check_holds(self, count: int, digest: str) -> None:
        """Refuse a ledger that does not continue the one whose `head` was noted (BadInput)."""
        chain = self._read().chain
        if not chain.holds(count, digest):
            self.check_current()  # which knows a remedy
        chain.check_holds(count, digest)

    def _book(self) -> Book:
        book = book_of(self.path.absolute())
        book.given = self.given or book.given
        return book

    def _read(self) -> Book:
        book = self._book()
        book.refresh(locked=False)
        return book

    def _with_lock(self) -> Book:
        """Its book as the lock of the file shows it: nothing is being written."""
        book = self._book()
        with exclusive(self.path):
            book.refresh(locked=True)
        return book

    @contextmanager
    def _locked(self, *, charging: bool = False) -> Iterator[Book]:
        book = self._book()
        with exclusive(self.path):
            book.refresh(locked=True)
            with book.guarded(charging=charging):
                yield book
