"""Gateways that spend from one budget, as pure objects: their budgets, disks and messages."""

from collections import deque
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from federation.messages.slices import AskSlice
from gateway.contracts.model.dealing import Consequences
from gateway.contracts.slices.borrowing import Borrowing, held_of
from gateway.contracts.slices.lending import Lending
from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from gateway.scheduler.model.budget_accounts import BudgetAccounts, BudgetSpent
from gateway.scheduler.model.effects import Harden, SendToSite, Write
from policies.calendar.periods import PeriodLength
from policies.costs.budgets import Budget
from policies.parties import read_party

AMOUNT, SLICE = 60, 25
BEGIN_S = 1_700_000_000.0
LONDON = ZoneInfo("Europe/London")
SITES = ("london", "paris", "lyon", "essex")  # the first is the owner
TERMS = {"party": read_party("project:risk"), "unit": "USD", "zone": LONDON}


def own_budget(**changes):
    fields = {
        "name": "risk",
        "amount_nanos": AMOUNT,
        "span": PeriodLength.DAY,
        "slice_s": 60.0,
        **TERMS,
    }
    return Budget(**(fields | {"sites": frozenset(SITES[1:])} | changes))


def slice_of(**changes):
    fields = {
        "name": "risk",
        "amount_nanos": SLICE,
        "span": PeriodLength.DAY,
        "owner": "london",
        **TERMS,
    }
    return Budget(**(fields | changes))


@dataclass(frozen=True)
class SliceUsage:
    """A usage record, as far as it matters here."""

    at_s: float
    nanos: int


@dataclass
class SliceWork:
    """Running work, and the money held for it. A contract goes on when its gateway dies."""

    left: int
    is_contract: bool


class SliceGateway:
    """The budgets of one site, the rows on its disk, and the work that spends its part."""

    def __init__(self, town, name, budget, skew_s=0.0):
        self.town, self.name, self.budget, self.skew_s = town, name, budget, skew_s
        self.log = []  # what was written; of it `committed` survives a kill, `hard` a power cut
        self.committed = self.hard = 0
        self.work = []
        self.boot = 0
        self.start()

    @property
    def utc_s(self):
        return self.town.now_s + self.skew_s

    def start(self):
        self.boot += 1
        self.outcome = Consequences()
        self.budget_accounts = BudgetAccounts([self.budget], utc_s=self.utc_s)
        (self.budget_account,) = self.budget_accounts.own.values()
        self.lending = Lending(self.budget_accounts, self.outcome)
        self.borrowing = Borrowing(self.budget_accounts, self.boot, self.outcome)
        lent = {(e.site, e.account): e for e in self.log if isinstance(e, SliceLent)}
        held = {e.account: e for e in self.log if isinstance(e, SliceHeld)}
        accounts = {e: self.spent(e.account / 1000) for e in held.values() if not e.is_closed}
        known = BudgetSpent(0, 0) if self.budget.owner else self.spent(0.0)
        for each, spent in accounts.items():
            known = spent if each == held_of(self.budget_account, each.account) else known
        self.budget_accounts.take_up({self.budget.name: known}, {}, self.utc_s)
        self.lending.recover(lent.values(), self.utc_s)
        self.borrowing.recover(accounts, self.utc_s)
        for each in self.work:
            self.budget_account.held_nanos += each.left
        self.perform()

    def spent(self, since_s):
        """The content of the books, as gateway.runtime.budget_books reads it."""
        period = self.budget.period_at(self.utc_s)
        found = [e for e in self.log if isinstance(e, SliceUsage) and e.at_s >= since_s]
        start_at_s = period.start_at_s if period is not None else 0.0
        now = sum(e.nanos for e in found if e.at_s >= start_at_s)
        return BudgetSpent(sum(e.nanos for e in found), now)

    def perform(self):
        """As the outbox does: messages wait for the rows that were written before them."""
        effects, self.outcome.effects = self.outcome.effects, []
        for effect in effects:
            match effect:
                case Write(record, durable):
                    self.log.append(record)
                    if durable:
                        self.hard = self.committed = len(self.log)
                case Harden():
                    self.hard = self.committed = len(self.log)
                case SendToSite(site, _, message):
                    self.committed = len(self.log)
                    self.town.mail.append((self.name, site, message))

    def die(self, *, power):
        del self.log[self.hard if power else self.committed :]
        self.committed = len(self.log)
        self.hard = min(self.hard, len(self.log))
        self.work = [each for each in self.work if each.is_contract]
        self.start()

    def begin(self, each, tasks, *, is_contract=False):
        """Hand out as many of so many tasks as there is room for."""
        self.budget_account.turn(self.utc_s)
        for _ in range(self.budget_account.fits(each, tasks)):
            self.budget_account.held_nanos += each
            self.work.append(SliceWork(each, is_contract))
            if is_contract:  # it is on the disk before it is committed to
                self.hard = self.committed = len(self.log)

    def report(self, at, nanos, *, is_last=True):
        """Some work has come to so much; a contract may deliver again."""
        work = self.work[at]
        nanos = min(nanos, work.left)
        is_last = is_last or not work.is_contract
        released = work.left if is_last else nanos
        self.budget_account.held_nanos -= released
        work.left -= released
        if is_last:
            del self.work[at]
        self.budget_account.spend(nanos, self.utc_s)
        self.log.append(SliceUsage(self.utc_s, nanos))

    def tick(self):
        self.lending.tick(self.utc_s)
        self.borrowing.tick(self.town.now_s, self.utc_s)
        self.perform()
        self.budget_account.short_nanos = self.budget_account.least_short_nanos = 0

    def hear(self, sender, message):
        part = self.lending if isinstance(message, AskSlice) else self.borrowing
        part.hear(sender, message, self.town.now_s, self.utc_s)
        self.perform()


class SliceTown:
    """Gateways, and the messages between them."""

    def __init__(self, skews=(0.0,) * 4, owned=None, held=None):
        self.now_s = BEGIN_S
        self.mail = deque()
        self.gateways = {}
        for name, skew_s in zip(SITES, skews, strict=True):
            budget = (owned or own_budget()) if name == "london" else (held or slice_of())
            self.gateways[name] = SliceGateway(self, name, budget, skew_s)

    @property
    def owner(self):
        return self.gateways["london"]

    def deliver(self, at=0):
        sender, receiver, message = self.mail[at]
        del self.mail[at]
        if receiver in self.gateways:
            self.gateways[receiver].hear(sender, message)

    def run(self, seconds, step_s=0.5):
        """Let time pass with nothing lost."""
        end_at_s = self.now_s + seconds
        while self.now_s < end_at_s:
            self.now_s += step_s
            for each in self.gateways.values():
                each.tick()
            while self.mail:
                self.deliver()

    def show(self):
        """The state of each gateway, for the reader of a failed test."""
        shares = self.owner.lending.of("risk")
        accounts = [one for each in self.gateways.values() for one in each.borrowing._accounts]
        return "\n".join(map(str, [self.by_period(), *shares, *accounts]))

    def by_period(self):
        """The spending in the books of all sites together, by period."""
        found = {}
        for each in self.gateways.values():
            for spent in each.log:
                if isinstance(spent, SliceUsage):
                    period = each.budget.period_at(spent.at_s)
                    key = period.key if period is not None else "ever"
                    found[key] = found.get(key, 0) + spent.nanos
        return found
