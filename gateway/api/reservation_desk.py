"""Answers requests about reservations: reserve, unreserve, reservations.

A reservation is on disk before the answer says that it is booked.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from federation.clocks import UtcS
from gateway.api.context import SiteContext
from gateway.base.details import DetailReader, Details
from gateway.base.values import suggest
from gateway.config.groups import owner_of
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.reservations.bookings import ID_BYTES, kept_as, sort_of, used_of, view
from gateway.reservations.bookings import reservation_of as read_back
from gateway.reservations.reserving import SITES_MAX, SLOTS_MAX, Whole
from gateway.sessions.peer_sessions import TICK_S
from gateway.trust.rights import Asker
from policies.access.entitlements import Work
from policies.parties import Owner, Party, PartyKind, read_party
from policies.reservations.coallocation import BookingPhase
from policies.reservations.reservations import (
    OPEN,
    CantReserve,
    Reservation,
    ReservationRules,
    ReservationState,
    check_span,
    check_who,
)

LISTED_MAX: Final = 500
LASTS_MAX_S: Final = 366 * 86_400.0
READ: Final = DetailReader(CantReserve)


async def reserve(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Reserve slots: {slots, from_s, lasts_s, pool, who, project, sites, dry_run}.

    At each of `sites`, or here. Raises CantReserve.
    """
    utc_s = site.runtime.utc_s()
    slots = READ.whole(details, "slots", -SLOTS_MAX, SLOTS_MAX)
    lasts_s = READ.seconds(details, "lasts_s", LASTS_MAX_S)
    begin_s = READ.time(details, "from_s")
    from_s = utc_s if begin_s is None else begin_s
    pool, is_dry = READ.text(details, "pool", 200, least=0), details.get("dry_run", False) is True
    who, by = _whose(site, asker, details)
    # The entitlements of a named user are checked. For other parties an operator needs none.
    is_operators = asker.is_operator and who.kind is not PartyKind.USER
    if site.broker.trouble:
        raise CantReserve(f"the gateway can't write to its database: {site.broker.trouble}")
    sites = _sites(site, details)
    if sites - {site.config.name}:
        if not site.broker.entitling.may_leave(Work(by, is_operators=is_operators)):
            raise CantReserve(
                f"{by.user} may use no pools of other sites: see `gridfed can {by.user}`"
            )
        if is_dry:
            raise CantReserve(
                "a dry run covers this site only: other sites hold the slots that they are "
                "asked for"
            )
        span = from_s, from_s + lasts_s
        return await _at_several(site, sites, slots, span, pool, who, by, is_operators=is_operators)
    bookings = site.server.bookings
    span = from_s, from_s + lasts_s
    try:
        found = bookings.ask(*(slots, *span, str(who), by, utc_s, pool), is_operators=is_operators)
    except CantReserve as error:
        entitling = site.broker.entitling
        is_barred = not any(
            entitling.verdict(Work(by), each.name).is_yes for each in site.config.pools
        )
        is_for_itself = (
            asker.is_operator and not READ.text(details, "who", 200, least=0) and is_barred
        )
        more = "; --user NAME or --who names the party that you reserve for"
        raise CantReserve(f"{error}{more if is_for_itself else ''}") from None
    if not is_dry:
        found = replace(found, state=ReservationState.BOOKED)
        site.server.perform([bookings.keep(found)])
        await site.harden()
    return [view(kept_as(found, "sell", 0), site.config.name, utc_s)]


async def _at_several(
    site: SiteContext,
    sites: set[str],
    slots: int,
    span: tuple[UtcS, UtcS],
    pool: str,
    who: Party,
    by: Owner,
    *,
    is_operators: bool,
) -> list[dict[str, Any]]:
    """Book at each of these sites, or at none."""
    utc_s, mono_s = site.runtime.utc_s(), site.runtime.mono_s()
    check_span(ReservationRules(longest_s=LASTS_MAX_S), slots, *span, utc_s)
    buying, name = site.server.buying, site.runtime.random_bytes(ID_BYTES).hex()
    from_s, until_s = span
    wanted = Reservation(name, pool, who, slots, from_s, until_s, 0, "", by, utc_s)
    whole, effects = buying.begin(sites, wanted, mono_s, utc_s, is_operators=is_operators)
    site.server.perform(effects)
    while not whole.is_settled:
        await site.wait_for_progress(TICK_S)
    if whole.machine.phase is not BookingPhase.BOOKED:
        raise CantReserve(f"nothing was reserved: {whole.machine.reason}")
    await site.harden()
    return _parts(site, whole)


def _parts(site: SiteContext, whole: Whole) -> list[dict[str, Any]]:
    """Return all parts of a booking as they are now."""
    here, utc_s = site.config.name, site.runtime.utc_s()
    return [
        view(kept_as(part, "buy", 0, where), here, utc_s)
        for where, part in sorted(whole.parts.items())
    ]


