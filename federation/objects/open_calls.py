"""Calls whose arguments hold futures: sealed once, and sent with what their inputs are by then.

A future that is not done goes as the task that it stands for; the gateway fills it in. One that is
done goes as its value: also when a call is sent again, as to a gateway that has lost everything.
So a client and its gateway need no agreement about who has which value.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from federation.objects.inputs import merged, with_inputs
from federation.objects.labels import DataLabel


@dataclass(frozen=True, slots=True)
class InputValue:
    """The value of an input: its bytes, and the lease on its object if it is one."""

    data: bytes
    lease: Any = None


@dataclass(frozen=True, slots=True)
class InputFailure:
    """An input that gives no value: the text, and the pickled exception or nothing."""

    text: str
    payload: bytes = b""


class InputFuture(Protocol):
    """What a call needs of a future among its arguments."""

    @property
    def node(self) -> tuple[str, int]:
        """The id of its job, and its number there."""

    @property
    def is_detached(self) -> bool:
        """Whether its task stays without its client."""

    @property
    def label(self) -> DataLabel:
        """Where its value may lie, as far as this client knows."""

    def as_input(self) -> InputValue | InputFailure | None:
        """Return what it gives to a call; None: it has not ended."""


@dataclass(slots=True, eq=False)
class OpenCall:
    """A sealed call with futures among its arguments.

    Attributes:
        pickled: its pickle, with holes.
        digests: of the objects that it refers to.
        inputs: the futures, in the order of the holes.
        leases: of the inputs that are objects, by digest, as it was sent last.
    """

    pickled: bytes
    digests: tuple[bytes, ...]
    inputs: tuple[InputFuture, ...]
    leases: dict[bytes, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """The bytes of the pickle, and some for its head."""
        return len(self.pickled) + 16 * len(self.inputs)

    def __getitem__(self, at: int) -> int:
        """The first byte of a call tells whether it has a head: this one has."""
        return 0

    def failure(self) -> InputFailure | None:
        """Return the failure of its first input that has failed, as far as this client knows."""
        given = (each.as_input() for each in self.inputs)
        return next((each for each in given if isinstance(each, InputFailure)), None)

    def as_sent(self) -> bytes | InputFailure:
        """Return the bytes to send now; or the failure of an input, for which it is not sent."""
        found: list[Any] = []
        digests = dict.fromkeys(self.digests)
        for each in self.inputs:
            given = each.as_input()
            if given is None:
                found.append(each.node)
                continue
            if isinstance(given, InputFailure):
                return given
            found.append(given.data)
            if given.lease is not None:
                self.leases[given.lease.digest] = given.lease
                digests[given.lease.digest] = None
        return with_inputs(self.pickled, digests, merged(found))


SealedCall: TypeAlias = bytes | OpenCall
