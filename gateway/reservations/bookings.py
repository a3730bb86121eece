"""The reservations of a site's pools: booked, stored, cancelled and billed. No loops, no waiting.

policies.reservations.reservations decides what is allowed and what it costs; this module applies
that to the pools, the store and the broker. Each change is written whole (`ReservationKept`) before
anybody is told, and the broker learns of it through its timetable.

A reservation is billed when the last task handed out under it has ended, so that all of its usage
is in the books by then. The usage is read there, by the name of its tariff.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, NamedTuple

from federation.clocks import UtcS
from federation.messages.contracts import Delivery, Verdict
from federation.words import count
from gateway.base.store_lookup import StoreLookup
from gateway.config.site import PoolConfig, SiteConfig
from gateway.ledger.db.contracts.records import (
    ContractEnded,
    ContractOpened,
    ContractSide,
    posted,
    settled,
)
from gateway.ledger.db.records import Record
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.usage.records import Dimension, UsageRecord, is_for_its_user
from gateway.ledger.db.usage.store import UsageStore
from gateway.ledger.store.store import Store
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.effects import Effect, Remark, Write
from policies.access.entitlements import Work
from policies.access.windows import WindowSpan
from policies.parties import Owner, known_party
from policies.reservations.reservations import (
    BOOKED_MAX,
    NAMED,
    ONES_MAX,
    OPEN,
    CantReserve,
    Reservation,
    ReservationBook,
    ReservationRules,
    ReservationState,
    ReservationUse,
    check_span,
    price_over,
)

ID_BYTES: Final = 8
OVER_MAX: Final = 1_000
BILL: Final = "reserved-"  # prefix of its id: the job name under which the bill is booked


class Bookings:
    """The reservations of our pools.

    Args:
        broker, store: read only.
        random_bytes: the source of randomness for ids.
        recall: asks the store for the usage of a reservation.
        perform: carries out the effects that follow from an answer of the store.
    """

    def __init__(
        self,
        config: SiteConfig,
        broker: Broker,
        store: Store,
        *,
        random_bytes: Callable[[int], bytes],
        recall: StoreLookup,
        perform: Callable[[Iterable[Effect]], object],
    ) -> None:
        self._site = config.name
        self._broker = broker
        self.reserved = broker.reserved  # held in budgets
        self._store = store
        self._random_bytes = random_bytes
        self._recall = recall
        self._perform = perform
        self.open: dict[str, Reservation] = {}
        self.over: dict[str, Reservation] = {}  # ended lately: other sites may ask for the outcome
        self._steps: dict[str, int] = {}
        self._billing: set[str] = set()
        self.has_changed = False  # since the timetable was told
        self.take_in(config)

    def take_in(self, config: SiteConfig) -> None:
        """Take in a changed configuration of the same pools."""
        self._owner = config.reservations
        self._pools: Mapping[str, PoolConfig] = {pool.name: pool for pool in config.pools}
        self.has_changed = True

    @property
    def rules(self) -> ReservationRules:
        """The reservation rules; the defaults without [reservations], to keep existing bookings."""
        return self._owner or ReservationRules()

    def recover(self, kept: Iterable[ReservationKept]) -> None:
        """Restore the reservations that the previous gateway process left in the store."""
        for row in kept:
            if row.side == "sell":
                self._put(reservation_of(row))
                self._steps[row.reservation] = row.step
        self.has_changed = True

    # --- booking -------------------------------------------------------------------------------

    def ask(
        self,
        slots: int,
        from_s: UtcS,
        until_s: UtcS,
        who: str,
        by: Owner,
        utc_s: UtcS,
        pool: str = "",
        *,
        is_operators: bool = False,
    ) -> Reservation:
        """Quote a reservation, with its price, in `pool` or in any of our pools.

        Of the pools with room, choose the cheapest, then the first. `is_operators`: the operator
        reserves for a group, a project or the site, so the entitlements of its maker don't count.
        Raises CantReserve.
        """
        if self._owner is None:
            raise CantReserve(
                f"{self._site} takes no reservations: its configuration has no [reservations]"
            )
        if pool and pool not in self._pools:
            known = ", ".join(sorted(self._pools))
            raise CantReserve(f"pool {pool[:60]!r} not found at {self._site}; its pools: {known}")
        check_span(self._owner, slots, from_s, until_s, utc_s)
        if len(self.open) >= BOOKED_MAX:
            raise CantReserve(f"too many open reservations here: {BOOKED_MAX:,} is the limit")
        party = known_party(who)
        own = sum((each.by.site, each.by.user) == (by.site, by.user) for each in self.open.values())
        if own >= ONES_MAX:
            raise CantReserve(f"too many open reservations of {by.user} here: {own} of {ONES_MAX}")
        found, errors = [], []
        for name in (pool,) if pool else self._pools:
            try:
                if not is_operators:
                    self._check_entitled(name, by, slots, (from_s, until_s))
                self.book_of(name, is_operators=is_operators).check(
                    by, slots, from_s, until_s, utc_s
                )
            except CantReserve as error:
                errors.append(f"pool {name}: {error}")
                continue
            found.append((self._price(name, from_s, until_s, by.site), name))
        if not found:
            raise CantReserve("; ".join(errors[:5]))
        (price_nanos, currency), name = min(found, key=lambda each: each[0][0])
        made = Reservation(
            self._random_bytes(ID_BYTES).hex(),
            name,
            party,
            slots,
            from_s,
            until_s,
            price_nanos,
            currency,
            by,
            made_at_s=utc_s,
            held_until_s=utc_s + self._owner.hold_s,
            unused_factor=self._owner.unused_factor,
            cancel_factor=self._owner.cancel_factor,
        )
        objection = self.reserved.objection(by, made.total_nanos, currency)
        if objection:
            raise CantReserve(objection)
        return made

    def _check_entitled(self, pool: str, by: Owner, slots: int, span: tuple[UtcS, UtcS]) -> None:
        """Refuse a reservation that entitlements forbid its maker in any part of its time."""
        rules, work = self._broker.entitling.rules, Work(by)
        for each in self._pools[pool].plan.spans(*span):
            verdict = rules.verdict(work, pool, each.named)
            if not verdict.is_yes:
                raise CantReserve(rules.explain(verdict, work))
            if slots > verdict.slots_max:
                most = count(int(verdict.slots_max), "slot")
                raise CantReserve(f"{by.user} may have at most {most} ({verdict.rule})")

    def book_of(self, pool: str, *, is_operators: bool = False) -> ReservationBook:
        """The reservations and capacity of a pool, including the slots that can be started.

        `is_operators`: as in `ask`.
        """
        made = [each for each in self.open.values() if each.pool == pool]
        total = 0 if self._broker.draining else self._broker.occupancy.slots_in_all(pool)
        entitling = self._broker.entitling

        def entitled(whose: Owner, span: WindowSpan) -> float:
            work = Work(whose, is_operators=is_operators)
            return entitling.slots_max(work, pool, span.named)

        return ReservationBook(self._pools[pool].plan, total, self.rules, made, entitled)

    def _price(self, pool: str, from_s: UtcS, until_s: UtcS, site: str) -> tuple[int, str]:
        prices = self._pools[pool].prices
        now = self._broker.prices.get(pool)
        level = now.level if now is not None else 0
        return price_over(prices, level, from_s, until_s, site), prices.currency

    def keep(self, reservation: Reservation) -> Effect:
        """Store a new state of a reservation; the write is durable before anybody is told."""
        name = reservation.id
        step = self._steps.get(name, -1) + 1
        self._steps[name] = step
        self._put(reservation)
        self.has_changed = True
        return Write(kept_as(reservation, "sell", step), durable=True)

    def _put(self, reservation: Reservation) -> None:
        name = reservation.id
        if reservation.state in OPEN:
            self.open[name] = reservation
            self.reserved.hold(reservation)
            return
        if self.open.pop(name, None) is not None:
            self.reserved.end(reservation, reservation.billed_at_s)
        self.over[name] = reservation
        while len(self.over) > OVER_MAX:
            # A buyer still asks for billed reservations, so keep them: repeated holds and releases
            # must not push them out.
            free = (name for name, each in self.over.items() if not each.billed_nanos)
            gone = next(free, None) or next(iter(self.over))
            del self.over[gone]
            self._steps.pop(gone, None)

    def find(self, name: str) -> Reservation | None:
        """Return a reservation that is open, or ended lately."""
        return self.open.get(name) or self.over.get(name)

    def look_up(self, name: str, then: Callable[["Named | str"], Iterable[Effect]]) -> None:
        """Ask the books what a name was used for before, and perform the effects of the answer.

        The answer is a sentence when the books can't be read.
        """

        def go_on(found: "Named | str") -> None:
            self._perform(then(found))

        self._recall(partial(named, self._store, name), go_on)

    def cancel(self, reservation: Reservation, utc_s: UtcS) -> Effect:
        """End a reservation before its time; its bill states the cancellation charge."""
        return self.keep(replace(reservation, left_at_s=utc_s))

    # --- as time passes ------------------------------------------------------------------------

    def tick(self, utc_s: UtcS) -> Iterator[Effect]:
        """Release lapsed holds, and bill reservations that are over."""
        for each in list(self.open.values()):
            if each.has_lapsed(utc_s):
                yield self.keep(replace(each, state=ReservationState.EXPIRED))
            elif each.state is ReservationState.BOOKED and (
                each.left_at_s is not None or utc_s >= each.until_s
            ):
                self._look_at_end(each, utc_s)

    def _look_at_end(self, reservation: Reservation, utc_s: UtcS) -> None:
        is_used = any(
            assignment.tariff.reservation == reservation.id
            for worker in self._broker.workers.values()
            if worker.offer.pool == reservation.pool
            for assignment in worker.assignments.values()
        )
        if is_used or reservation.id in self._billing or self._broker.trouble:
            return
        self._billing.add(reservation.id)
        self._recall(
            partial(used_of, self._store.usage, reservation, utc_s),
            partial(self._bill, reservation.id, utc_s),
        )

    def _bill(self, name: str, utc_s: UtcS, used: ReservationUse | str) -> None:
        """End a reservation, and charge its unused part."""
        self._billing.discard(name)
        reservation = self.open.get(name)
        if reservation is None or isinstance(used, str):
            return  # the store can't be read now: the next tick tries again
        billed_nanos = reservation.bill_nanos(used)
        over = (
            ReservationState.ENDED if reservation.left_at_s is None else ReservationState.CANCELLED
        )
        ended = replace(
            reservation,
            state=over,
            used_ns=used.ns,
            billed_nanos=billed_nanos,
            billed_at_s=round(utc_s, 3),  # as rounded in messages
        )
        effects: list[Effect] = [self.keep(ended)]
        if billed_nanos:
            records = [bill_of(ended), *(delivered(ended, "sell") if ended.by.site else ())]
            effects += [Write(each, durable=True) for each in records]
        slots = count(ended.slots, "slot")
        text = f"{ended.tariff_name} of {slots} of {ended.pool} for {ended.who}: {over}"
        self._perform([*effects, Remark(text)])


class Named(NamedTuple):
    """The entries of the books under the name of a sold reservation."""

    reservation: ReservationKept | None
    is_contract: bool  # the bill of a reservation is booked under a contract of its name


def named(store: Store, name: str) -> Named:
    """Look up a name, past or present, among the reservations that we sell."""
    is_contract = store.contracts.get("sell", name) is not None
    return Named(store.reservations.get("sell", name), is_contract)


def used_of(usage: UsageStore, reservation: Reservation, utc_s: UtcS) -> ReservationUse:
    """Read the usage of a reservation from the books.

    It covers the tasks charged at its tariff and the repeats that ran for free; the rest is billed
    as unused.
    """
    name = reservation.tariff_name
    by = Dimension.TARIFF, Dimension.STATE, Dimension.PRICE_CLASS
    start_at_s = min(reservation.from_s, utc_s)
    # Another site may use the same tariff name: count only the tasks of this pool.
    only = {Dimension.TARIFF: name, Dimension.POOL: reservation.pool}
    # Totals by whole hours are quick, and nothing has this tariff earlier.
    found = usage.totals(by, UtcS(start_at_s // 3600 * 3600), None, only)
    states = [(each, str(each.key[1]), str(each.key[2])) for each in found]
    counted = [
        each
        for each, state, price_class in states
        if state == "repeat" or is_for_its_user(state, price_class)
    ]
    return ReservationUse(
        sum(each.wall_ns for each in counted),
        sum(each.cost_nanos for each in counted),
        sum(each.records for each in counted),
    )


def bill_of(reservation: Reservation, seller: str = "") -> UsageRecord:
    """The charge at the end of a reservation of a pool, ours or a seller's."""
    by, pool = reservation.by, reservation.pool
    job = BILL + reservation.id
    return UsageRecord(
        job=f"{by.site}:{job}" if by.site else job,
        first=0,
        tasks=0,
        attempt=1,
        user=by.user,
        project=by.project,
        name=f"{NAMED}{reservation.id}, not used",
        pool=f"{seller}/{pool}" if seller else pool,
        worker="",
        state="ok",
        started_at_s=reservation.billed_at_s,
        ended_at_s=reservation.billed_at_s,
        wall_ns=0,
        cpu_ns=0,
        peak_memory_bytes=0,
        price_nanos=reservation.price_nanos,
        currency=reservation.currency,
        tariff=reservation.tariff_name,
        cost_nanos=reservation.billed_nanos,
        group=by.group,
    )


