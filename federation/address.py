"""Addresses of gateways: their syntax, their reach, and how a client finds one; and the login."""

import getpass
import os
import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from federation.errors import GridError

GATEWAY_VARIABLE: Final = "GRIDFED_GATEWAY"
USUAL_ORIGIN: Final = "the default"  # of an unnamed address
SECRET_VARIABLE: Final = "GRIDFED_SECRET"  # noqa: S105 - likewise
TOKEN_VARIABLE: Final = "GRIDFED_TOKEN"  # noqa: S105 - the name of a variable, not a secret
SCHEMES: Final = ("tcp://", "tls+tcp://", "ipc://")
SERVICE_SCHEME: Final = "srv://"  # of a name that stands for gateways, for clients alone
# The limits of the list of other gateways in one message: the number and length of addresses.
OTHERS_MAX: Final = 16
ADDRESS_CHARS_MAX: Final = 256
_SOCKET_PATH_MAX: Final = 107  # of sockaddr_un
PORT_MAX: Final = 65535
_LOOPBACK: Final = re.compile(r"(127(\.\d{1,3}){3}|localhost|\[::1\]):\d+", re.ASCII)


class NoToken(str):
    """In place of a token: none at all, also where the environment has one. It is empty."""

    __slots__ = ()


class AddressError(GridError, ValueError):
    """An address that can't be dialled or listened on."""


def check_address(address: str) -> None:
    """Raise AddressError unless gridfed can use `address`; nng's own errors say little."""
    if is_service(address):
        raise AddressError(
            f"address {address!r}: a service name is for clients alone: name an address"
        )
    if not address.startswith(SCHEMES):
        allowed = ", ".join(SCHEMES)
        raise AddressError(f"address {address!r}: must start with one of {allowed}")
    if address.startswith("ipc://"):
        length = len(os.fsencode(address.removeprefix("ipc://")))
        if length > _SOCKET_PATH_MAX:
            raise AddressError(
                f"address {address!r}: the socket path has {length} bytes, the limit is "
                f"{_SOCKET_PATH_MAX}"
            )
        return
    host, port = host_and_port(address)
    if not (port.isascii() and port.isdecimal() and int(port) <= PORT_MAX):
        raise AddressError(f"address {address!r}: must end with a port from 0 to {PORT_MAX}")
    if not _is_host(host):
        raise AddressError(
            f"address {address!a:.300}: the host must be a DNS name, as in grid.example.com, or an "
            "IP address"
        )


def _is_host(host: str) -> bool:
    """Whether a host can be looked up; an empty one, or *, listens everywhere."""
    if not host.isprintable() or any(map(str.isspace, host)):
        return False
    try:
        return not host or ":" in host or bool(host.encode("idna"))
    except UnicodeError:  # an empty label, or one that is too long, or has odd characters
        return False


def is_tcp(address: str) -> bool:
    """Whether the address is a TCP address, with TLS or without."""
    return address.startswith(("tcp://", "tls+tcp://"))


def is_service(address: str) -> bool:
    """Whether it is a service name (`srv://NAME`), which DNS resolves, and not an address."""
    return address.startswith("srv:")  # without the slashes: a mistake that is then explained


def plain_ip(address: str | bytes) -> IPv4Address | IPv6Address:
    """Parse an IP address from text or bytes; an IPv4 address written as IPv6 becomes IPv4."""
    found = ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def host_and_port(address: str) -> tuple[str, str]:
    """Return the host and the port of a tcp address."""
    host, _, port = address.partition("://")[2].rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def check_others(addresses: list[str]) -> list[str]:
    """Return a gateway's list of others without repetitions; AddressError if it is invalid."""
    found = list(dict.fromkeys(addresses))
    if len(found) > OTHERS_MAX:
        raise AddressError(f"{len(found)} other gateways: the limit is {OTHERS_MAX}")
    for address in found:
        if len(address) > ADDRESS_CHARS_MAX or not address.isprintable():
            raise AddressError(
                f"address {address!a:.80}: must be printable and have at most "
                f"{ADDRESS_CHARS_MAX} characters"
            )
        check_address(address)
    return found


def is_local(address: str) -> bool:
    """Whether the address never leaves this host: a socket in the file system, or the loopback."""
    scheme, _, place = address.partition("://")
    return scheme == "ipc" or _LOOPBACK.fullmatch(place) is not None


def is_home(address: str) -> bool:
    """Whether only its own user can reach the address."""
    return address.startswith("ipc://")


def is_weak(address: str) -> bool:
    """Whether others on the way could read and change data sent to the address."""
    return address.startswith("tcp://") and not is_local(address)


def check_bearer(address: str) -> None:
    """Raise AddressError unless a token may be sent there: any reader of a token could use it."""
    if is_weak(address):
        raise AddressError(
            f"address {address!r}: a token is a bearer credential and is not sent over "
            "plain tcp to another host: use tls+tcp://, or connect without a token"
        )


def default_address() -> str:
    """Return the address of this user's own gateway on this host: a socket only for this user."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "gridfed" if base else Path.home() / ".gridfed"
    return f"ipc://{folder / 'gateway.sock'}"


def expand(address: str) -> str:
    """Return the address, with `~` in a socket's path expanded to the home folder."""
    if not address.startswith("ipc://~"):
        return address
    return f"ipc://{os.path.expanduser(address.removeprefix('ipc://'))}"


def resolve(addresses: str | tuple[str, ...] | None) -> tuple[tuple[str, ...], str]:
    """Return the addresses to dial, in order and without repetitions, and their origin in words.

    A text may hold several, separated by commas. There is always at least one.
    """
    if isinstance(addresses, str):
        addresses = _split(addresses)
    if addresses:
        return tuple(dict.fromkeys(map(expand, addresses))), "given"
    named = _split(os.environ.get(GATEWAY_VARIABLE, ""))
    if named:
        return tuple(dict.fromkeys(map(expand, named))), f"from ${GATEWAY_VARIABLE}"
    return (default_address(),), USUAL_ORIGIN


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def login() -> str:
    """Return the name of this process's user on this host; for a user without a name, by number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"
