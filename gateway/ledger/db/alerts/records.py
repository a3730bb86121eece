"""Alerts that were sent to operators: what is written, and what is read back."""

from dataclasses import dataclass

from federation.clocks import UtcS
from gateway.ledger.db.checks import check_numbers, check_texts, check_times


@dataclass(frozen=True, slots=True)
class AlertFired:
    """An alert was sent to the operators; unique by (name, key, level).

    An alert that has ended can fire again; it then starts anew.

    Attributes:
        key: its subject: a budget's period and amount, a pool, a site.
        level: of a budget, in per cent; 0 for an alert without levels.
    """

    name: str
    key: str
    level: int
    at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.name, self.key)
        check_numbers(self.level)
        check_times(self.at_s)


@dataclass(frozen=True, slots=True)
class AlertEnded:
    """The condition of an alert is over: if it returns, the operators are alerted again."""

    name: str
    key: str
    level: int
    ended_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.name, self.key)
        check_numbers(self.level)
        check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert as it fired last; `ended_at_s` is None while its condition holds."""

    name: str
    key: str
    level: int
    at_s: UtcS
    ended_at_s: UtcS | None
