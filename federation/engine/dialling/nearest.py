"""Finds the nearest of several gateways: measures round trips to all of them at once.

A round trip is the time from the beginning of a connection to the gateway's first bytes, without
the resolution of its name: only a gateway that works sends them. A socket of this host has none.
The race is over soon after the first has answered: one that takes several times as long is not
nearer. Gateways that are about as near as the nearest keep the order that their user gave.
Gateways of a worse priority, which a service name can have, take part only where none before them
has answered.
"""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federation.address import host_and_port, is_home, is_tcp
from federation.clocks import MonoS

WITHIN_S: Final = 1.0  # for the first answer
SLACK_S: Final = 0.03  # after the first answer, …
SLACK_FACTOR: Final = 3.0  # … and so many of its round trips
AS_NEAR_S: Final = 0.002  # round trips that differ by less are equal, …
AS_NEAR_SHARE: Final = 0.25  # … or by less than this share of the shortest


@dataclass(frozen=True, slots=True)
class GatewayChoice:
    """The order in which a client tries gateways, and why.

    Attributes:
        addresses: the nearest first.
        round_trips_s: of those that answered in the race; empty: there was none.
        origin: where the addresses come from, in words.
        measured_at_s: by `time.monotonic`.
        groups: the addresses by priority, the best first; empty: all have the same.
    """

    addresses: tuple[str, ...]
    round_trips_s: Mapping[str, float]
    origin: str
    measured_at_s: MonoS = MonoS(0.0)
    groups: tuple[tuple[str, ...], ...] = ()

    def better(self, address: str) -> tuple[str, ...]:
        """Return the gateways that a client at this one would rather be at, the best first."""
        if address not in self.addresses:
            return self.addresses
        at = next((at for at, group in enumerate(self.groups) if address in group), 0)
        above = tuple(each for group in self.groups[:at] for each in group)
        beside = self.groups[at] if self.groups else self.addresses
        before = self.addresses[: self.addresses.index(address)]
        return above + tuple(each for each in before if each in beside)

    def why(self, address: str) -> str:
        """Return why a client is at a gateway, in words."""
        if address not in self.addresses:
            return "named by another gateway, after a failover"
        if len(self.addresses) == 1:
            return f"the only gateway ({self.origin})"
        of = f"of {len(self.addresses)} gateways ({self.origin})"
        if not self.round_trips_s:
            return f"{of}; none answered in the race"
        trip_s = self.round_trips_s.get(address)
        trip = "it did not answer in the race" if trip_s is None else f"{trip_s * 1000:.1f} ms away"
        raced = next((g for g in self.groups if any(e in self.round_trips_s for e in g)), ())
        if len(self.groups) > 1:
            if len(raced) == 1 and address in raced:
                return f"the only one of the best priority that answers, {of}: {trip}"
            of = f"of the {len(raced)} of the best priority that answers, {of}"
        order = "nearest" if address == self.addresses[0] else "not the nearest"
        return f"{order} {of}: {trip}"

    @property
    def unasked(self) -> tuple[str, ...]:
        """The gateways of a worse priority than that which answered: they took no part."""
        for at, group in enumerate(self.groups):
            if any(each in self.round_trips_s for each in group):
                return tuple(each for rest in self.groups[at + 1 :] for each in rest)
        return ()


def choose(groups: Sequence[Sequence[str]], origin: str) -> GatewayChoice:
    """Put gateways in order, the nearest of the best priority first; one alone is not measured.

    Args:
        groups: the addresses by priority, the best first; at least one.
        origin: where they come from, in words.

    The first group with a gateway that answers comes first; then the groups after it, and last
    those that were silent.
    """
    kept = tuple(map(tuple, groups))
    order = tuple(address for group in kept for address in group)
    trips_s: dict[str, float] = {}
    if len(order) > 1:
        for at, group in enumerate(kept):
            trips_s = measure(group)
            if trips_s:
                later = [*kept[at + 1 :], *kept[:at]]
                order = (*in_order(group, trips_s), *(each for rest in later for each in rest))
                break
    return GatewayChoice(order, trips_s, origin, MonoS(time.monotonic()), kept)


def in_order(addresses: Iterable[str], trips_s: Mapping[str, float]) -> tuple[str, ...]:
    """Return addresses, the nearest first; about equally near ones, and those without a round
    trip at the end, in the order given."""
    given = list(addresses)
    left = [address for address in given if address in trips_s]
    found: list[str] = []
    while left:
        least_s = min(trips_s[address] for address in left)
        bound_s = least_s + max(AS_NEAR_S, AS_NEAR_SHARE * least_s)
        found += [address for address in left if trips_s[address] <= bound_s]
        left = [address for address in left if trips_s[address] > bound_s]
    return (*found, *(address for address in given if address not in trips_s))


def measure(
    addresses: Sequence[str],
    within_s: float = WITHIN_S,
    dial_s: Callable[[str, float], float] | None = None,
) -> dict[str, float]:
    """Return the round trips, in seconds, to those that answer in time.

    `dial_s` measures one address within some time; OSError if it does not answer.
    """
    dial_s = dial_s or round_trip_s
    answers: queue.SimpleQueue[tuple[str, float | None]] = queue.SimpleQueue()

    def ask(address: str) -> None:
        try:
            answers.put((address, dial_s(address, within_s)))
        except (OSError, ValueError):
            answers.put((address, None))

    begun_s = time.monotonic()
    for address in addresses:
        threading.Thread(target=ask, args=(address,), daemon=True).start()
    found: dict[str, float] = {}
    until_s = begun_s + within_s
    for _ in addresses:
        try:
            address, trip_s = answers.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty:
            break
        if trip_s is not None:
            if not found:
                until_s = min(until_s, time.monotonic() + SLACK_S + SLACK_FACTOR * trip_s)
            found[address] = trip_s
    return found


def round_trip_s(address: str, within_s: float) -> float:
    """Return the time of a connection to a gateway, in seconds. Raises OSError."""
    if is_home(address):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(within_s)
            link.connect(address.removeprefix("ipc://"))
            _await_header(link, address)
        return 0.0
    if not is_tcp(address):
        raise OSError(f"{address}: its distance can't be measured")
    host, port = host_and_port(address)
    found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    family, kind, protocol, _, place = found[0]
    with socket.socket(family, kind, protocol) as link:
        link.settimeout(within_s)
        begun_s = time.monotonic()
        link.connect(place)
        if address.startswith("tls+"):
            _greet_by_tls(link)
        else:
            _await_header(link, address)
        return time.monotonic() - begun_s


def _await_header(link: socket.socket, address: str) -> None:
    """Wait for the first byte of a gateway, which begins with the header of its protocol."""
    if not link.recv(1):
        raise ConnectionResetError(address)


def _greet_by_tls(link: socket.socket) -> None:
    """Wait for the gateway's answer to a TLS greeting. Nothing is sent to it that matters, so its
    certificate is not verified: that is done by the connection that is then opened.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.wrap_socket(link, do_handshake_on_connect=True).close()
