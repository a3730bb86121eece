"""Shares of budgets that span sites, as they are written and read."""

from dataclasses import dataclass

from federation.clocks import UtcS
from gateway.ledger.db.checks import check_numbers, check_texts, check_times


@dataclass(frozen=True, slots=True)
class SliceLent:
    """Another site's share of a budget of ours; the newest applies. Written before it is informed.

    Unique by budget, unit, site and account: the holder's account, by its opening time. Amounts are
    decimal texts, in nano-units, counted from then: they may exceed an integer.

    Attributes:
        granted: the total; of it `returned` was given back and `spent` was spent, as the holder
            reports.
        before: spent before its period at `since_ms`, as the holder reports.
        base: the part of `spent` that was spent before our period at `period_ms`.
        life, number: of the last request that counted: the number of the site's run, and the
            request's.
    """

    budget: str
    unit: str
    site: str
    account: int
    granted: str
    returned: str
    spent: str
    before: str
    base: str
    since_ms: int
    period_ms: int
    life: int
    number: int
    heard_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.budget, self.unit, self.site)
        check_texts(self.granted, self.returned, self.spent, self.before, self.base)
        check_numbers(self.account, self.since_ms, self.period_ms, self.life, self.number)
        check_times(self.heard_at_s)


@dataclass(frozen=True, slots=True)
class SliceHeld:
    """Our account of another site's budget: our spending from then on counts.

    Unique by owner, budget and account: its opening time, in milliseconds since 1970.

    Attributes:
        unit, party, span, zone: of the budget, as we knew it then.
        is_closed: all of it was spent or given back, and its owner knows.
    """

    owner: str
    budget: str
    account: int
    unit: str
    party: str
    span: str
    zone: str
    is_closed: bool = False

    def __post_init__(self) -> None:
        check_texts(self.owner, self.budget, self.unit, self.party, self.span, self.zone)
        check_numbers(self.account)
