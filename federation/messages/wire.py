"""Bytes to messages and back: MessagePack maps, each checked field by field on arrival.

A message is a frozen dataclass; on the wire it is a map of its fields plus `t`, its kind. Input is
never trusted: sizes are bounded before decoding, and every field is checked against its declared
type. Unknown fields are ignored (a newer peer may send more). An unknown kind is reported as such,
so that the receiver can answer it. This module does not interpret messages.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgpack

from federation.errors import ProtocolError

VERSIONS = (1,)  # of the protocol, that this version of gridfed speaks
TEXT_CHARS_MAX = 1 << 17
ITEMS_MAX = 1 << 20
DEPTH_MAX = 32  # levels of lists and maps in one field, including their contents

_FEW = 100

_pack = msgpack.Packer(autoreset=True, use_bin_type=True).pack
T = TypeVar("T")


class UnknownMessage(ProtocolError):
    """A well-formed message of a kind that this version does not know."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"unknown message {kind[:64]!r}")
        self.kind = kind


def pack(value: object) -> bytes:
    """Encode plain data as MessagePack."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(data: bytes, size_max: int) -> Any:
    """Decode one MessagePack value of at most `size_max` bytes; ProtocolError if it is not one.

    Every length inside is bounded by the data's own size, so a few bytes that announce a gigabyte,
    or nest for ever, cost nothing.
    """
    if len(data) > size_max:
        raise ProtocolError(f"{len(data):,} bytes, over the limit of {size_max:,}")
    try:
        return msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=min(len(data), TEXT_CHARS_MAX),
            max_bin_len=len(data),
            max_array_len=min(len(data), ITEMS_MAX),
            max_map_len=min(len(data), ITEMS_MAX),
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        # msgpack raises ValueError subclasses for malformed, oversized and over-nested data,
        # TypeError for a map whose key can't be hashed.
        raise ProtocolError(f"not a message: {type(error).__name__}: {error}"[:300]) from None


# --- field checks: each returns whether a decoded value may stand in a field ------------------


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_number(value: object) -> bool:
    # The comparison also excludes NaN.
    return isinstance(value, int | float) and type(value) is not bool and abs(value) < 1e18


def _is_text(value: object) -> bool:
    # Such names end up in databases, and not all of them can hold a NUL. Half a surrogate pair is
    # no UTF-8, and was refused before. Prints and errors of tasks may have any character.
    return type(value) is str and "\0" not in value


def _is_texts(value: object) -> bool:
    return type(value) is list and all(map(_is_text, value))


def _is_payloads(value: object) -> bool:
    if type(value) is not list:
        return False
    if len(value) < _FEW:  # they may be large, and joining copies them
        return all(type(each) is bytes for each in value)
    try:
        b"".join(value)  # the quickest way to check that many values are all bytes
    except TypeError:
        return False
    return True


def _is_pairs(value: object) -> bool:
    return type(value) is list and all(
        type(pair) is list and len(pair) == 2 and _is_count(pair[0]) and _is_count(pair[1])
        for pair in value
    )


def _is_row(value: object) -> bool:
    return type(value) is list and all(map(_is_count, value))


def _is_lines(value: object) -> bool:
    return type(value) is list and all(
        type(line) is list and all(type(cell) is str or _is_count(cell) for cell in line)
        for line in value
    )


def _is_plain_map(value: object) -> bool:
    return type(value) is dict and all(map(_is_text, value)) and _is_plain(value)


def _is_plain(value: object) -> bool:
    return _is_within(value, lambda text: "\0" not in text)


def _is_maps(value: object) -> bool:
    return type(value) is list and all(
        _is_plain_map(each) and not any(isinstance(one, list | dict) for one in each.values())
        for each in value
    )


def _is_anything(value: object) -> bool:
    return _is_within(value, lambda text: True)


def _is_within(value: object, is_text: Callable[[str], bool]) -> bool:
    """Whether values nest at most DEPTH_MAX deep, and each text is valid.

    Recursion over deeper values, here or where a value is compared, shown or encoded again, fails
    in unexpected ways. So this check goes level by level.
    """
    level = [value]
    for _ in range(DEPTH_MAX):
        below: list[object] = []
        for each in level:
            if isinstance(each, str):
                if not is_text(each):
                    return False
            elif isinstance(each, list):
                below += each
            elif isinstance(each, dict):
                below += each
                below += each.values()
        if not below:
            return True
        level = below
    return False


def _is_failures(value: object) -> bool:
    return type(value) is list and all(
        type(item) is list
        and len(item) == 4
        and _is_count(item[0])
        and type(item[1]) is str
        and type(item[2]) is str
        and type(item[3]) is bytes
        for item in value
    )


def _is_prints(value: object) -> bool:
    return type(value) is list and all(
        type(item) is list and len(item) == 2 and _is_count(item[0]) and type(item[1]) is str
        for item in value
    )


# Field types are named by these aliases, so that a message reads as its own documentation.
Count = int
Number = float
Text = str
Texts = list[str]
Payloads = list[bytes]
Pairs = list[list[int]]
Failures = list[list[Any]]
Prints = list[list[Any]]
Plain = dict[str, Any]
Maps = list[dict[str, Any]]
Names = list[str]
Rows = list[list[int]]
Lines = list[list[Any]]
Anything = Any

CHECKS: dict[str, Callable[[object], bool]] = {
    "Count": _is_count,
    "Number": _is_number,
    "Number | None": lambda value: value is None or _is_number(value),
    "Count | None": lambda value: value is None or _is_count(value),
    "Text": _is_text,
    "bytes": lambda value: type(value) is bytes,
    "bool": lambda value: type(value) is bool,
    "Payloads": _is_payloads,
    "Texts": _is_texts,
    "list[int]": lambda value: type(value) is list and all(map(_is_count, value)),
    "Pairs": _is_pairs,
    "Failures": _is_failures,
    "Prints": _is_prints,
    "Plain": _is_plain_map,
    "Names": _is_texts,
    "Rows": lambda value: type(value) is list and all(map(_is_row, value)),
    "Lines": _is_lines,
    "Maps": _is_maps,
    "Anything": _is_anything,
}

# Faults of a field that looks right.
_HINTS = {
    "Text": ": text must not contain NUL",
    "Texts": ": text must not contain NUL",
    "Names": ": text must not contain NUL",
    "Plain": f": text must not contain NUL, and nesting must not exceed {DEPTH_MAX} levels",
}


class _Known(NamedTuple):
    """A message of a catalogue: its class, the checks of its fields in order, and their defaults.

    A field with a default may be left out: it is younger than the message.
    """

    cls: type
    checks: list[tuple[str, Callable[[object], bool]]]
    defaults: Plain
    factories: Mapping[str, Callable[[], Any]]


class Catalogue:
    """The messages of a protocol: kind → class, with how to encode and how to check each."""

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes: dict[str, _Known] = {}
        self._getters: dict[type, tuple[str, tuple[str, ...], Callable[[object], Any]]] = {}
        for cls in classes:
            kind = typing.cast("str", cls.kind)  # type: ignore[attr-defined]
            fields = [field.name for field in dataclasses.fields(cls)]
            hints = cls.__annotations__
            defaults = {
                field.name: field.default
                for field in dataclasses.fields(cls)
                if field.default is not dataclasses.MISSING
            }
            factories = {
                field.name: field.default_factory
                for field in dataclasses.fields(cls)
                if field.default_factory is not dataclasses.MISSING
            }
            checks = [(name, CHECKS[hints[name]]) for name in fields]
            self._classes[kind] = _Known(cls, checks, defaults, factories)
            getter = attrgetter(*fields) if len(fields) > 1 else _single(fields[0])
            self._getters[cls] = (kind, tuple(fields), getter)

    @property
    def classes(self) -> list[type]:
        """The messages' classes, in the order of the catalogue."""
        return [cls for cls, *_ in self._classes.values()]

    def encode(self, message: object) -> bytes:
        """Encode a message of this catalogue."""
        kind, names, getter = self._getters[type(message)]
        body = dict(zip(names, getter(message), strict=True))
        body["t"] = kind
        packed: bytes = _pack(body)
        return packed

    def decode(self, data: bytes, size_max: int) -> Any:
        """Decode and check one message; ProtocolError names the field at fault."""
        body = unpack(data, size_max)
        if type(body) is not dict or type(body.get("t")) is not str:
            raise ProtocolError("not a message: it has no kind")
        known = self._classes.get(body["t"])
        if known is None:
            raise UnknownMessage(body["t"])
        cls, checks, defaults, factories = known
        values = []
        for name, is_valid in checks:
            value = body.get(name, defaults.get(name))
            if value is None and name in factories and name not in body:
                value = factories[name]()
            if not is_valid(value):
                hint = _HINTS.get(cls.__annotations__[name], "")
                raise ProtocolError(
                    f"message {body['t']!r}: field {name!r} is missing or wrong{hint}"
                )
            values.append(value)
        return cls(*values)


def _single(name: str) -> Callable[[object], tuple[Any]]:
    getter = attrgetter(name)
    return lambda message: (getter(message),)
