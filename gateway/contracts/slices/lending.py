"""Slices of this site's budgets that other sites hold: given and spent amounts. Pure.

Only the owner of a budget knows the rest of it. An amount given to a holder stays the holder's
until it says otherwise, however long that takes: it may have spent it. A holder reports its total
spending, and how much of that was before its period began; the rest of a slice that outlives a
period may be spent in the next, and counts there.

A holder that asks when everything is held is told to ask again. Meanwhile an amount is kept free
for it: else the owner's own work would take every amount that comes back.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from federation.clocks import MonoS, UtcS
from federation.errors import GridError
from federation.messages.registry import Receiver
from federation.messages.slices import AskSlice, Slice, amount
from federation.reasons import Reason
from federation.words import duration_text
from gateway.base.handlers import MessageHandler, handles
from gateway.config.budgets import EVER
from gateway.contracts.model.dealing import Consequences
from gateway.ledger.db.budgets.records import SliceLent
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.effects import PeerSide
from policies.costs.budgets import BudgetAccount

ACCOUNTS_MAX: Final = 20  # of one site and budget: one that was written off and opened anew is two
# A slice may be written off when its holder was silent for so many times the slice's duration.
SILENT_FACTOR: Final = 2.0
RESERVED_S: Final = 5.0  # how long an amount is kept free for a holder that could not be given it
PASSING: Final = ("", Reason.BUDGET_EXHAUSTED, Reason.BUSY)  # codes with which a slice lasts
AMOUNTS: Final = ("granted", "returned", "spent", "before", "base")  # stored as texts


class NotLent(GridError):
    """There is no such slice, or it can't be written off; the text says why."""


class Wants(NamedTuple):
    """The amounts that a holder asks for, at most and at least, besides what it holds."""

    held: int
    most: int
    least: int


@dataclass(slots=True)
class LentShare:
    """One holder's share of a budget of this site, since it opened its account; see SliceLent."""

    budget: str
    unit: str
    site: str
    account: int
    granted: int = 0
    returned: int = 0
    spent: int = 0
    before: int = 0  # of that, before its period at `since_ms`
    since_ms: int = 0
    base: int = 0  # of that, before the owner's period at `period_ms`
    period_ms: int = 0
    life: int = 0
    number: int = 0
    heard_at_s: UtcS = UtcS(0.0)
    missing: int = 0  # the unmet part of its last request; not stored

    @property
    def unspent(self) -> int:
        """The amount that it may still spend."""
        return max(0, self.granted - self.returned - self.spent)

    @property
    def spent_now(self) -> int:
        """The amount that it has spent of the owner's present period."""
        return max(0, self.spent - self.base)

    def turn(self, period_ms: int) -> None:
        """Begin a new period of the owner: the spending reported up to now was before it.

        Unless the holder's clock was ahead, and it has reported the new period already.
        """
        if period_ms > self.period_ms:
            self.period_ms = period_ms
            self.base = self.before if self.since_ms == period_ms else self.spent

    def merge(self, message: AskSlice, *, is_same_calendar: bool) -> None:
        """Take a holder's report; all its amounts only grow."""
        self.life, self.number = message.life, message.number
        self.returned = max(self.returned, min(amount(message.returned), self.granted))
        self.spent = max(self.spent, amount(message.spent))
        if not is_same_calendar:
            return  # all its spending counts
        self.since_ms, self.before = message.since_ms, amount(message.before)
        if self.since_ms == self.period_ms:
            self.base = min(self.before, self.spent)
        elif self.since_ms < self.period_ms:
            self.base = self.spent

    def record(self) -> SliceLent:
        """Return it as it is stored."""
        plain: dict[str, Any] = asdict(self)
        del plain["missing"]
        return SliceLent(**(plain | {key: str(plain[key]) for key in AMOUNTS}))


def share_of(row: SliceLent) -> LentShare:
    """Return a share from its stored row."""
    plain: dict[str, Any] = asdict(row)
    return LentShare(**(plain | {key: int(plain[key]) for key in AMOUNTS}))


