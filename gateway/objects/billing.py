"""The bytes that users hold, as usage records. Pure.

An object counts for each user that holds it, in full, from the moment on at which the first of the
user's sessions, jobs or names holds it to the end of the last one. A record has the byte-seconds of
one object and one user within one hour: it is made at the end of the hour, or of the holding. Its
columns, where there is no task:

    job      "held/" and the hour, UTC     first    a number of scope, object, user and begin
    name     HELD_NAME                     worker   the digest; merged away when it is rolled up
    pool     HELD_POOL                     price    of a GB-month

What is held for another site's calls has that site before its job, as their tasks have, and costs
nothing: no statement between sites has it.

The same part of a holding is the same record in each run: a gateway that takes over the object
host of one that was lost goes on from the records that are in the books, by what the object host
knows of begins (`resume`). Nothing is counted twice, and the tail is not lost.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

from federation.clocks import UtcS
from federation.objects.manifests import digest_text
from gateway.base.scopes import ObjectScope
from gateway.ledger.db.usage.records import UsageRecord
from gateway.objects.catalogue import HoldingChange, ObjectKey
from policies.costs.holding import (
    HOUR_S,
    HoldPrice,
    by_hours,
    byte_seconds,
    end_of,
    in_all,
    last_within,
)

HELD_NAME: Final = "objects held"
HELD_POOL: Final = "objects"
TARIFF: Final = "hold"
CLOSED_AT_ONCE: Final = 1_000  # holdings, at the end of an hour: the loop must not wait for all
LOOK_BACK_S: Final = 2 * HOUR_S  # the last run of a gateway has closed what is older
_BITS: Final = 63  # of a number in the books


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """What applies to all holdings: the price, and the group of a user."""

    price: HoldPrice
    group_of: Callable[[str], str] = lambda _user: ""

    def price_for(self, scope: ObjectScope) -> HoldPrice:
        """Return the price of objects of a scope: those of other sites' calls are free so far."""
        return HoldPrice(0, self.price.currency) if scope.sender else self.price


@dataclass(frozen=True, slots=True)
class HeldSoFar:
    """Byte-seconds of holdings, and their cost."""

    byte_s: int = 0
    cost_nanos: int = 0

    def __add__(self, other: "HeldSoFar") -> "HeldSoFar":
        return HeldSoFar(self.byte_s + other.byte_s, self.cost_nanos + other.cost_nanos)


@dataclass(slots=True)
class _Holding:
    """A user holds an object; `since_s` is the end of the booked part, `booked` its sum."""

    size: int
    since_s: UtcS
    booked: HeldSoFar = HeldSoFar()


def number_of(key: ObjectKey, user: str, since_s: UtcS) -> int:
    """Return the number of a part of a holding: another one has the same with no likelihood.

    Of a million records in an hour two are alike once in ten million hours.
    """
    text = "\0".join((key.scope, user, float(since_s).hex())).encode()
    found = blake2b(text + b"\0" + key.digest, digest_size=8).digest()
    return int.from_bytes(found, "big") >> (64 - _BITS)


