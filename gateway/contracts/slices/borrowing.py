"""Slices of other sites' budgets: the amounts that this site was given, and asks for. Pure.

Each such budget has one account, which is on this site's disk before anything is asked: all that is
spent here from then on counts, by the books. So after a restart the spending is known, and the
owner reports the amounts that it has given. An account whose budget is gone from the configuration,
or has changed there, is reported once more, and given back.

This site asks when work is queued, and ahead of that while it spends; it gives back idle amounts. A
slice lasts for a while from the time of the request: a site that can't reach the owner stops
starting new work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages.registry import Receiver
from federation.messages.slices import AskSlice, Slice, amount
from federation.reasons import Reason
from gateway.base.handlers import MessageHandler, handles
from gateway.config.budgets import EVER
from gateway.contracts.model.dealing import Consequences
from gateway.contracts.model.purchase import shown
from gateway.contracts.slices.lending import PASSING, Wants, calendar, start_ms
from gateway.ledger.db.budgets.records import SliceHeld
from gateway.scheduler.model.budget_accounts import BudgetAccounts, BudgetSpent
from gateway.scheduler.model.effects import PeerSide
from policies.calendar.periods import PeriodLength, read_zone
from policies.costs.budgets import Budget, BudgetAccount
from policies.parties import known_party

AGAIN_S: Final = 0.25  # between two requests, while the owner gives enough
ANSWER_S: Final = 2.0  # time-out of a request; and the pause after a refusal
REFUSED_S: Final = 30.0  # the same when the owner rejects the request itself
PROBE_S: Final = 10.0  # between requests to an exhausted budget, when no work is queued
REST_S: Final = 600.0  # between requests when nothing is held: the owner may believe otherwise
WANTED_S: Final = 2.0  # queued work is noted anew within less
IDLE_S: Final = 10.0  # amounts that were not used for so long are given back
SLICE_MAX_S: Final = 86_400.0
TEXT_CHARS_MAX: Final = 300
RENEWALS: Final = 3  # requests in the time for which a slice lasts


@dataclass(slots=True)
class SliceAccount:
    """This site's account of another's budget. A former one has no budget, only its spending.

    `until_s` and `asked_at_s` are monotonic.
    """

    kept: SliceHeld
    budget_account: BudgetAccount | None
    spent: BudgetSpent | None = None  # of a former one
    since_ms: int = 0  # likewise
    granted: int = 0
    returned: int = 0
    early: int = 0  # of the given amount: for a period that has not begun by this site's clock
    early_ms: int = 0  # when that period begins
    number: int = 0  # of the last request
    answered: int = 0  # the last that was answered
    asked_at_s: MonoS = MonoS(-inf)
    until_s: MonoS = MonoS(-inf)
    lasts_s: float = 0.0
    busy_at_s: MonoS = MonoS(-inf)  # when it was last used, or wanted
    # The needs without room, as last noted: the least, and the most, of a task.
    wanted: int = 0
    wanted_most: int = 0
    wanted_at_s: MonoS = MonoS(-inf)
    told: int = 0  # the spending that was last reported
    seen: tuple[int, int] = (0, 0)  # spent and held, at the last look
    period_ms: int = 0  # the period then
    code: str = ""  # why it is less than wanted

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is awaited."""
        return self.answered < self.number

    def pause_s(self, *, is_wanting: bool) -> float:
        """Return the pause after the last request."""
        if not self.number:
            return 0.0
        if self.is_waiting:
            return ANSWER_S
        if self.code not in PASSING:
            return REFUSED_S
        if is_wanting:
            return ANSWER_S if self.code else AGAIN_S
        if self.is_given_back:
            return PROBE_S if self.code else REST_S
        return max(self.lasts_s / RENEWALS, AGAIN_S)

    @property
    def is_given_back(self) -> bool:
        """Whether the owner knows that nothing of it will be spent any more."""
        is_known = 0 < self.answered == self.number
        return is_known and self.granted <= self.returned + self.told