async def unreserve(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Cancel a reservation, all parts of it: {reservation}. Raises CantReserve."""
    utc_s = site.runtime.utc_s()
    name, bookings = READ.text(details, "reservation", 200, least=0), site.server.bookings
    whole = site.server.buying.find(name)
    if whole is not None and _may_cancel(asker, whole.by):
        if whole.machine.phase is not BookingPhase.BOOKED:
            raise CantReserve(f"reservation {name} is being cancelled already")
        mono_s = site.runtime.mono_s()
        site.server.perform(site.server.buying.cancel(whole, mono_s, utc_s))
        await site.harden()
        return [each | {"cancelled_s": utc_s} for each in _parts(site, whole)]
    found = bookings.open.get(name)
    if found is None or found.by.site or not _may_cancel(asker, found.by):
        raise CantReserve(f"no open reservation {name[:60]!r} of yours found here")
    if found.left_at_s is not None:
        raise CantReserve(f"reservation {name} is cancelled already")
    site.server.perform([bookings.cancel(found, utc_s)])
    await site.harden()
    gone = bookings.open.get(name, found)
    return [view(kept_as(gone, "sell", 0), site.config.name, utc_s)]


def _may_cancel(asker: Asker, by: Owner) -> bool:
    return asker.is_operator or asker.owns(by.user, by.project)


async def reservations(site: SiteContext, asker: Asker, details: Details) -> Any:
    """List the reservations that the asker sees, the earliest first: {all}; else only open ones."""
    utc_s, store = site.runtime.utc_s(), site.store
    is_open = details.get("all", False) is not True

    def find() -> list[dict[str, Any]]:
        found = []
        rows = islice(_shown(site, asker, is_open=is_open), LISTED_MAX)
        for row in sort_of(list(rows)):
            each = read_back(row)
            is_here = row.side == "sell" and row.state in OPEN
            used = used_of(store.usage, each, utc_s).ns if is_here else None
            found.append(view(row, site.config.name, utc_s, used))
        return found

    return await site.read(find)


def _shown(site: SiteContext, asker: Asker, *, is_open: bool) -> Iterator[ReservationKept]:
    """Yield the reservations that an asker sees, those that end last first."""
    start = 0
    while page := site.store.reservations.latest(LISTED_MAX, is_open, start):
        yield from (row for row in page if _is_shown(site, asker, read_back(row)))
        if is_open:  # open ones come all at once
            return
        start += len(page)


def _is_shown(site: SiteContext, asker: Asker, each: Reservation) -> bool:
    """Whether an asker sees a reservation: their own, or one whose slots they may use."""
    by, whose = each.by, owner_of(site.config.groups, asker.user)
    if asker.sees(by.user, by.project, by.site):
        return True
    if asker.projects is not None and by.project not in asker.projects:
        return False
    is_for_some = each.who.kind in (PartyKind.USER, PartyKind.GROUP)
    return is_for_some and not by.site and asker.concerns(each.who, whose)


def _whose(site: SiteContext, asker: Asker, details: Details) -> tuple[Party, Owner]:
    """Return the party that may use the slots, and the owner of the reservation.

    An operator (gateway.trust.rights.is_operator) may name any user, group or project of this site.
    """
    groups, project = site.config.groups, READ.text(details, "project", 200, least=0)
    by = owner_of(groups, asker.user, project)
    text = READ.text(details, "who", 200, least=0)
    try:
        who = read_party(text) if text else Party(PartyKind.USER, asker.user)
    except ValueError as error:
        raise CantReserve(str(error)) from None
    if not asker.is_operator:
        check_who(who, by)
        return who, by
    match who.kind:
        case PartyKind.USER:
            by = owner_of(groups, who.name, project)
        case PartyKind.GROUP:
            by = Owner(asker.user, who.name, project)
        case PartyKind.PROJECT:
            by = Owner(asker.user, by.group, who.name)
        case PartyKind.OURS:
            pass
        case _:
            raise CantReserve(
                f"you can't reserve for {who}: only for user:, group:, project: and ours; "
                "another site reserves for itself (there: `gridfed reserve --site`)"
            )
    return who, by


def _sites(site: SiteContext, details: Details) -> set[str]:
    """Return the named sites: this one, and sites that it deals with."""
    value = details.get("sites", [])
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    if not is_list or len(value) > SITES_MAX:
        raise CantReserve(f"sites must be a list of up to {SITES_MAX} names")
    known = {site.config.name}
    if site.peers is not None:
        known |= set(site.peers.registry.approved)
    for each in value:
        if each not in known:
            names, meant = ", ".join(sorted(known)), suggest(each, known)
            raise CantReserve(f"unknown site {each[:60]!r}{meant}; known sites: {names}")
    return set(value)
