"""The [federation] table of a configuration: our addresses for other sites, and their limits."""

import re
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from federation.messages.adverts import check_doors
from federation.signed.declarations import ADDRESS, ADDRESSES_MAX, CONTACT_CHARS_MAX
from gateway.base.values import SettingError, check_known, count, number, size

# The minimum time that a card with the next keys must have been published before they are used. All
# approved members must have acknowledged it as well.
SPREAD_S: Final = 3600.0
# How long to wait for these acknowledgements. A member that was away for longer is met with the
# keys that it knows.
AWAIT_S: Final = 7 * 86400.0
# How long the old keys stay on the card after that: messages signed with them are still in flight
# (EnvelopeLimits.age_max_s), and pipes made with the old leaf end.
OVERLAP_S: Final = 1200.0


class Follow(StrEnum):
    """The declarations that expel a site here when we have made none about it."""

    ANY = "any"  # that of one approved site
    TWO = "two"  # those of two
    OURS = "ours"  # ours alone


@dataclass(frozen=True, slots=True)
class FederationConfig:
    """The configuration of a site as a federation member.

    Without this table, or without keys in its folder (`gridfed init` makes them), a site is single.

    Args:
        folder: of the keys and the trust book; empty for `federation` in the site's state.
        listen: the port for other gateways (mutual TLS); empty for a site that only dials.
        advertise: its addresses on our card; none: `listen`, unless that is every interface.
        doors: addresses for users of other sites that lose their own gateway (if that site's users
            are welcome: `gridfed trust SITE --users`); their gateways tell them.
        join_listen: the port for invited sites; empty: this site invites no others.
        join_advertise: its address in invitations; empty: `join_listen` likewise.
        bulk_listen: the bulk port, from which other sites fetch objects; empty: calls that refer to
            objects stay at this site.
        bulk_advertise: its address for other sites; empty: `bulk_listen` likewise.
        contact: on our card, for people.
        follow_expulsions: the expulsions that count here: any, two, ours.
        connections: sessions of other gateways at a time.
        strangers: unauthenticated connections of a port, …
        host_strangers: … and of one host.
        handshakes_per_s: new connections of one host to a port.
        frames_per_s: of one other gateway; above it that gateway is slowed down.
        queue_bytes: queued for one other gateway; above it the session is ended.
        give_up_s: how long a site may be unreachable before its queue is dropped.
        idle_s: a connection that is not needed is closed after this time without a message.
        rotation_spread_s: how long new keys are on our card before they are used.
        rotation_overlap_s: how long the old ones stay on it after that.
        rotation_await_s: how long to wait for members that have not acknowledged new keys.
    """

    folder: str = ""
    listen: str = ""
    advertise: tuple[str, ...] = ()
    doors: tuple[str, ...] = ()
    join_listen: str = ""
    join_advertise: str = ""
    bulk_listen: str = ""
    bulk_advertise: str = ""
    contact: str = ""
    follow_expulsions: str = Follow.TWO.value
    connections: int = 256
    strangers: int = 64
    host_strangers: int = 32
    handshakes_per_s: float = 50.0
    frames_per_s: float = 2000.0
    queue_bytes: int = 64 << 20
    give_up_s: float = 30.0
    idle_s: float = 60.0
    rotation_spread_s: float = SPREAD_S
    rotation_overlap_s: float = OVERLAP_S
    rotation_await_s: float = AWAIT_S

    @property
    def follow(self) -> Follow:
        """The expulsions that count here."""
        return Follow(self.follow_expulsions)


# key → smallest, largest
_NUMBERS: Final[dict[str, tuple[float, float]]] = {
    "connections": (1, 10**5),
    "strangers": (1, 10**5),
    "host_strangers": (1, 10**5),
    "handshakes_per_s": (0.1, 10**6),
    "frames_per_s": (10, 10**6),
    "queue_bytes": (1 << 16, 1 << 40),
    "give_up_s": (0.1, 86400),
    "idle_s": (0.1, 86400),
    "rotation_spread_s": (0, 30 * 86400),
    "rotation_overlap_s": (0, 30 * 86400),
    "rotation_await_s": (0, 365 * 86400),
}
_WHOLE: Final = ("connections", "strangers", "host_strangers", "queue_bytes")
_ADDRESSES: Final = (*("listen", "join_listen", "join_advertise", "bulk_listen", "bulk_advertise"),)
_EVERYWHERE: Final = ("0.0.0.0:", "[::]:", "*:")


def read_federation(table: dict[str, Any]) -> FederationConfig:
    """Read the table; SettingError names the key that is wrong."""
    check_known(table, (field.name for field in fields(FederationConfig)))
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in _NUMBERS:
            low, high = _NUMBERS[key]
            if key.endswith("bytes"):
                values[key] = size(key, value, int(low), int(high))
            else:
                values[key] = (count if key in _WHOLE else number)(key, value, low, high)
        elif key == "advertise":
            if not isinstance(value, list) or len(value) > ADDRESSES_MAX:
                raise SettingError(f"advertise must be a list of at most {ADDRESSES_MAX} addresses")
            values[key] = tuple(_address(key, each) for each in value)
        elif key == "doors":
            values[key] = _doors(value)
        elif not isinstance(value, str) or not value.isprintable():
            raise SettingError(f"{key} must be a line of text")
        else:
            values[key] = _address(key, value) if value and key in _ADDRESSES else value
    config = FederationConfig(**values)
    if config.follow_expulsions not in set(Follow):
        raise SettingError(f"follow_expulsions must be one of {', '.join(Follow)}")
    if len(config.contact) > CONTACT_CHARS_MAX:
        raise SettingError(f"contact must be at most {CONTACT_CHARS_MAX} characters")
    return config


def check_federation(config: FederationConfig) -> None:
    """Check that our addresses can be advertised; SettingError."""
    shown(config.advertise, [config.listen])
    shown((config.join_advertise,) if config.join_advertise else (), [config.join_listen])
    shown((config.bulk_advertise,) if config.bulk_advertise else (), [config.bulk_listen])


def shown(advertised: tuple[str, ...], bound: list[str]) -> tuple[str, ...]:
    """The addresses to advertise: the configured ones, or those where we listen.

    SettingError when that is every interface, as other sites can't dial that.
    """
    if advertised:
        return advertised
    for address in bound:
        if address.removeprefix("tls+tcp://").startswith(_EVERYWHERE):
            raise SettingError(f"listen is {address}, which other hosts can't dial: set advertise")
    return tuple(bound)


def _doors(value: Any) -> tuple[str, ...]:
    try:
        return check_doors(value)
    except ValueError as error:
        raise SettingError(f"doors {error}") from None


def _address(key: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(ADDRESS, value, re.ASCII):
        raise SettingError(f"{key} must be an address like tls+tcp://gw.example:7462")
    return value