class Borrowing(MessageHandler[[MonoS, UtcS], None], receiver=Receiver.BORROWING):
    """This site's slices of other sites' budgets.

    Args:
        budget_accounts: of this site.
        boot: counts the starts of this site.
        outcome: takes requests, and the records to store before them.
    """

    def __init__(self, budget_accounts: BudgetAccounts, boot: int, outcome: Consequences) -> None:
        self._budget_accounts = budget_accounts
        self._boot = boot
        self._outcome = outcome
        self._accounts: list[SliceAccount] = []

    @property
    def owners(self) -> set[str]:
        """The sites whose budgets this site spends from."""
        return {each.kept.owner for each in self._accounts}

    def recover(self, spent: Mapping[SliceHeld, BudgetSpent], utc_s: UtcS) -> None:
        """Take up accounts that are not closed, and open new ones.

        `spent` is the spending under each, by the books.
        """
        found = {(each.owner, each.budget): each for each in spent if self._is_ours(each)}
        for row in spent:
            if found.get((row.owner, row.budget)) != row:
                period = BudgetAccount(former_budget(row), utc_s)
                self._accounts.append(SliceAccount(row, None, spent[row], start_ms(period)))
        for budget_account in self._budget_accounts.own.values():
            if budget_account.budget.owner:
                kept = found.get((budget_account.budget.owner, budget_account.budget.name))
                self._accounts.append(
                    SliceAccount(kept or self._open(budget_account, utc_s), budget_account)
                )

    def _is_ours(self, row: SliceHeld) -> bool:
        budget_account = self._budget_accounts.own.get(row.budget)
        return budget_account is not None and row == held_of(budget_account, row.account)

    def _open(self, budget_account: BudgetAccount, utc_s: UtcS) -> SliceHeld:
        kept = held_of(budget_account, round(utc_s * 1000))
        self._outcome.write(kept, durable=True)
        return kept

    # --- as time passes ------------------------------------------------------------------------

    def tick(self, mono_s: MonoS, utc_s: UtcS) -> None:
        """Ask for needed amounts, give back unneeded ones, and stop where a slice has lapsed."""
        for account in list(self._accounts):
            if account.budget_account is None:
                self._tell_former(account, mono_s)
            else:
                self._tick(account, account.budget_account, mono_s, utc_s)

    def _tick(
        self, account: SliceAccount, budget_account: BudgetAccount, mono_s: MonoS, utc_s: UtcS
    ) -> None:
        budget_account.turn(utc_s)
        budget_account.is_open = mono_s < account.until_s
        if account.early and start_ms(budget_account) >= account.early_ms:
            budget_account.allotted_nanos += account.early
            account.early = 0
        if start_ms(budget_account) != account.period_ms:
            account.period_ms = start_ms(budget_account)
            # It may have begun anew at its owner's as well.
            budget_account.refused = account.code = ""
        free = max(
            0,
            budget_account.allotted_nanos - budget_account.total_nanos - budget_account.held_nanos,
        )
        usable = free if budget_account.is_open else 0
        needed = budget_account.least_short_nanos or budget_account.short_nanos
        if needed > usable:
            account.wanted, account.wanted_most = needed, budget_account.short_nanos
            account.wanted_at_s = mono_s
        is_short = account.wanted > usable and mono_s - account.wanted_at_s < WANTED_S
        used = budget_account.total_nanos, budget_account.held_nanos
        if is_short or used != account.seen:
            account.busy_at_s = mono_s
        account.seen = used
        is_refused = account.code not in PASSING
        is_busy = mono_s - account.busy_at_s < IDLE_S and not is_refused
        is_low = is_busy and 2 * free < budget_account.budget.amount_nanos
        # Less than a task may use up is of no use here: other sites may have the rest that it
        # needs.
        is_useless = is_short and free < account.wanted and not budget_account.held_nanos
        is_idle = free > 0 and (not is_busy or (is_useless and account.code == Reason.BUSY))
        if mono_s - account.asked_at_s < account.pause_s(is_wanting=is_short or is_low or is_idle):
            return
        if is_idle:
            account.returned += free
            budget_account.allotted_nanos -= free
        most = max(budget_account.budget.amount_nanos, account.wanted_most)
        wants = Wants(
            budget_account.held_nanos,
            most if is_busy and (is_short or account.granted) else 0,
            account.wanted if is_short else 1,
        )
        spent = BudgetSpent(budget_account.total_nanos, budget_account.spent_nanos)
        self._say(account, calendar(budget_account), spent, start_ms(budget_account), wants, mono_s)

    def _tell_former(self, account: SliceAccount, mono_s: MonoS) -> None:
        """Report the spending of an account whose budget this site no longer spends from."""
        # Work that has run on since then is held in the new budget: until that has room, this one
        # pays.
        heir = self._budget_accounts.own.get(account.kept.budget)
        if heir is not None and heir.budget.owner == account.kept.owner and heir.room_nanos < 0:
            return
        pause_s = ANSWER_S if account.is_waiting else AGAIN_S
        if mono_s - account.asked_at_s < pause_s:
            return
        assert account.spent is not None
        if account.is_given_back:
            self._outcome.write(replace(account.kept, is_closed=True))
            self._accounts.remove(account)
            return
        account.returned = max(account.returned, account.granted - account.spent.total_nanos)
        kept = account.kept
        where = (kept.span, kept.zone)
        self._say(account, where, account.spent, account.since_ms, Wants(0, 0, 1), mono_s)

    def _say(
        self,
        account: SliceAccount,
        where: tuple[str, str],
        spent: BudgetSpent,
        since_ms: int,
        wants: Wants,
        mono_s: MonoS,
    ) -> None:
        account.number += 1
        account.asked_at_s = mono_s
        account.told = spent.total_nanos
        kept = account.kept
        # A reported spending must survive a power cut, too.
        self._outcome.harden()
        self._outcome.say(
            kept.owner,
            PeerSide.SELLER,
            AskSlice(
                *(kept.budget, kept.account, self._boot, account.number, kept.unit, *where),
                returned=str(account.returned),
                spent=str(spent.total_nanos),
                before=str(spent.total_nanos - spent.period_nanos),
                since_ms=since_ms,
                held=str(wants.held),
                want=str(wants.most),
                least=str(wants.least),
            ),
        )

    # --- answers of owners ---------------------------------------------------------------------

    @handles(Slice)
    def _answered(self, owner: str, message: Slice, *_: object) -> None:
        """Take the answer of an owner; ProtocolError."""
        granted, returned = amount(message.granted), amount(message.returned)
        left = amount(message.left)
        if not 0 <= message.lasts_s <= SLICE_MAX_S:
            raise ProtocolError("the duration of a slice must be finite and greater than zero")
        for account in self._accounts:
            kept = account.kept
            asked = (owner, message.budget, message.account)
            if asked != (kept.owner, kept.budget, kept.account) or message.life != self._boot:
                continue
            if message.number <= account.number:
                self._heard(account, message, granted, returned, left)

    def _heard(
        self, account: SliceAccount, message: Slice, granted: int, returned: int, left: int
    ) -> None:
        if account.budget_account is not None and message.since_ms > start_ms(
            account.budget_account
        ):
            account.early += max(0, granted - account.granted)
            account.early_ms = message.since_ms
        account.granted = max(account.granted, granted)
        account.returned = max(account.returned, returned)
        budget_account = account.budget_account
        if budget_account is not None:
            budget_account.allotted_nanos = account.granted - account.returned - account.early
        if message.number <= account.answered:
            return  # overtaken: only the given amount of it counts
        account.answered = message.number
        account.code, account.lasts_s = shown(message.code, TEXT_CHARS_MAX), message.lasts_s
        is_newest = message.number == account.number
        if is_newest:  # the request times of older answers are forgotten
            account.until_s = account.asked_at_s + message.lasts_s
        if budget_account is not None:
            is_refused = message.code not in ("", Reason.BUSY)
            budget_account.refused = shown(message.reason, TEXT_CHARS_MAX) if is_refused else ""
            budget_account.refused_nanos = left + 1  # smaller needs may still have room
            budget_account.is_open = message.lasts_s > 0 if is_newest else budget_account.is_open

    def lasts_s(self, budget_account: BudgetAccount, mono_s: MonoS) -> float | None:
        """Return how long a budget's slice may be used; None: the budget is this site's own."""
        for account in self._accounts:
            if account.budget_account is budget_account:
                return max(0.0, account.until_s - mono_s)
        return None


def held_of(budget_account: BudgetAccount, account: int) -> SliceHeld:
    """Return an account of another site's budget, as it is stored."""
    budget = budget_account.budget
    where = (budget.owner, budget.name, account, budget.unit, str(budget.party))
    return SliceHeld(*where, *calendar(budget_account))


def former_budget(row: SliceHeld) -> Budget:
    """Return the budget of a stored account, as it was configured when that was opened."""
    span = None if row.span == EVER else PeriodLength(row.span)
    zone = read_zone(row.zone)
    return Budget(row.budget, known_party(row.party), row.unit, 1, span, zone, owner=row.owner)
