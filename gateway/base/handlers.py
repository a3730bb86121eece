"""Handlers of messages between gateways: each part of the gateway registers a method for each.

    class Sales(MessageHandler[[MonoS, UtcS], None], receiver=Receiver.SALES):
        @handles(deals.Hold)
        def _hold(self, buyer: str, message: deals.Hold, mono_s: MonoS, utc_s: UtcS) -> None:

Each handler takes the sender and the message; all handlers of a part take the same after these.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar

from federation.errors import ProtocolError
from federation.messages.messages import BETWEEN_GATEWAYS
from federation.messages.registry import GatewayMessage, Receiver

M = TypeVar("M", bound=GatewayMessage)
Part = TypeVar("Part")
Sender = TypeVar("Sender")
P = ParamSpec("P")
R = TypeVar("R")
Handler = Callable[Concatenate[Part, Sender, M, P], R]
_HANDLED = "_handled"  # on a method: the class of the messages that it handles


def handles(
    cls: type[M],
) -> Callable[[Handler[Part, Sender, M, P, R]], Handler[Part, Sender, M, P, R]]:
    """Register a method of a MessageHandler for the messages of a class."""

    def register(method: Handler[Part, Sender, M, P, R]) -> Handler[Part, Sender, M, P, R]:
        setattr(method, _HANDLED, cls)
        return method

    return register


class MessageHandler(Generic[P, R]):
    """A part of the gateway that handles the messages whose row names it.

    Raises:
        TypeError: at import, if the rows and the registered methods are not the same.
    """

    receiver: ClassVar[Receiver]
    _methods: ClassVar[dict[type[GatewayMessage], str]]

    def __init_subclass__(cls, *, receiver: Receiver | None = None) -> None:
        super().__init_subclass__()
        if receiver is None:  # it inherits its handlers
            return
        found = ((getattr(each, _HANDLED, None), name) for name, each in vars(cls).items())
        cls.receiver, cls._methods = receiver, {kind: name for kind, name in found if kind}
        rows = {each for each in BETWEEN_GATEWAYS if each.row.to is receiver}
        if odd := rows ^ cls._methods.keys():
            names = ", ".join(sorted(each.__name__ for each in odd))
            raise TypeError(f"{cls.__name__}: no handler, or no row to {receiver!r}, for {names}")

    def handler(self, message: GatewayMessage) -> Callable[..., Any]:
        """Return the method that handles a message; ProtocolError if this part has none."""
        name = self._methods.get(type(message))
        if name is None:
            raise ProtocolError(f"{message.kind!r} is not handled by {self.receiver}")
        method: Callable[..., Any] = getattr(self, name)
        return method

    def hear(self, sender: str, message: GatewayMessage, *args: P.args, **kwargs: P.kwargs) -> R:
        """Handle a message of another site; ProtocolError when it breaks the rules."""
        handled: R = self.handler(message)(sender, message, *args, **kwargs)
        return handled