class HoldingBooks:
    """The holdings of a site, and the records of them.

    Args:
        terms: by which records are made.

    Attributes:
        terms: those of now; what was held before they came is charged by the earlier ones.
    """

    def __init__(self, terms: HoldTerms) -> None:
        self.terms = terms
        self._older: list[tuple[UtcS, HoldTerms]] = []  # each until then; of time not yet booked
        self._held: dict[ObjectKey, dict[str, _Holding]] = {}
        self._closed_at_s = UtcS(0.0)
        self._due: deque[tuple[ObjectKey, str, UtcS]] = deque()  # up to then

    def change(self, change: HoldingChange, at_s: UtcS) -> list[UsageRecord]:
        """Take a holding that begins or ends; return the records of one that ends."""
        key, user = change.key, change.user
        if change.is_held:
            self._held.setdefault(key, {}).setdefault(user, _Holding(change.size, at_s))
            return []
        users = self._held.get(key, {})
        holding = users.pop(user, None)
        if not users:
            self._held.pop(key, None)
        return [] if holding is None else self._book(key, user, holding, at_s)

    def take_terms(self, terms: HoldTerms, at_s: UtcS) -> None:
        """Go over to other terms. The time until now is booked at the price of until now."""
        if terms.price != self.terms.price:
            self._older.append((at_s, self.terms))
            self._make_due(at_s)  # soon, as a crash would leave it to the new price
        self.terms = terms

    def _make_due(self, until_s: UtcS) -> None:
        self._due.extend(
            (key, user, until_s) for key, users in self._held.items() for user in users
        )

    def close(self, at_s: UtcS) -> list[UsageRecord]:
        """Return records of the last whole hour, and of the time before the price changed.

        They are of some holdings; those of others come at the next call.
        """
        hour_s = UtcS(at_s // HOUR_S * HOUR_S)
        if hour_s > self._closed_at_s:
            self._closed_at_s = hour_s
            self._make_due(hour_s)
        records: list[UsageRecord] = []
        for _ in range(min(CLOSED_AT_ONCE, len(self._due))):
            key, user, until_s = self._due.popleft()
            holding = self._held.get(key, {}).get(user)
            if holding is not None:
                records += self._book(key, user, holding, max(until_s, self._closed_at_s))
        if not self._due:
            self._older.clear()  # all that was held at these prices is booked
        return records

    def stop(self, at_s: UtcS) -> list[UsageRecord]:
        """Return the records of all holdings up to now: the gateway stops."""
        return [
            record
            for key, users in self._held.items()
            for user, holding in users.items()
            for record in self._book(key, user, holding, at_s)
        ]

    def resume(
        self,
        change: HoldingChange,
        begun_at_s: UtcS,
        booked: Mapping[int, UtcS],
        at_s: UtcS,
    ) -> None:
        """Go on with a holding of the last run of the gateway.

        Args:
            change: the holding.
            begun_at_s: when it began, by the object host.
            booked: when each record of the last LOOK_BACK_S and before ended, by `number_of`.
            at_s: now.
        """
        key, user = change.key, change.user
        since_s = max(begun_at_s, UtcS(at_s // HOUR_S * HOUR_S - LOOK_BACK_S))
        while (ended_at_s := booked.get(number_of(key, user, since_s))) is not None:
            since_s = end_of(ended_at_s)
        # It may have begun months ago: what is booked is worked out, not read hour by hour.
        # Its cost is shown at the price of now: the books have what was charged.
        price = self.terms.price_for(ObjectScope.read(key.scope))
        booked_part = HeldSoFar(*in_all(price, change.size, begun_at_s, since_s))
        self._held.setdefault(key, {})[user] = _Holding(change.size, since_s, booked_part)

    def so_far(self, key: ObjectKey, users: Iterable[str], at_s: UtcS) -> HeldSoFar:
        """Return the byte-seconds of users with an object, and their cost, until now."""
        found = HeldSoFar()
        for user in users:
            holding = self._held.get(key, {}).get(user)
            if holding is not None:
                found += holding.booked
                for since_s, until_s, price in self._spans(key, holding.since_s, at_s):
                    found += HeldSoFar(*in_all(price, holding.size, since_s, until_s))
        return found

    def _spans(
        self, key: ObjectKey, since_s: UtcS, until_s: UtcS
    ) -> Iterator[tuple[UtcS, UtcS, HoldPrice]]:
        """Yield [since, until) in parts of one price each."""
        scope = ObjectScope.read(key.scope)
        for ended_at_s, terms in (*self._older, (until_s, self.terms)):
            if since_s < (stop_s := min(ended_at_s, until_s)):
                yield since_s, stop_s, terms.price_for(scope)
                since_s = stop_s

    def _book(
        self, key: ObjectKey, user: str, holding: _Holding, until_s: UtcS
    ) -> list[UsageRecord]:
        """Return the records of a holding up to a moment, and count them as made."""
        records = []
        for since_s, stop_s, price in self._spans(key, holding.since_s, until_s):
            for part in by_hours(since_s, stop_s):
                byte_s = byte_seconds(holding.size, *part)
                found = HeldSoFar(byte_s, price.charge_nanos(byte_s))
                holding.booked += found
                if found.byte_s:
                    records.append(self._record(key, user, part, found, price))
        holding.since_s = max(holding.since_s, until_s)
        return records

    def _record(
        self,
        key: ObjectKey,
        user: str,
        part: tuple[UtcS, UtcS],
        found: HeldSoFar,
        price: HoldPrice,
    ) -> UsageRecord:
        since_s, until_s = part
        hour = datetime.fromtimestamp(float(since_s), UTC).strftime("%Y-%m-%dT%H")
        scope = ObjectScope.read(key.scope)
        return UsageRecord(
            job=scope.record_job("held", hour),
            first=number_of(key, user, since_s),
            tasks=0,
            attempt=1,
            user=user,
            project=scope.project,
            name=HELD_NAME,
            pool=HELD_POOL,
            worker=digest_text(key.digest),
            state="ok",
            started_at_s=since_s,
            ended_at_s=last_within(until_s),
            wall_ns=0,
            cpu_ns=0,
            peak_memory_bytes=0,
            price_nanos=price.nanos,
            currency=price.currency,
            tariff=TARIFF,
            cost_nanos=found.cost_nanos,
            group=self.terms.group_of(user),
            kind="held",
            held_byte_s=found.byte_s,
        )
