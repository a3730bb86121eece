"""The messages by which gateways tell each other about the federation's members.

There are three kinds of items. A `MemberUpdate` states the state of a member: a few bytes, told to
every neighbour at once. A `Bulletin` is a site's declaration about itself (the advert of a pool,
its card), signed by it and opaque here. Because bulletins are large and neighbours many, a bulletin
is not pushed but announced by a `BulletinNotice`, and each member fetches it once, from the first
to announce it.

Messages travel as short arrays. Input is never trusted: `from_plain` checks every field and every
length. Elements beyond the known ones are ignored, so that a newer site may add some. Only
bulletins are signed, and the receiver's caller verifies them. Updates are hints: only routing may
depend on them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final, NamedTuple, Self

from federation.errors import ProtocolError
from federation.signed import strict
from federation.signed.identity import site_id

UPDATES_MAX: Final = 5_000  # in one message; also the maximum number of members
NOTICES_MAX: Final = 10_000
TOPICS_ASKED_MAX: Final = 256  # of one Want
BULLETINS_MAX: Final = 256  # in one message
BULLETIN_BYTES_MAX: Final = 68 << 10  # an advert of a whole site, and its envelope
# Twice as high as an incarnation that begins with the epoch second gets in 60,000 years.
INCARNATION_MAX: Final = 1 << 62

_topic_name = strict.matching(r"[!-~]{0,64}")
_incarnation = strict.upto(INCARNATION_MAX)
_body = strict.data(1, BULLETIN_BYTES_MAX)


class MemberState(IntEnum):
    """The claimed state of a member. Within one incarnation, the higher state wins."""

    ALIVE = 0
    SUSPECT = 1  # it did not answer; it has some time left to object
    DEAD = 2
    LEFT = 3  # it said so itself


# States in which a member counts as present: a suspect may well be alive.
PRESENT: Final = frozenset({MemberState.ALIVE, MemberState.SUSPECT})


def _state(value: object) -> MemberState:
    return MemberState(strict.upto(MemberState.LEFT)(value))


@dataclass(frozen=True, slots=True)
class MemberUpdate:
    """The state of a member, as of an incarnation that the member itself began.

    `by` is the accuser of a suspect or dead member; empty when the member makes the update itself.
    """

    site: str
    state: MemberState
    incarnation: int
    by: str = ""

    @property
    def size_bytes(self) -> int:
        """An upper bound of its size on the wire."""
        return len(self.site) + len(self.by) + 15

    def to_plain(self) -> list[Any]:
        """Convert to plain values."""
        return [self.site, int(self.state), self.incarnation, self.by]

    @classmethod
    def from_plain(cls, value: object) -> Self:
        """Read plain values; ValueError has the reason."""
        return cls(*_row(value, site_id, _state, _incarnation, _accuser))


class Topic(NamedTuple):
    """The subject of a bulletin: a site, and one thing at it, such as the name of a pool."""

    site: str
    name: str


@dataclass(frozen=True, slots=True)
class BulletinNotice:
    """A bulletin exists. Of one topic the highest (boot, version) is the newest."""

    topic: Topic
    boot: int  # the run of the site in which it was written
    version: int

    @property
    def age(self) -> tuple[int, int]:
        """The key that decides which of two is newer."""
        return (self.boot, self.version)

    @property
    def size_bytes(self) -> int:
        """An upper bound of its size on the wire."""
        return len(self.topic.site) + len(self.topic.name) + 24

    def to_plain(self) -> list[Any]:
        """Convert to plain values."""
        return [*self.topic, self.boot, self.version]

    @classmethod
    def from_plain(cls, value: object) -> Self:
        """Read plain values; ValueError has the reason."""
        site, name, boot, version = _row(value, site_id, _topic_name, strict.count, strict.count)
        return cls(Topic(site, name), boot, version)


@dataclass(frozen=True, slots=True)
class Bulletin:
    """A site's declaration about itself: its notice, and bytes that it has signed."""

    notice: BulletinNotice
    body: bytes

    @property
    def size_bytes(self) -> int:
        """An upper bound of its size on the wire."""
        return self.notice.size_bytes + len(self.body) + 8

    def to_plain(self) -> list[Any]:
        """Convert to plain values."""
        return [*self.notice.to_plain(), self.body]

    @classmethod
    def from_plain(cls, value: object) -> Self:
        """Read plain values; ValueError has the reason."""
        if type(value) is not list or len(value) < 5:
            raise ValueError("must be a list of 5")
        return cls(BulletinNotice.from_plain(value[:4]), _body(value[4]))


@dataclass(frozen=True, slots=True)
class News:
    """News that ride along with any message, up to the sender's own limit of bytes."""

    updates: tuple[MemberUpdate, ...] = ()
    notices: tuple[BulletinNotice, ...] = ()

    def to_plain(self) -> list[Any]:
        """Convert to plain values."""
        return [
            [update.to_plain() for update in self.updates],
            [notice.to_plain() for notice in self.notices],
        ]

    @classmethod
    def from_plain(cls, value: object) -> Self:
        """Read plain values; ValueError has the reason."""
        return cls(*_row(value, _updates, _notices))