def delivered(reservation: Reservation, side: ContractSide, seller: str = "") -> Iterator[Record]:
    """The same charge between two sites: one delivery under a contract that ends at once.

    The contract has the reservation's name and age, as contract names only ever grow.
    """
    site, name = seller or reservation.by.site, reservation.id
    yield ContractOpened(
        contract=name,
        side=side,
        site=site,
        job=BILL + name,
        pool=reservation.pool,
        slots=reservation.slots,
        price_nanos=reservation.price_nanos,
        currency=reservation.currency,
        lease_s=0.0,
        opened_at_s=reservation.made_at_s,
        tariff=reservation.tariff_name,
    )
    yield posted(name, side, site, _delivery(reservation), reservation.currency)
    yield ContractEnded(name, side, "settled", reservation.billed_at_s)
    if side == "buy":
        yield paid(reservation, side, site, reservation.billed_at_s)


def paid(reservation: Reservation, side: ContractSide, site: str, utc_s: UtcS) -> Record:
    """The record that such a delivery will be paid for."""
    delivery, currency = _delivery(reservation), reservation.currency
    return settled(reservation.id, side, site, delivery, Verdict.POST, currency, utc_s)


def _delivery(reservation: Reservation) -> Delivery:
    return Delivery(1, 0, 1, reservation.billed_nanos, 0, round(reservation.billed_at_s * 1000))


