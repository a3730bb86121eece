"""Answers what people ask and order about reservations: reserve, unreserve, reservations.

What is told to have been booked is on the disk.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gateway.bookings import kept_as, sort_of, used_ns, view
from gateway.bookings import reservation_of as read_back
from gateway.lobby import Guest
from policies.parties import Kind, Party, Whose, read_party
from policies.reservations import OPEN, CantReserve, State, check_who

if TYPE_CHECKING:
    from gateway.site import Site

LISTED_MAX: Final = 500
SLOTS_MAX: Final = 10**8
LASTS_MAX_S: Final = 366 * 86_400.0
TIME_MAX_S: Final = 253_402_300_800

Details = Mapping[str, Any]


async def reserve(site: "Site", guest: Guest, details: Details) -> Any:
    """Reserve slots, here or at other sites: {slots, from_s, lasts_s, pool, who, project, dry_run}.

    Raises CantReserve.
    """
    utc_s = site.surroundings.utc_s()
    slots = _number(details, "slots", None, SLOTS_MAX)
    lasts_s = _seconds(details, "lasts_s", None, LASTS_MAX_S)
    from_s = _seconds(details, "from_s", utc_s, TIME_MAX_S)
    pool, is_dry = _text(details, "pool"), details.get("dry_run", False) is True
    who, by = _whose(site, guest, details)
    if site.broker.trouble:
        raise CantReserve(f"the gateway can't record anything now: {site.broker.trouble}")
    bookings = site.reception.bookings
    found = bookings.ask(slots, from_s, from_s + lasts_s, str(who), by, utc_s, pool)
    if not is_dry:
        found = replace(found, state=State.BOOKED)
        site.reception.perform([bookings.keep(found)])
        await site.harden()
    return [view(kept_as(found, "sell", 0), site.config.name, utc_s)]


async def unreserve(site: "Site", guest: Guest, details: Details) -> Any:
    """Cancel a reservation, all parts of it: {reservation}. Raises CantReserve."""
    utc_s = site.surroundings.utc_s()
    name, bookings = _text(details, "reservation"), site.reception.bookings
    found = bookings.open.get(name)
    if found is None or not (guest.is_local or found.by.user == guest.user):
        raise CantReserve(f"no reservation {name[:60]!r} of yours is open here")
    if found.left_s is not None:
        raise CantReserve(f"reservation {name} was cancelled before")
    site.reception.perform([bookings.cancel(found, utc_s)])
    await site.harden()
    gone = bookings.open.get(name, found)
    return [view(kept_as(gone, "sell", 0), site.config.name, utc_s)]


async def reservations(site: "Site", _guest: Guest, details: Details) -> Any:
    """Reservations, those that come first first: {all}; else only what is open."""
    utc_s, store = site.surroundings.utc_s(), site.store
    is_open = details.get("all", False) is not True

    def find() -> list[dict[str, Any]]:
        found = []
        for row in sort_of(store.reservations(LISTED_MAX, is_open=is_open)):
            used = used_ns(store, read_back(row), utc_s) if row.state in OPEN else None
            found.append(view(row, site.config.name, utc_s, used))
        return found

    return await site.read(find)


def _whose(site: "Site", guest: Guest, details: Details) -> tuple[Party, Whose]:
    """For whom it is, and in whose name. At our own socket that is whoever is named."""
    groups, project = site.config.groups, _text(details, "project")
    by = Whose(guest.user, groups.get(guest.user, ""), project)
    text = _text(details, "who") or f"user:{guest.user}"
    try:
        who = read_party(text)
    except ValueError as error:
        raise CantReserve(str(error)) from None
    if not guest.is_local:
        check_who(who, by)
        return who, by
    match who.kind:
        case Kind.USER:
            by = Whose(who.name, groups.get(who.name, ""), project)
        case Kind.GROUP:
            by = Whose(guest.user, who.name, project)
        case Kind.PROJECT:
            by = Whose(guest.user, by.group, who.name)
        case Kind.OURS:
            pass
        case _:
            raise CantReserve(
                f"you can't reserve for {who}: for user:, group: and project: you can, and for "
                "ours; another site asks for itself (there: `gridfed reserve --site`)"
            )
    return who, by


def _text(details: Details, key: str) -> str:
    value = details.get(key, "")
    if type(value) is not str or len(value) > 200 or not (value.isprintable() or not value):
        raise CantReserve(f"{key} must be text of up to 200 printable characters")
    return value


def _number(details: Details, key: str, default: int | None, largest: int) -> int:
    value: Any = details.get(key, default)
    if type(value) is not int or not -largest <= value <= largest:
        raise CantReserve(f"{key} must be a whole number of up to {largest:,}")
    return value


def _seconds(details: Details, key: str, default: float | None, largest: float) -> float:
    value: Any = details.get(key)
    value = default if value is None else value
    if type(value) not in (int, float) or not 0 <= value <= largest:
        raise CantReserve(f"{key} must be seconds, from 0 to {largest:,.0f}")
    return float(value)
