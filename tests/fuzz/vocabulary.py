"""Messages of every kind, at every level of oddness, from the classes of federation. Pure.

A `Vocabulary` is one role's messages: the kinds that it may send and, more seldom, all others.
Where a plain value of a field's type would never get far (ids, digests, verbs), a role gives a
`Maker` for the whole message, or a `Draw` for the field.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from federation.messages.messages import HANDSHAKE, MESSAGES
from federation.messages.wire import pack
from federation.sessions.session import RECEIVE_BYTES_MAX
from tests.fuzz.values import BY_TYPE, Draw, Level, broken

WILD_FIELDS: Final = 0.3  # the share of fields that are wild in a wild message
ODD_BYTES: Final = 12  # at most, that are changed in a mutated message
REMEMBERED: Final = 200  # ids of a kind

# The fields of one message, at TAME.
Maker = Callable[[random.Random], dict[str, Any]]


@dataclass(slots=True)
class Remembered:
    """Ids that were heard or made up, to be said again: the oldest are forgotten first."""

    jobs: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    contracts: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    # Of a worker's assignments: number, first task, how many.
    assignments: deque[tuple[int, int, int]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED)
    )
    digests: deque[bytes] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    said: deque[bytes] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


def one_of(known: deque[Any], otherwise: Draw, seldom: float = 0.1) -> Draw:
    """Draws something remembered, and now and then something else."""

    def draw(chance: random.Random) -> Any:
        if not known or chance.random() < seldom:
            return otherwise(chance)
        return known[int(chance.random() * len(known))]

    return draw


class _Kind:
    """How one kind of message is drawn."""

    def __init__(self, cls: Any, named: Mapping[str, Draw], maker: Maker | None) -> None:
        hints = cls.__annotations__
        self.names = [each.name for each in fields(cls)]
        self._kind = cls.kind
        self._maker = maker
        self._tame = {name: named.get(name, BY_TYPE[hints[name]][0]) for name in self.names}
        self._wild = {name: BY_TYPE[hints[name]][1] for name in self.names}
        self._broken = {name: broken(hints[name]) for name in self.names}

    def draw(self, chance: random.Random, level: Level) -> dict[str, Any]:
        if self._maker is not None:
            body = self._maker(chance)
        else:
            body = {name: draw(chance) for name, draw in self._tame.items()}
        body["t"] = self._kind
        if level is Level.WILD:
            for name in self.names:
                if chance.random() < WILD_FIELDS:
                    body[name] = self._wild[name](chance)
        elif level is Level.BROKEN:
            name = self.names[int(chance.random() * len(self.names))]
            if chance.random() < 0.2:
                body.pop(name, None)
            else:
                body[name] = self._broken[name](chance)
        return body


class Vocabulary:
    """The messages of one role.

    Args:
        weights: how often it says each kind that it may say, where it is tame. With 0 are those
            that it may only say in answer to something; otherwise each is said as often.
        named: draws for fields of these names, in any message.
        makers: for whole messages.
        memory: sent messages are kept there, to be sent again.
    """

    def __init__(
        self,
        weights: Mapping[type[Any], float],
        named: Mapping[str, Draw],
        makers: Mapping[type[Any], Maker],
        memory: Remembered,
    ) -> None:
        self._memory = memory
        every = {cls: _Kind(cls, named, makers.get(cls)) for cls in MESSAGES.classes}
        self.kinds = {cls.kind: each for cls, each in every.items()}
        self._own = [every[cls] for cls in weights]
        self._weights = list(_running_sum(weights.values()))
        self._foreign = [each for cls, each in every.items() if cls not in weights]

    def may_say(self, chance: random.Random, level: Level) -> dict[str, Any]:
        """The fields of a message of a kind that the role may send."""
        if level is not Level.TAME:
            return chance.choice(self._own).draw(chance, level)
        return chance.choices(self._own, cum_weights=self._weights)[0].draw(chance, level)

    def say(self, chance: random.Random, level: Level) -> bytes:
        """A message of a kind that the role may send, or a former one once more."""
        said = self._memory.said
        if said and chance.random() < 0.03:
            return said[int(chance.random() * len(said))]
        found = pack(self.may_say(chance, level))
        if chance.random() < 0.05:
            said.append(found)
        return found

    def breach(self, chance: random.Random) -> bytes:
        """Something that the role must not say."""
        draw = chance.random()
        if draw < 0.3:
            return pack(self.may_say(chance, Level.BROKEN))
        if draw < 0.5:
            level = Level(int(chance.random() * 3))
            return pack(chance.choice(self._foreign).draw(chance, level))
        if draw < 0.6:
            return pack({"t": chance.choice(("hello", "welcome", "", "x" * 70, "\x1b[2J"))})
        if draw < 0.65:
            return chance.choice((b"", b"\xc0", b"\x80", b"\x90", pack([1]), pack({"t": 1})))
        return mutated(pack(self.may_say(chance, Level.TAME)), chance)


def _running_sum(values: Iterable[float]) -> Iterable[float]:
    total = 0.0
    for value in values:
        total += value
        yield total


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes with some changed, left out, doubled or cut off."""
    found = bytearray(data)
    for _ in range(1 + int(chance.random() * ODD_BYTES)):
        at = int(chance.random() * (len(found) + 1))
        match int(chance.random() * 5):
            case 0:
                found[at : at + 1] = chance.randbytes(1)
            case 1:
                del found[at : at + 1 + int(chance.random() * 8)]
            case 2:
                found[at:at] = found[at : at + 16]
            case 3:
                found[at:at] = chance.choice((b"\xdf\xff\xff\xff\xff", b"\xc1", b"\xd9", b"\x93"))
            case _:
                if chance.random() < 0.1:
                    del found[at:]
    return bytes(found)