# --- conversion to and from the store -----------------------------------------------------------


def kept_as(
    reservation: Reservation, side: ContractSide, step: int, site: str = ""
) -> ReservationKept:
    """Convert a reservation to its stored form; `site` is the seller's if we buy."""
    plain = asdict(reservation)
    by = reservation.by
    del plain["by"]
    return ReservationKept(
        side=side,
        reservation=plain.pop("id"),
        site=site or by.site,
        step=step,
        user=by.user,
        group=by.group,
        project=by.project,
        state=str(plain.pop("state")),
        who=str(reservation.who),
        **{key: each for key, each in plain.items() if key != "who"},
    )


def reservation_of(row: ReservationKept) -> Reservation:
    """Convert a stored reservation."""
    site = row.site if row.side == "sell" else ""
    return Reservation(
        id=row.reservation,
        pool=row.pool,
        who=known_party(row.who),
        slots=row.slots,
        from_s=row.from_s,
        until_s=row.until_s,
        price_nanos=row.price_nanos,
        currency=row.currency,
        by=Owner(row.user, row.group, row.project, site),
        made_at_s=row.made_at_s,
        state=ReservationState(row.state),
        held_until_s=row.held_until_s,
        unused_factor=row.unused_factor,
        cancel_factor=row.cancel_factor,
        left_at_s=row.left_at_s,
        used_ns=row.used_ns,
        billed_nanos=row.billed_nanos,
        billed_at_s=row.billed_at_s,
        whole=row.whole,
    )


