"""Holdings of objects and the books: they are counted as the catalogue tells of them.

The object host notes since when each user holds each object. A gateway that takes over the host of
the last run reads from the books which parts of these holdings are in them, and goes on from there.
Until it has read that, changes wait here with their times.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import trio

from federation.clocks import UtcS
from federation.errors import GridError
from federation.messages.objects import NoteHolder
from gateway.ledger.db.usage.records import UsageRecord
from gateway.objects.billing import LOOK_BACK_S, HeldSoFar, HoldingBooks, HoldTerms
from gateway.objects.catalogue import HeldObject, HoldingChange, ObjectCatalogue, ObjectKey
from policies.costs.holding import HOUR_S, HoldPrice

RESUMED_AT_ONCE: Final = 100  # holdings of the last run, in one turn of the loop


class ObjectBooks(Protocol):
    """The books and the budgets, as objects need them."""

    def terms(self) -> HoldTerms:
        """Return the terms on which bytes are held now."""

    def book(self, records: Iterable[UsageRecord]) -> None:
        """Write records, and charge them to budgets."""

    async def booked(self, start_at_s: UtcS) -> Mapping[int, UtcS]:
        """Return when each record of held bytes that ended since then did, by `first`.

        Raises GridError where the books can't be read.
        """

    def objection(self, user: str, scope: str) -> str:
        """Return why no budget pays for holding objects of a scope, or an empty text."""


class Holdings:
    """The holdings of a site.

    Args:
        catalogue: tells of changes.
        books: take the records.
        utc_s: the time of day.
        say: takes lines for the operator.
        order: takes messages for the object host.
    """

    def __init__(
        self,
        catalogue: ObjectCatalogue,
        books: ObjectBooks,
        utc_s: Callable[[], UtcS],
        say: Callable[[str], None],
        order: Callable[[NoteHolder], None],
    ) -> None:
        self._catalogue = catalogue
        self._books = books
        self._utc_s = utc_s
        self._say = say
        self._order = order
        self._made = HoldingBooks(books.terms())
        self._begun: dict[ObjectKey, dict[str, UtcS]] = {}  # of the last run, by the object host
        # Changes since then, until it is known what is booked; None: nothing is waited for.
        self._waiting: deque[tuple[HoldingChange, UtcS]] | None = None
        self._notes_holders = False  # whether the object host does: one of before does not

    @property
    def price(self) -> HoldPrice:
        """The price of holding objects."""
        return self._made.terms.price

    def so_far(self, held: HeldObject, users: Iterable[str] | None = None) -> HeldSoFar:
        """Return the byte-seconds of an object and their cost until now: of these users, or all."""
        chosen = held.holders if users is None else users
        return self._made.so_far(held.key, chosen, self._utc_s())

    def account(self, at_s: UtcS | None = None) -> None:
        """Count begins and ends: as of now, or of the moment that the object host knows."""
        changes, self._catalogue.changes = self._catalogue.changes, []
        at_s = self._utc_s() if at_s is None else at_s
        records: list[UsageRecord] = []
        for change in changes:
            self._note(change, at_s)
            if self._waiting is not None:
                self._waiting.append((change, at_s))
            else:
                records += self._made.change(change, at_s)
        self._book(records)

    def _note(self, change: HoldingChange, at_s: UtcS) -> None:
        """Let the object host know of it, for the next run; it knows the first one itself."""
        held = self._catalogue.find(change.key.scope, change.key.digest)
        if not self._notes_holders or held is None:
            return
        if not (change.is_held and len(held.holders) == 1 and held.put_at_s == at_s):
            since_s = float(at_s) if change.is_held else None
            self._order(NoteHolder(change.key.scope, change.key.digest, change.user, since_s))

    def close(self) -> None:
        """Book the last hour, and the time until a new price, a part of them at each call."""
        if self._waiting is None:
            now_s = self._utc_s()
            self._made.take_terms(self._books.terms(), now_s)
            self._book(self._made.close(now_s))

    def stop(self) -> None:
        """Book everything up to now: the gateway stops."""
        self.account()
        if self._waiting is None:  # else the next run counts it
            self._book(self._made.stop(self._utc_s()))

    def _book(self, records: list[UsageRecord]) -> None:
        if records:
            self._books.book(records)

    # --- the object host of the last run ---------------------------------------------------------

    def told(self, key: ObjectKey, user: str, since_s: UtcS) -> None:
        """Take from an object host that is taken over since when a user holds an object."""
        self._begun.setdefault(key, {})[user] = since_s

    def host_ready(self, *, notes_holders: bool) -> None:
        """Begin with an object host, which has told of all its objects.

        They wait for all users that held them, and for no user that had let go of them.
        """
        self._waiting = deque() if len(self._catalogue) else None
        for held in list(self._catalogue) if notes_holders else ():
            begun = self._begun.get(held.key, {})
            for user in begun:
                self._catalogue.expect(held.key, user)
            if held.user not in begun:
                self._catalogue.expect_no_more(held.key, held.user)
        self.account()  # the object host knows all this
        self._notes_holders = notes_holders

    def host_ended(self) -> None:
        """End all holdings: the object host has ended, and its objects are lost."""
        self._begun.clear()
        self._notes_holders = False
        waiting, self._waiting = self._waiting or deque(), None
        for change, at_s in waiting:
            self._book(self._made.change(change, at_s))
        self.account()

    async def resume(self, ready: trio.Event) -> None:
        """Go on with the holdings of the last run, once the host is ready."""
        await ready.wait()
        if self._waiting is None:
            return
        try:
            since_s = UtcS(self._utc_s() // HOUR_S * HOUR_S - LOOK_BACK_S)
            booked = await self._books.booked(since_s)
        except GridError as error:
            self._say(f"the books of held objects can't be read: {error}")
            booked = {}
        # One turn of the loop takes a part of them: leases and heartbeats must not wait for all.
        # What changes meanwhile is put behind them. If the host ends, `host_ended` takes the rest.
        waiting = self._waiting
        while waiting is not None and waiting is self._waiting and waiting:
            self._go_on(waiting, booked)
            await trio.lowlevel.checkpoint()
        if waiting is self._waiting:
            self._waiting = None
            self._begun.clear()

    def _go_on(
        self, waiting: deque[tuple[HoldingChange, UtcS]], booked: Mapping[int, UtcS]
    ) -> None:
        """Take the first of the changes that wait, in their order."""
        for _ in range(min(RESUMED_AT_ONCE, len(waiting))):
            change, at_s = waiting.popleft()
            begun_at_s = self._begun.get(change.key, {}).pop(change.user, None)
            if change.is_held and begun_at_s is not None:
                self._made.resume(change, begun_at_s, booked, at_s)
            else:
                self._book(self._made.change(change, at_s))
