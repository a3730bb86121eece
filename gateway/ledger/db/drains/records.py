"""Drains that operators have ordered: what is written, and what is read back."""

from dataclasses import dataclass

from federation.clocks import UtcS
from gateway.ledger.db.checks import check_texts, check_times


@dataclass(frozen=True, slots=True)
class DrainKept:
    """An operator drains a host or a worker; unique by (kind, name), as ordered first.

    Attributes:
        kind: see gateway.scheduler.model.events.DrainKind.
        by: the operator's user name.
    """

    kind: str
    name: str
    by: str
    at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.kind, self.name, self.by)
        check_times(self.at_s)


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """An operator has ended a drain: nothing of it is kept."""

    kind: str
    name: str

    def __post_init__(self) -> None:
        check_texts(self.kind, self.name)
