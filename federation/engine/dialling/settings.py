"""The connection settings of a client, read and checked, and the identity that it proves."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from federation.address import NoToken
from federation.sessions.handshake import SharedSecret
from federation.sessions.task_passes import ABOUT, read_pass
from federation.transport import TlsSettings
from federation.words import Length, read_seconds

CONNECT_S: Final = 5.0  # how long the first connection may take, unless the user says so
_TIME_MAX_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The connection settings of a client; see federation.client.Client."""

    address: str | tuple[str, ...] | None
    secret: str | None
    token: str | None
    tls: TlsSettings | None
    user: str | None
    trusted_sites: frozenset[str] | None
    connect_timeout_s: float
    waits_refused: bool  # all of this time, also where nothing listens
    failover_s: float
    give_up_s: float | None


# Pickles of clients name it so.
ConnectionSettings.__module__ = "federation.client"
ConnectionSettings.__qualname__ = "_Where"


@dataclass(frozen=True, slots=True)
class Holder:
    """The identity of a client, and the sites that it trusts.

    Args:
        user: the user to bill; a token's user takes precedence.
        secret: the secret that the gateway may ask for.
        token: a token signed by the gateway's site, or by one whose users it admits; or a task's
            pass (federation.sessions.task_passes); or empty.
        trusted_sites: see federation.client.Client; None trusts all results that the gateway passes
            on.
    """

    user: str
    secret: str = ""
    token: str = ""
    trusted_sites: frozenset[str] | None = None

    @property
    def about(self) -> dict[str, Any]:
        """The `about` field of the hello."""
        if (found := read_pass(self.token)) is not None:
            return {ABOUT: found.subject}
        return {"token": self.token} if self.token else {}

    @property
    def credentials(self) -> SharedSecret:
        """The credentials with which the client proves itself."""
        found = read_pass(self.token)
        return SharedSecret(self.secret) if found is None else found.credentials

    @property
    def bears_token(self) -> bool:
        """Whether its hello holds a token, which any reader could use."""
        return "token" in self.about


def read_settings(  # noqa: PLR0913 - each is an option for the user
    address: object,
    *,
    secret: str | None,
    token: str | None,
    tls: TlsSettings | None,
    user: str | None,
    trusted_sites: Iterable[str] | None,
    connect_timeout_s: Length | None,
    failover_s: Length,
    give_up_s: Length | None,
) -> ConnectionSettings:
    """Check what a user gave for a connection. Raises TypeError, ValueError."""
    waits_refused = connect_timeout_s is not None
    connect_s: float = read_seconds(
        "connect_timeout_s", connect_timeout_s if waits_refused else CONNECT_S
    )
    lost_s: float = read_seconds("failover_s", failover_s)
    alone_s: float | None = read_seconds("give_up_s", give_up_s)
    if not (_is_time(connect_s) and connect_s > 0):
        raise ValueError(
            f"connect_timeout_s is {connect_timeout_s!r:.80}; it must be above zero, in seconds"
        )
    if not _is_time(lost_s):
        raise ValueError(f"failover_s is {failover_s!r}; it must be zero or more, in seconds")
    if alone_s is not None and not _is_time(alone_s):
        raise ValueError(f"give_up_s is {give_up_s!r}; it must be zero or more, in seconds")
    if isinstance(trusted_sites, str):
        raise TypeError("trusted_sites must be a list of site names, not a single string")
    named = _read_addresses(address)
    if token is not None and not token.strip() and not isinstance(token, NoToken):
        raise ValueError(
            "the token is empty, as if from an empty file: pass the text that `gridfed token` "
            "printed, or token=None for that of $GRIDFED_TOKEN or the client file"
        )
    return ConnectionSettings(
        named,
        secret,
        token,
        tls,
        user,
        None if trusted_sites is None else frozenset(trusted_sites),
        connect_s,
        waits_refused,
        lost_s,
        alone_s,
    )


def _read_addresses(address: object) -> str | tuple[str, ...] | None:
    """Return the addresses as they are kept. Raises TypeError."""
    if address is None or isinstance(address, str):
        return address
    named = tuple(address) if isinstance(address, Iterable) else ()
    if not all(isinstance(each, str) for each in named) or not isinstance(address, Iterable):
        raise TypeError(
            f"address is {address!r:.80}; it must be the text of an address, or a list of them"
        )
    return cast("tuple[str, ...]", named)


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 <= cast("float", value) <= _TIME_MAX_S