def view(row: ReservationKept, here: str, utc_s: UtcS, used: int | None = None) -> dict[str, Any]:
    """Show a reservation to people and programs; `used` is its usage so far, if known."""
    each = reservation_of(row)
    used = each.used_ns if used is None else used
    is_over = each.state not in OPEN
    return {
        "id": each.id,
        "whole": each.whole or each.id,
        "site": row.site if row.side == "buy" else here,
        "pool": each.pool,
        "state": each.standing(utc_s),
        "slots": each.slots,
        "from_s": each.from_s,
        "until_s": each.until_s,
        "who": str(each.who),
        "user": each.by.user,
        "project": each.by.project,
        "buyer": each.by.site,
        "made_s": each.made_at_s,
        "price_nanos": each.price_nanos,
        "currency": each.currency,
        "total_nanos": each.total_nanos,
        "unused_factor": each.unused_factor / 10**6,
        "cancel_factor": each.cancel_factor / 10**6,
        "used_ns": used,
        "unused_ns": max(0, each.slot_ns(min(utc_s, each.ends_at_s)) - used),
        "billed_nanos": each.billed_nanos if is_over else None,
        "cancelled_s": each.left_at_s,
    }


def sort_of(rows: Sequence[ReservationKept]) -> list[ReservationKept]:
    """Sort reservations for a listing, the earliest start first."""
    return sorted(rows, key=lambda each: (each.from_s, each.reservation))
