"""Signed bodies: each has exactly one reading, or none.

MessagePack lets one meaning be encoded in many ways, and silently keeps the last of two equal keys.
So signatures must cover the bytes that travel, and the reading must not depend on the reader. A
body is decoded once, whole, within narrow bounds, and every field is checked before it is used. A
`Form` defines the fields of one kind of body.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgpack

from federation.clocks import UtcS
from federation.errors import ProtocolError

DEPTH_MAX: Final = 16
ITEMS_MAX: Final = 10_000  # elements of one array
KEYS_MAX: Final = 1_000  # keys of one map
TEXT_BYTES_MAX: Final = 1 << 16
INTEGER_MAX: Final = 2**63 - 1

T = TypeVar("T")
# Takes a decoded value and returns the value to keep; ValueError has the reason.
Check = Callable[[object], Any]


def decode(data: bytes, bytes_max: int) -> Any:
    """Decode exactly one MessagePack value.

    Raises:
        ProtocolError: too long; not one whole value; a map with a key twice or a key that is not
            text; an extension or timestamp; a float that is not finite; an integer of 64 bits or
            more; nested deeper than DEPTH_MAX; longer inside than the limits above.
    """
    if len(data) > bytes_max:
        raise ProtocolError(f"{len(data):,} bytes, over the limit of {bytes_max:,}")
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            object_pairs_hook=_unique,
            ext_hook=_no_extension,
            max_str_len=min(len(data), TEXT_BYTES_MAX),
            max_bin_len=len(data),
            max_array_len=min(len(data), ITEMS_MAX),
            max_map_len=min(len(data), KEYS_MAX),
            max_ext_len=0,
        )
        _check_values(value)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not a signed body: {error or type(error).__name__}"[:300]) from None
    return value


def decode_parts(data: bytes, bytes_max: int, names: str) -> list[bytes]:
    """Decode an array of byte strings, one for each of the space-separated `names`."""
    parts = decode(data, bytes_max)
    if not is_parts(parts, len(names.split())):
        raise ProtocolError(f"it must be an array of byte strings: {names}")
    return list(parts)


def is_parts(value: object, count: int) -> bool:
    """Whether the value is an array of `count` byte strings."""
    return type(value) is list and len(value) == count and all(type(v) is bytes for v in value)


def _unique(pairs: list[tuple[object, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if type(key) is not str:
            raise ValueError("a key is not text")
        if key in found:
            raise ValueError(f"the key {key[:40]!r} appears twice")
        found[key] = value
    return found


def _no_extension(code: int, _data: bytes) -> object:
    raise ValueError(f"extension type {code} is not allowed")


def _check_values(value: object) -> None:
    level: list[object] = [value]
    for _ in range(DEPTH_MAX):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
            elif isinstance(each, float) and not math.isfinite(each):
                raise ValueError("a number is not finite")
            elif isinstance(each, int) and not -INTEGER_MAX <= each <= INTEGER_MAX:
                raise ValueError("an integer is too large")
        if not below:
            return
        level = below
    raise ValueError(f"nesting exceeds {DEPTH_MAX} levels")


class Form(Generic[T]):
    """The fields of one kind of signed body: their checks, and the class that it becomes.

    Args:
        make: the frozen dataclass; its fields are the map's keys.
        checks: a Check for each field.
        bytes_max: the limit of the encoded body.
        closed: refuse unknown fields. A body that *restricts* must be closed, for a limit that is
            not understood would be a limit ignored; elsewhere a newer site may add fields.
    """

    def __init__(
        self,
        make: Callable[..., T],
        checks: Mapping[str, Check],
        bytes_max: int,
        *,
        closed: bool = False,
    ) -> None:
        self._make = make
        self._checks = dict(checks)
        self.bytes_max = bytes_max
        self._closed = closed

    def encode(self, value: T) -> bytes:
        """Encode one of our own; ValueError when another site would refuse it."""
        plain = {name: _plain(getattr(value, name)) for name in self._checks}
        self._read(plain)
        body: bytes = msgpack.packb(plain, use_bin_type=True)
        if len(body) > self.bytes_max:
            raise ValueError(f"{len(body):,} bytes, over the limit of {self.bytes_max:,}")
        return body

    def decode(self, body: bytes) -> T:
        """Decode and check one that arrived; ProtocolError names the invalid field."""
        plain = decode(body, self.bytes_max)
        if type(plain) is not dict:
            raise ProtocolError("a signed body must be a map")
        try:
            return self._read(plain)
        except ValueError as error:
            raise ProtocolError(str(error)) from None

    def _read(self, plain: dict[str, object]) -> T:
        if self._closed and (unknown := plain.keys() - self._checks.keys()):
            raise ValueError(f"unknown field {min(unknown)[:40]!r}")
        values = {}
        for name, check in self._checks.items():
            try:
                values[name] = check(plain[name])
            except KeyError:
                raise ValueError(f"field {name!r} is missing") from None
            except ValueError as error:
                raise ValueError(f"field {name!r}: {error}") from None
        return self._make(**values)


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


# --- checks --------------------------------------------------------------------------------------


def matching(pattern: str) -> Check:
    """Return a check for text that matches the whole of a pattern (ASCII)."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: object) -> str:
        if type(value) is not str or not compiled.fullmatch(value):
            raise ValueError(f"must match {pattern}")
        return value

    return check


def line(chars_max: int) -> Check:
    """Return a check for text that can be shown as it is: one line, only printable characters."""

    def check(value: object) -> str:
        if type(value) is not str or len(value) > chars_max or not value.isprintable():
            raise ValueError(f"must be one line of at most {chars_max} printable characters")
        return value

    return check


def data(bytes_min: int, bytes_max: int) -> Check:
    """Return a check for bytes of a bounded length."""

    def check(value: object) -> bytes:
        if type(value) is not bytes or not bytes_min <= len(value) <= bytes_max:
            raise ValueError(f"must be {bytes_min} to {bytes_max} bytes")
        return value

    return check


def count(value: object) -> int:
    """Check an integer from zero to 2⁶³ - 1."""
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise ValueError("must be a whole number of zero or more")
    return value


def upto(most: int) -> Check:
    """Return a check for an integer from zero to `most`."""

    def check(value: object) -> int:
        if count(value) > most:
            raise ValueError(f"must be at most {most}")
        return count(value)

    return check


def moment(value: object) -> UtcS:
    """Check a time: UTC epoch seconds, before the year 5138."""
    if type(value) not in (int, float) or not 0 <= value <= 1e11:  # type: ignore[operator]
        raise ValueError("must be a time in seconds since 1970")
    return UtcS(value)  # type: ignore[arg-type]


def flag(value: object) -> bool:
    """Check a bool."""
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def several(check: Check, at_least: int, at_most: int) -> Check:
    """Return a check for a list without repetitions, kept in order as a tuple."""

    def check_all(value: object) -> tuple[Any, ...]:
        if type(value) is not list or not at_least <= len(value) <= at_most:
            raise ValueError(f"must be a list of {at_least} to {at_most} items")
        found = tuple(check(each) for each in value)
        if len(set(found)) != len(found):
            raise ValueError("has a repeated item")
        return found

    return check_all


def subset(check: Check, at_most: int) -> Check:
    """Return a check for a set, or None for everything; an empty set would allow nothing at all."""
    listed = several(check, 1, at_most)

    def check_all(value: object) -> frozenset[Any] | None:
        return None if value is None else frozenset(listed(value))

    return check_all