def odd_handshake(chance: random.Random, about: dict[str, Any]) -> bytes:
    """A bare message of the handshake with something wrong about it."""
    classes = HANDSHAKE.classes
    named: dict[str, Draw] = {
        "versions": lambda chance: [1] if chance.random() < 0.8 else [0, 2, 2**62],
        "role": lambda chance: chance.choice(("client", "worker", "gateway", "admin", "")),
        "nonce": lambda chance: chance.randbytes(chance.choice((0, 15, 16, 16, 64, 65))),
        "about": lambda chance: about if chance.random() < 0.8 else {},
    }
    kinds = [_Kind(cls, named, None) for cls in classes]
    level = Level(int(chance.random() * 3))
    data = pack(chance.choices(kinds, (6, 1, 2, 1, 1))[0].draw(chance, level))
    return mutated(data, chance) if chance.random() < 0.3 else data


def odd_frame(frame: bytes, number: int, chance: random.Random) -> bytes:
    """A frame (federation.sessions.session) that is none, or not the one that is due."""
    far = chance.choice((-1, 0, 1, number + 1, number + 9, 2**31, 2**62))
    full = RECEIVE_BYTES_MAX - 20
    odd: tuple[Callable[[], bytes], ...] = (
        lambda: mutated(frame, chance),
        lambda: frame[: len(frame) // 2],
        lambda: b"",
        lambda: pack([number, 0]),
        lambda: pack([far, 0, []]),
        lambda: pack([number, far, []]),
        lambda: pack([number, 0, [b""] * 70_000]),
        lambda: pack([number, 0, [[b"", False]]]),
        lambda: pack([number, 0, [[b"x" * 1_000, False], b"x"]]),
        lambda: pack([number, 0, [None, 1, "x", {}]]),
        lambda: pack([0, 0, [b"\x80"]]),
        lambda: pack([number, 0, [b"x" * full]]),
        lambda: pack([number, 0, [b"x" * (full + 40)]]),  # a few bytes too many
        lambda: b"\x93" * 5_000,
        lambda: b"\xdd\xff\xff\xff\xff",
    )
    return chance.choice(odd)()
