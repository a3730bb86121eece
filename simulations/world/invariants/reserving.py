"""Reservations in a world, at one site or at several, and their invariants."""

from typing import Final

from gateway.ledger.db.reservations.records import ReservationKept
from policies.parties import Owner, read_party
from policies.reservations.reservations import NAMED, CantReserve, Reservation
from simulations.world.gateway import SimMember
from simulations.world.invariants.invariants import Invariant
from simulations.world.plan import ReservePlan

USER: Final = Owner("ann")
HAS: Final = frozenset({"booking", "booked", "ended"})
HAS_NOT: Final = frozenset({"expired", "cancelled"})


def reserve(site: SimMember, wish: ReservePlan) -> None:
    """Request slots as `gridfed reserve` does; do nothing where the gateway is down."""
    server = site.server
    if server is None or not site.is_up or site.is_paused:
        return
    mono_s, utc_s = site.mono_s(), site.utc_s()
    from_s = utc_s + wish.in_s
    wanted = Reservation(
        id=site.random_bytes(8).hex(),
        pool="",
        who=read_party("user:ann"),
        slots=wish.slots,
        from_s=from_s,
        until_s=from_s + wish.lasts_s,
        price_nanos=0,
        currency="",
        by=USER,
        made_at_s=utc_s,
    )
    try:
        _, effects = server.buying.begin(wish.sites, wanted, mono_s, utc_s)
    except CantReserve as error:
        site.note("can't reserve", str(error))
        return
    server.perform(effects)


class ReservationsKept(Invariant):
    """No slot is reserved twice, or used twice as reserved; a booking is booked as a whole, or not.

    A booking without a decision may still go either way.
    """

    def check(self) -> None:
        """Check the present reservations, and the tasks that workers have under them."""
        for site in self.world.sites.values():
            server = site.server
            if server is None or not server.bookings.open:
                continue
            for pool in site.plan.pools:
                self._check_pool(site, pool.name)

    def _check_pool(self, site: SimMember, pool: str) -> None:
        assert site.server is not None
        utc_s = site.utc_s()
        made = [each for each in site.server.bookings.open.values() if each.pool == pool]
        standing = [each for each in made if each.takes_slots(utc_s)]
        workers = [each for each in self.world.plan.workers if each.site == site.name]
        total = sum(each.slots for each in workers if each.pool == pool)
        for at_s in {each.from_s for each in standing}:
            taken = sum(each.slots for each in standing if each.from_s <= at_s < each.ends_at_s)
            if taken > total:
                self.fail(f"{site.name} has reserved {taken} of {total} slots of {pool}")
        slots = {each.id: each.slots for each in made}
        given = dict.fromkeys(slots, 0)
        for worker in site.server.broker.workers.values():
            for each in worker.assignments.values():
                if each.tariff.reservation in given and not worker.job:
                    given[each.tariff.reservation] += len(each.left)
        for name, tasks in given.items():
            if tasks > slots[name]:
                self.fail(
                    f"{site.name} gave out {tasks} tasks in {slots[name]} slots of {NAMED}{name}"
                )

    def finish(self) -> None:
        """Compare the buyers' decisions with the state at all sites."""
        sold = {
            (row.whole if not row.site else row.reservation): row.state
            for site in self.world.sites.values()
            for (side, _), row in site.disk.tables.reservations.items()
            if side == "sell"
        }
        for site in self.world.sites.values():
            for (side, _), row in site.disk.tables.reservations.items():
                # Once it has begun, a part may have lapsed before the message to keep it arrived.
                if side == "buy" and row.from_s > site.utc_s() + 60.0:
                    self._compare(site, row, sold)

    def _compare(self, site: SimMember, row: ReservationKept, sold: dict[str, str]) -> None:
        theirs = [sold.get(row.reservation, "expired")]
        theirs += [sold[row.whole]] if row.whole in sold else []
        wanted = {"booked": HAS, "ended": HAS, "cancelled": HAS_NOT}.get(row.state)
        if wanted is not None and not wanted.issuperset(theirs):
            name = f"{NAMED}{row.reservation} of {row.whole}"
            self.fail(f"{site.name} has {name} as {row.state}, other sites as {', '.join(theirs)}")
