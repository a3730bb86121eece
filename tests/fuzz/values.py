"""Values for the fields of messages: plain ones, extremes of the right type, and wrong types. Pure.

By the names that messages give their fields' types (federation.messages.wire.CHECKS). Three levels:

    TAME    what may well be said; a gateway takes it, refuses it, or does not know what it is about
    WILD    of the right type, and as large, small, long or strange as the wire allows
    BROKEN  what the wire allows nowhere
"""

import random
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from federation.messages.wire import CHECKS, DEPTH_MAX, TEXT_CHARS_MAX


class Level(IntEnum):
    """How odd a value is."""

    TAME = 0
    WILD = 1
    BROKEN = 2


# Draws a value; what it draws depends on the given chance alone.
Draw = Callable[[random.Random], Any]

WORDS: Final = ("", "a", "london", "paris", "fuzz", "risk", "0", "local", "workers", "USD", "*")
COUNTS: Final = (0, 0, 1, 1, 2, 3, 7, 16, 63, 64, 100, 1_000)
EXTREMES: Final = (0, 2**31 - 1, 2**31, 2**32, 2**40 - 1, 2**40, 2**40 + 1, 2**62, 2**63 - 1)
NUMBERS: Final = (0, 1, 2, 0.5, 0.25, 10.0, 60, 3_600.0)
FAR_NUMBERS: Final = (-1, -0.0, 5e-324, 1e-9, 1e9, 1e17, -1e17, 2**53 + 1, 999_999_999_999_999_999)
STRANGE: Final = (
    "\x1b[2J\x1b]0;x\x07",  # what a terminal would obey
    "\u202egnp.exe",
    "\ud7ff\ue000\U0010ffff",
    "ß" * 300,
    "../../etc/passwd",
    "'; DROP TABLE jobs; --",
    "=1+1",
    "%s%n{0}",
    "fuzz@paris",
    "group:x",
    "\r\n",
    " ",
)
WRONG: Final = (None, -1, 2**63, 2**64 - 1, 1.5, "", "1", b"", b"1", True, [], [[]], {}, {"": 0})
LONG_ONE_IN: Final = 2_000  # values of the right type; the longest of all is seldom
_INFINITE: Final = (float("inf"), float("-inf"), float("nan"), 1e18, -1e18)


def _pick(choices: tuple[Any, ...]) -> Draw:
    return lambda chance: choices[int(chance.random() * len(choices))]


def _few(chance: random.Random, most: int = 4) -> range:
    return range(int(chance.random() * most))


def _text(chance: random.Random) -> str:
    if not int(chance.random() * LONG_ONE_IN):
        return "x" * TEXT_CHARS_MAX
    return STRANGE[int(chance.random() * len(STRANGE))]


def _data(chance: random.Random) -> bytes:
    size = (0, 1, 31, 32, 33, 64, 1_000)[int(chance.random() * 7)]
    return chance.randbytes(65_536 if not int(chance.random() * LONG_ONE_IN) else size)


def _listed(each: Draw, most: int = 4) -> Draw:
    return lambda chance: [each(chance) for _ in _few(chance, most)]


def _ordered_pairs(chance: random.Random) -> list[list[int]]:
    at, found = 0, []
    for _ in _few(chance):
        first = at + int(chance.random() * 5)
        at = first + 1 + int(chance.random() * 20)
        found.append([first, at])
    return found


def nested(chance: random.Random, deep: int) -> Any:
    """A value with lists and maps in each other, so many levels deep."""
    value: Any = chance.choice(("", 0, 1.5, None, True, "x"))
    for _ in range(deep):
        value = [value] if chance.random() < 0.5 else {"k": value}
    return value


def _plain(chance: random.Random) -> dict[str, Any]:
    return {_WORD(chance): _SCALAR(chance) for _ in _few(chance)}


def _wild_plain(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.1:
        return {"k": nested(chance, DEPTH_MAX - 2)}
    return {_text(chance): nested(chance, int(chance.random() * 4)) for _ in _few(chance)}


_WORD: Final = _pick(WORDS)
_COUNT: Final = _pick(COUNTS)
_EXTREME: Final = _pick(EXTREMES)
_NUMBER: Final = _pick(NUMBERS)
_FAR: Final = _pick(FAR_NUMBERS)
_BOOL: Final = _pick((True, False))
_SCALAR: Final = _pick((None, True, False, 0, 1, -1, 1.5, "", "a", "fuzz", 2**62))
_PAYLOAD: Final = _pick((b"", b"x", b"\x80", b"\x00" * 40, b"\xff" * 200))


def _failures(text: Draw) -> Draw:
    def draw(chance: random.Random) -> list[list[Any]]:
        return [[_COUNT(chance), text(chance), text(chance), b""] for _ in _few(chance, 2)]

    return draw


# By the type of a field: how to draw at TAME and at WILD.
BY_TYPE: Final[dict[str, tuple[Draw, Draw]]] = {
    "Count": (_COUNT, _EXTREME),
    "Count | None": (_pick((None, *COUNTS)), _EXTREME),
    "Number": (_NUMBER, _FAR),
    "Number | None": (_pick((None, *NUMBERS)), _FAR),
    "Text": (_WORD, _text),
    "bytes": (_PAYLOAD, _data),
    "bool": (_BOOL, _BOOL),
    "Payloads": (_listed(_PAYLOAD), _listed(_data, 40)),
    "Texts": (_listed(_WORD), _listed(_text)),
    "Names": (_listed(_WORD), _listed(_text)),
    "list[int]": (_listed(_COUNT), _listed(_EXTREME)),
    "Pairs": (_ordered_pairs, _listed(lambda chance: [_EXTREME(chance), _EXTREME(chance)])),
    "Rows": (_listed(_listed(_COUNT, 8)), _listed(_listed(_EXTREME, 12))),
    "Failures": (_failures(_WORD), _failures(_text)),
    "Prints": (
        _listed(lambda chance: [_COUNT(chance), _WORD(chance)], 2),
        _listed(lambda chance: [_EXTREME(chance), _text(chance)]),
    ),
    "Plain": (_plain, _wild_plain),
    "Lines": (_listed(_listed(_WORD)), _listed(_listed(_text))),
    "Maps": (_listed(_plain), _listed(lambda chance: {_text(chance): _EXTREME(chance)})),
    "Anything": (_SCALAR, lambda chance: nested(chance, int(chance.random() * DEPTH_MAX))),
}


def broken(kind: str) -> Draw:
    """Draws values that the check of this type refuses."""
    is_valid = CHECKS[kind]
    wrong = (*WRONG, *_INFINITE, "a\0b", {1: 2}, [["a", None]], nested(random.Random(0), 60))
    return _pick(tuple(each for each in wrong if not is_valid(each)) or (None,))
