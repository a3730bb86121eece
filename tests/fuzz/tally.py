"""The messages sent to a gateway, and their results. Pure."""

import re
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from federation.errors import SessionRefused

_NUMBERS = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*")


def reason_of(refused: SessionRefused) -> str:
    """Why a session was refused or ended, without the figures and names of this one."""
    reason = _NUMBERS.sub("…", str(refused).removeprefix("protocol error: "))
    return f"{refused.code}: {reason[:60]}"


@dataclass(slots=True)
class Tally:
    """Counts of one role.

    Attributes:
        sent: messages, pieces of bytes that are no messages among them.
        heard: those in frames that the gateway has acknowledged. Of a frame in which it found a
            breach it hears what precedes it, and acknowledges nothing.
        sessions: that were opened.
        refused: connections that were not let in, by reason; of `closed` no reason is known.
        thrown_out: sessions that it ended, by reason.
        answers: messages that came back, by kind.
    """

    sent: int = 0
    heard: int = 0
    sessions: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    thrown_out: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Tally":
        """Read a value written by `plain`."""
        return cls(**{
            name: Counter(value) if isinstance(value, dict) else value
            for name, value in plain.items()
        })  # fmt: skip

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(
            getattr(self, each.name) + getattr(other, each.name) for each in fields(self)
        ))  # fmt: skip