class Lending(MessageHandler[[MonoS, UtcS], None], receiver=Receiver.LENDING):
    """The slices of this site's budgets that other sites hold.

    Args:
        budget_accounts: of this site.
        outcome: takes answers, and the records to store before them.
    """

    def __init__(self, budget_accounts: BudgetAccounts, outcome: Consequences) -> None:
        self._budget_accounts = budget_accounts
        self._outcome = outcome
        self._shares: dict[
            str, dict[tuple[str, int], LentShare]
        ] = {}  # by budget, site and account

    def recover(self, rows: Iterable[SliceLent], utc_s: UtcS) -> None:
        """Take up the slices that were given out before a restart."""
        for row in rows:
            budget_account = self._owned(row.budget)
            if budget_account is not None and budget_account.budget.unit == row.unit:
                found = self._shares.setdefault(row.budget, {})
                found[row.site, row.account] = share_of(row)
        self.tick(utc_s)

    def of(self, budget: str) -> list[LentShare]:
        """Return the shares of a budget, by site."""
        found = self._shares.get(budget, {})
        return [found[key] for key in sorted(found)]

    def tick(self, utc_s: UtcS) -> None:
        """Handle the passing of time: a period may have ended."""
        for name in self._shares:
            self._count(self._budget_accounts.own[name], utc_s)

    @handles(AskSlice)
    def _asked(self, site: str, message: AskSlice, _: MonoS, utc_s: UtcS) -> None:
        """Take a holder's report and request, and give it an amount; ProtocolError."""
        wants = Wants(amount(message.held), amount(message.want), max(1, amount(message.least)))
        for text in (message.returned, message.spent, message.before):
            amount(text)
        budget_account = self._owned(message.budget)
        share = self._share(site, message, budget_account)
        if share is not None and (message.life, message.number) <= (share.life, share.number):
            return  # overtaken: a later message has repeated its content
        code, reason = self._objection(site, message, budget_account)
        if budget_account is None or (share is None and code):
            self._answer(site, message, None, budget_account, code, reason)
            return
        if share is None:
            share = LentShare(message.budget, message.unit, site, message.account)
            share.period_ms = start_ms(budget_account)
        before = share.granted, share.returned, share.spent
        share.merge(
            message, is_same_calendar=calendar(budget_account) == (message.span, message.zone)
        )
        share.heard_at_s = utc_s
        self._shares.setdefault(message.budget, {})[site, message.account] = share
        self._count(budget_account, utc_s)
        if not code:
            code, reason = self._give(budget_account, share, wants)
            self._count(budget_account, utc_s)
        if (share.granted, share.returned, share.spent) != before:
            # Stored before the answer: a power cut must not repeat a grant, or lose a report.
            self._outcome.write(share.record(), durable=True)
        self._answer(site, message, share, budget_account, code, reason)

    def _give(
        self, budget_account: BudgetAccount, share: LentShare, wants: Wants
    ) -> tuple[str, str]:
        """Give a holder the wanted amount, or a part; else return why not: code and sentence.

        It gets half of the free amount, or the amount kept free for it, so that the first to ask
        does not get all the rest of a budget. A holder that can already begin a task gets nothing
        that is kept for others.
        """
        reserved, share.missing = share.missing, 0
        missing = max(0, wants.held + wants.most - share.unspent) if wants.most else 0
        needed = max(1, wants.held + wants.least - share.unspent)
        can_begin = share.unspent >= wants.held + wants.least
        kept = max(0, budget_account.reserved_nanos - reserved) if can_begin else 0
        free = max(0, budget_account.free_nanos - kept)
        if missing:
            most = max(-(-free // 2), min(reserved, budget_account.reserved_nanos), needed)
            given = min(missing, most, free)
            if given >= min(needed, missing):
                share.granted += given
                return "", ""
            share.missing = 0 if can_begin else missing
        elif free >= needed:
            return "", ""
        # Held or lent amounts may come back, here and elsewhere; this holder's amounts are its own.
        is_out = budget_account.is_exhausted(wants.least)
        return (Reason.BUDGET_EXHAUSTED if is_out else Reason.BUSY), budget_account.standing()

    def write_off(self, budget: str, site: str, utc_s: UtcS) -> int:
        """Count only the spending that a site has reported: it will never spend the rest.

        Return the freed amount, in nano-units. Raises NotLent.
        """
        budget_account = self._owned(budget)
        found = [each for each in self.of(budget) if each.site == site and each.unspent]
        if budget_account is None or not found:
            raise NotLent(f"{site!r:.60} holds no slice of a budget {budget!r:.60} of this site")
        silent_s = SILENT_FACTOR * budget_account.budget.slice_s
        for share in found:
            ago_s = utc_s - share.heard_at_s
            if ago_s < silent_s:
                raise NotLent(
                    f"{site} was last heard from {duration_text(ago_s)} ago: its slices can be "
                    f"written off only after {duration_text(silent_s)} of silence"
                )
        freed = sum(share.unspent for share in found)
        for share in found:
            share.returned = max(share.returned, share.granted - share.spent)
            self._outcome.write(share.record(), durable=True)
        self._count(budget_account, utc_s)
        return freed

    # --- internals -----------------------------------------------------------------------------

    def _owned(self, budget: str) -> BudgetAccount | None:
        """Return a budget of this site that may be given out."""
        budget_account = self._budget_accounts.own.get(budget)
        is_ours = (
            budget_account is not None
            and not budget_account.budget.owner
            and budget_account.budget.is_hard
        )
        return budget_account if is_ours else None

    def _share(
        self, site: str, message: AskSlice, budget_account: BudgetAccount | None
    ) -> LentShare | None:
        if budget_account is None or budget_account.budget.unit != message.unit:
            return None
        return self._shares.get(message.budget, {}).get((site, message.account))

    def _objection(
        self, site: str, message: AskSlice, budget_account: BudgetAccount | None
    ) -> tuple[str, str]:
        """Return why a holder gets nothing, as code and sentence; empty: it may."""
        if budget_account is None or site not in budget_account.budget.sites:
            # A site without a right to a budget is not told whether it exists.
            name = message.budget[:60]
            return Reason.NOT_ENTITLED, f"no budget {name!r} of this site is shared with {site}"
        budget, asked = budget_account.budget, (message.unit, message.span, message.zone)
        if asked != (budget.unit, *calendar(budget_account)):
            ours = ", ".join((budget.unit, *calendar(budget_account)))
            theirs = ", ".join(asked)[:100]
            return (
                Reason.BAD_REQUEST,
                f"the budget is in {ours} at its owner, and in {theirs} at the borrower",
            )
        accounts = [each for each in self.of(message.budget) if each.site == site]
        is_known = any(each.account == message.account for each in accounts)
        if not is_known and len(accounts) >= ACCOUNTS_MAX:
            return (
                Reason.BAD_REQUEST,
                f"{site} has {len(accounts)} open accounts of the budget, the maximum",
            )
        return "", ""

    def _count(self, budget_account: BudgetAccount, utc_s: UtcS) -> None:
        """Recount the amounts of other sites in a budget's period."""
        budget_account.turn(utc_s)
        shares = self._shares.get(budget_account.budget.name, {}).values()
        silent_s = utc_s - SILENT_FACTOR * budget_account.budget.slice_s
        lent = lost = wanted = 0
        for share in shares:
            share.turn(start_ms(budget_account))
            if share.heard_at_s >= silent_s:
                lent += share.unspent
            else:  # it may never come back
                lost += share.unspent
            if share.heard_at_s >= utc_s - RESERVED_S:
                wanted += share.missing
        budget_account.lent_nanos = lent
        budget_account.elsewhere_nanos = sum(share.spent_now for share in shares) + lost
        budget_account.reserved_nanos = min(wanted, max(0, budget_account.left_nanos) // 2)

    def _answer(
        self,
        site: str,
        message: AskSlice,
        share: LentShare | None,
        budget_account: BudgetAccount | None,
        code: str,
        reason: str,
    ) -> None:
        lasts = budget_account is not None and code in PASSING
        answer = Slice(
            *(message.budget, message.account, message.life, message.number),
            str(share.granted if share is not None else 0),
            str(share.returned if share is not None else 0),
            budget_account.budget.slice_s if budget_account is not None and lasts else 0.0,
            start_ms(budget_account) if budget_account is not None and lasts else 0,
            str(max(0, budget_account.left_nanos) if budget_account is not None and lasts else 0),
            *(code, reason[:300]),
        )
        self._outcome.say(site, PeerSide.BUYER, answer)


def start_ms(budget_account: BudgetAccount) -> int:
    """Return when a budget's period began, in milliseconds since 1970; 0: it has none."""
    return 0 if budget_account.period is None else round(budget_account.period.start_at_s * 1000)


def calendar(budget_account: BudgetAccount) -> tuple[str, str]:
    """Return the period and the zone of a budget, as they travel."""
    budget = budget_account.budget
    return (EVER if budget.span is None else budget.span.value), budget.zone.key
