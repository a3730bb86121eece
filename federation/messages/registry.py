"""The registry of the messages between gateways: one row for each, in the head of its class. Pure.

    class Commit(FromBuyer, to=Receiver.SALES, sealed=True):

The base class names the sites that may send it. The parser (federation.messages.messages) takes
every message that has a row, the router (gateway.peering.message_router) sends, checks and
dispatches by it, a part of the gateway registers a method for each of its rows
(gateway.base.handlers), and a test compares docs/protocol.md with them.
"""

from enum import StrEnum
from typing import ClassVar, Final, NamedTuple


class Receiver(StrEnum):
    """The part of the receiving gateway that handles a message."""

    TRUST = "trust"  # declarations about keys and members
    GOSSIP = "gossip"  # membership and adverts
    FUNCTIONS = "functions"
    SALES = "sales"  # contracts that this site sells
    PURCHASES = "purchases"  # contracts that it buys
    RESERVED_HERE = "reserved here"  # slots that others reserve here
    RESERVED_THERE = "reserved there"
    BOOKS = "books"
    LENDING = "lending"  # slices of this site's budgets
    BORROWING = "borrowing"
    OBJECTS = "objects"  # objects that move between sites


class Row(NamedTuple):
    """A row of the registry.

    Attributes:
        to: the part that handles the message.
        sealed: whether it travels inside `Sealed`, signed by its site; it is refused otherwise.
        urgent: whether it overtakes queued messages.
        at_once: whether it waits for no record; others are sent once all earlier ones are stored.
    """

    to: Receiver
    sealed: bool = False
    urgent: bool = False
    at_once: bool = False


REGISTRY: Final[dict[str, type["GatewayMessage"]]] = {}  # by kind; messages.py imports them all


class GatewayMessage:
    """A message from one gateway to another; `Row` explains the arguments of its class."""

    __slots__ = ()
    kind: ClassVar[str]
    row: ClassVar[Row]

    def __init_subclass__(cls, *, to: Receiver | None = None, **how: bool) -> None:
        if to is not None:
            cls.row = Row(to, **how)
        if "kind" in vars(cls):
            if not hasattr(cls, "row"):
                raise TypeError(f"{cls.__name__} names no receiver")
            REGISTRY[cls.kind] = cls  # `dataclass(slots=True)` makes it anew, without arguments


class FromBuyer(GatewayMessage):
    """A message that the buyer of a contract sends to its seller."""

    __slots__ = ()


class FromSeller(GatewayMessage):
    """A message that the seller of a contract sends to its buyer."""

    __slots__ = ()


class FromEither(GatewayMessage):
    """A message that each of two sites may send, over whichever session they have."""

    __slots__ = ()