NOTHING: Final = News()


# --- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ping:
    """Probe a member. Answered by Ack with its number."""

    kind: ClassVar[str] = "ping"
    number: int
    news: News = NOTHING


@dataclass(frozen=True, slots=True)
class Ack:
    """Answer a Ping; or report, asked by PingRequest, that the target answered."""

    kind: ClassVar[str] = "ack"
    number: int
    news: News = NOTHING


@dataclass(frozen=True, slots=True)
class PingRequest:
    """Ask another member to probe one that does not answer. Answered by Ack or Nack."""

    kind: ClassVar[str] = "ask"
    number: int
    target: str
    news: News = NOTHING


@dataclass(frozen=True, slots=True)
class Nack:
    """Report that the target does not answer here either: the asker's link is not at fault."""

    kind: ClassVar[str] = "nack"
    number: int
    news: News = NOTHING


@dataclass(frozen=True, slots=True)
class Gossip:
    """News that do not wait for a probe."""

    kind: ClassVar[str] = "gossip"
    news: News


@dataclass(frozen=True, slots=True)
class GossipExchange:
    """All updates and notices that the sender holds; the answer has those known better there."""

    kind: ClassVar[str] = "exchange"
    is_answer: bool
    news: News


@dataclass(frozen=True, slots=True)
class Want:
    """Ask for the newest bulletins of these topics."""

    kind: ClassVar[str] = "want"
    topics: tuple[Topic, ...]


@dataclass(frozen=True, slots=True)
class Bulletins:
    """The bulletins that were asked for, or those of them that fit."""

    kind: ClassVar[str] = "bulletins"
    items: tuple[Bulletin, ...]


Message = Ping | Ack | PingRequest | Nack | Gossip | GossipExchange | Want | Bulletins


def to_plain(message: Message) -> list[Any]:
    """Convert a message to plain values, ready for MessagePack."""
    match message:
        case Ping() | Ack() | Nack():
            return [message.kind, message.number, message.news.to_plain()]
        case PingRequest():
            return [message.kind, message.number, message.target, message.news.to_plain()]
        case Gossip():
            return [message.kind, message.news.to_plain()]
        case GossipExchange():
            return [message.kind, message.is_answer, message.news.to_plain()]
        case Want():
            return [message.kind, [list(topic) for topic in message.topics]]
        case Bulletins():
            return [message.kind, [item.to_plain() for item in message.items]]


def from_plain(value: object) -> Message:
    """Read a message that arrived; ProtocolError has the reason if it is invalid."""
    if type(value) is not list or not value or type(value[0]) is not str:
        raise ProtocolError("gossip: must be a list whose first item is the kind")
    form = _FORMS.get(value[0])
    if form is None:
        raise ProtocolError(f"gossip: unknown kind {value[0][:40]!r}")
    make, checks = form
    try:
        return make(*_row(value[1:], *checks))
    except ValueError as error:
        raise ProtocolError(f"gossip: {value[0]}: {error}") from None


# --- checks --------------------------------------------------------------------------------------


def _row(value: object, *checks: strict.Check) -> list[Any]:
    """Check the first elements of a list, each by its check; ignore additions of newer sites."""
    if type(value) is not list or len(value) < len(checks):
        raise ValueError(f"must be a list of {len(checks)}")
    return [check(item) for check, item in zip(checks, value, strict=False)]


def _many(check: strict.Check, at_most: int) -> Callable[[object], tuple[Any, ...]]:
    def check_all(value: object) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > at_most:
            raise ValueError(f"must be a list of at most {at_most}")
        return tuple(check(item) for item in value)

    return check_all


def _accuser(value: object) -> str:
    return "" if value == "" else str(site_id(value))


def _topic(value: object) -> Topic:
    return Topic(*_row(value, site_id, _topic_name))


_updates = _many(MemberUpdate.from_plain, UPDATES_MAX)
_notices = _many(BulletinNotice.from_plain, NOTICES_MAX)
_FORMS: Final[dict[str, tuple[Callable[..., Message], tuple[strict.Check, ...]]]] = {
    Ping.kind: (Ping, (strict.count, News.from_plain)),
    Ack.kind: (Ack, (strict.count, News.from_plain)),
    PingRequest.kind: (PingRequest, (strict.count, site_id, News.from_plain)),
    Nack.kind: (Nack, (strict.count, News.from_plain)),
    Gossip.kind: (Gossip, (News.from_plain,)),
    GossipExchange.kind: (GossipExchange, (strict.flag, News.from_plain)),
    Want.kind: (Want, (_many(_topic, TOPICS_ASKED_MAX),)),
    Bulletins.kind: (Bulletins, (_many(Bulletin.from_plain, BULLETINS_MAX),)),
}
