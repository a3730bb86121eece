"""Invariants of the books: of each site's after every commit, and between sites.

The books are read from the disks, not as any site believes them to be. Records that a seller had
not synced before a power cut are not in its books: its buyer has them, and has not paid for them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from federation.clocks import UtcS
from federation.messages.payments import PaymentStanding
from federation.messages.reconciliation import DAY_MS, BookEntry, tally_of
from federation.ranges import RangeSet
from gateway.config.books import period_of
from gateway.ledger.accounting.journal import GENESIS, Booked, digest
from gateway.ledger.accounting.postings import Balance, LedgerAccount
from gateway.ledger.accounting.settlement import Turnover
from gateway.ledger.db.contracts.records import ContractOpened, ContractSide, Posted
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import DisputeRow, DisputeSettled, StatementKept
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store import owed
from simulations.world.gateway import SimMember
from simulations.world.invariants.invariants import Invariant
from simulations.world.memory.store import MemoryStore
from simulations.world.operators import END_S

if TYPE_CHECKING:
    from simulations.world.world import World

END_MS: Final = int(END_S * 1000)
NOBODY: Final = Balance()

Row = tuple[int, int, str]  # tasks, cost, verdict
Span = tuple[int, int]  # [first_ms, stop_ms)


class BooksAgree(Invariant):
    """Both sides of a contract have the same deliveries with the same verdicts, none open."""

    def finish(self) -> None:
        """Compare the books, contract by contract."""
        for seller in self.world.sites.values():
            for buyer in self.world.sites.values():
                if buyer is not seller:
                    self._compare(buyer, seller)

    def _compare(self, buyer: SimMember, seller: SimMember) -> None:
        bought = _rows(buyer, "buy", seller.name)
        sold = _rows(seller, "sell", buyer.name)
        for key, row in sold.items():
            other = bought.get(key)
            text = f"{key}: {seller.name} sold {row}, {buyer.name} bought {other}"
            # A delivery that is void at the seller is missing or void at the buyer.
            is_same = other == row if row[2] == "post" else other is None or other[2] == "void"
            if row[2] == "pending":
                self.fail(f"no verdict was reached for {text}")
            elif not is_same:
                self.fail(text)
        for key, row in bought.items():
            if key not in sold and row[2] != "void":
                self.fail(f"{key}: {buyer.name} bought {row}, which {seller.name} has no record of")


def _rows(site: SimMember, side: str, other: str) -> dict[tuple[str, int, int], Row]:
    """Return (contract, epoch, first) → a site's record of its deliveries with another."""
    tables = site.disk.tables
    found: dict[tuple[str, int, int], Row] = {}
    for key, posted in tables.postings.items():
        contract = tables.contracts.get(key[:2])
        if key[0] == side and contract is not None and contract.site == other:
            verdict = tables.verdicts.get(key, "pending")
            found[key[1:]] = posted.tasks, posted.cost_nanos, verdict
    return found


class ReportsAreStatements(Invariant):
    """Reports and statements agree: usage records and deliveries have the same sums.

    The charges for a contract in its seller's books equal the deliveries under it, to the
    nano-unit. The charges to a buyer's users, and to the buyer for repeated runs, equal the
    deliveries to it. Work that it buys for another site has that contract's price; its margins have
    the deliveries of both sides.
    """

    def finish(self) -> None:
        """Compare contract by contract, and at the buyer job by job."""
        for site in self.world.sites.values():
            delivered = _delivered(site)
            for key, nanos in delivered.items():
                side, other, job = key
                used = list(site.disk.tables.usage.get(job, {}).values())
                if side == "buy":
                    used = [each for each in used if each.site == other]
                charged = sum(each.cost_nanos for each in used)
                is_passed_on = side == "buy" and ":" in job
                if not is_passed_on and charged != nanos:
                    text = f"charged {charged} nanos, but {nanos} were delivered"
                    self.fail(f"{site.name}, {side} with {other}: {text}", job)
            self._check_strangers(site, {job for side, _, job in delivered if side == "sell"})
            self._check_margins(site, delivered)

    def _check_margins(self, site: SimMember, delivered: Counter[tuple[str, str, str]]) -> None:
        """Check that what a relay is told of its margins is what was delivered and charged."""
        rows = MemoryStore(site.disk).contracts.relayed(UtcS(0.0), END_S)
        told: Counter[tuple[str, str, str]] = Counter()
        for each in rows:
            if each.state != "reversed":
                told[each.side, each.site, each.job] += each.cost_nanos
        for (side, other, job), nanos in delivered.items():
            used = site.disk.tables.usage.get(job, {}).values()
            is_passed_on = ":" in job and (side == "buy" or any(each.site for each in used))
            if is_passed_on and told[side, other, job] != nanos:
                text = f"{nanos} nanos were delivered, but its margin has {told[side, other, job]}"
                self.fail(f"{site.name}, {side} with {other}: {text}", job)

    def _check_strangers(self, site: SimMember, sold: set[str]) -> None:
        """Check that every charge to another site belongs to a contract."""
        for job, used in site.disk.tables.usage.items():
            charged = sum(each.cost_nanos for each in used.values() if each.origin)
            if charged and job not in sold:
                self.fail(f"{site.name} charged {charged} nanos for {job}, without a contract", job)


def _delivered(site: SimMember) -> Counter[tuple[str, str, str]]:
    """Return (side, site, job) → the deliveries under its contracts, with any verdict."""
    tables = site.disk.tables
    jobs = {key: _as_charged(each) for key, each in tables.contracts.items()}
    found = Counter(dict.fromkeys(jobs.values(), 0))
    for key, posted in tables.postings.items():
        if key[:2] in jobs:
            found[jobs[key[:2]]] += posted.cost_nanos
    return found


def _as_charged(contract: ContractOpened) -> tuple[str, str, str]:
    """Return side, site and job of a contract; the job as its usage records name it."""
    is_bill = contract.side == "sell" and ":" not in contract.job  # of a reservation
    job = f"{contract.site}:{contract.job}" if is_bill else contract.job
    return contract.side, contract.site, job


@dataclass(slots=True)
class _Ledger:
    """A site's ledger after its last commit."""

    last: Booked | None = None
    nets: Counter[str] = field(default_factory=Counter)  # by currency, and the held part of it
    seen: dict[LedgerAccount, tuple[int, int]] = field(default_factory=dict)  # net, and held
    runs: defaultdict[tuple[str, int], RangeSet] = field(  # that were charged, by job and attempt
        default_factory=lambda: defaultdict(RangeSet)
    )


class BooksBalance(Invariant):
    """After every commit debits equal credits, the chain continues, and a run is charged once.

    This holds in each currency, and only existing holds are resolved. In the end nothing is held,
    and the debts of two sites are the same in both books.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._ledgers: dict[str, _Ledger] = {}

    def committed(
        self, site: SimMember, records: Sequence[Record], booked: Sequence[Booked], *, is_anew: bool
    ) -> None:
        """Check the new records, and the accounts that they changed."""
        if is_anew:
            self._ledgers[site.name] = _Ledger()
        ledger = self._ledgers[site.name]
        for record in records:
            if isinstance(record, UsageRecord) and record.is_charge:
                self._charge(site, ledger, record)
        if booked:
            self._chain(site, ledger, booked)
            self._balance(site, ledger, booked)

    def _charge(self, site: SimMember, ledger: _Ledger, record: UsageRecord) -> None:
        if site.disk.tables.usage[record.job][record.first, record.attempt] is not record:
            return  # it was there before
        runs, span = (
            ledger.runs[record.job, record.attempt],
            (record.first, record.first + record.tasks),
        )
        again = runs.within(*span)
        if again:
            text = f"{site.name} charges attempt {record.attempt} of tasks {again} twice"
            self.fail(text, record.job, again[0][0])
        runs.add(*span)

    def _chain(self, site: SimMember, ledger: _Ledger, booked: Sequence[Booked]) -> None:
        for each in booked:
            number, before = (
                (ledger.last.number, ledger.last.hash) if ledger.last is not None else (0, GENESIS)
            )
            if each.number != number + 1 or each.hash != digest(before, each.number, each.transfer):
                self.fail(f"{site.name}: transfer {each.number} does not follow {number}")
            ledger.last = each

    def _balance(self, site: SimMember, ledger: _Ledger, booked: Sequence[Booked]) -> None:
        balances, nets = site.disk.tables.balances, ledger.nets
        sides = (side for each in booked for side in (each.transfer.debit, each.transfer.credit))
        for account in dict.fromkeys(sides):
            balance = balances[account]
            if balance.held_debits_nanos < 0 or balance.held_credits_nanos < 0:
                self.fail(f"{site.name}: the holds on {account} are negative: {balance}")
            net, held = ledger.seen.get(account, (0, 0))
            ledger.seen[account] = balance.net_nanos, balance.held_nanos
            nets[account.currency] += balance.net_nanos - net
            nets[f"{account.currency} held"] += balance.held_nanos - held
        if any(nets.values()):
            self.fail(f"{site.name}: debits differ from credits: {dict(nets)}")

    def finish(self) -> None:
        """Compare the debts between sites."""
        for site in self.world.sites.values():
            for account, balance in site.disk.tables.balances.items():
                if account.kind in ("bought", "sold", "site"):
                    self._compare(site, account, balance)

    def _compare(self, site: SimMember, account: LedgerAccount, balance: Balance) -> None:
        other = self.world.sites[account.name]
        if balance.held_nanos:
            self.fail(f"{site.name}: {balance.held_nanos} is still held on {account}")
        if account.kind == "site":
            mirror = replace(account, name=site.name)
            owed_nanos = other.disk.tables.balances.get(mirror, NOBODY).net_nanos
            if owed_nanos != -balance.net_nanos:
                text = f"{balance.net_nanos} on {account}, {owed_nanos} in its books"
                self.fail(f"{site.name} has {text}")


class DaysAgree(Invariant):
    """Agreed days are the same in both books when the sites agree, and stay so.

    In the end, when all days are over, both have agreed on each day with entries, and closed each
    period; disputes have the same answer at both, or are open at both; each payment is confirmed at
    both; statements are the same at both, to the nano-unit.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._agreed: defaultdict[tuple[str, str, str], set[Span]] = defaultdict(set)

    def committed(
        self, site: SimMember, records: Sequence[Record], booked: Sequence[Booked], *, is_anew: bool
    ) -> None:
        """Check new agreements, and that no record is booked into an agreed span."""
        if is_anew:
            for key in [each for each in self._agreed if each[0] == site.name]:
                del self._agreed[key]
        for record in records:
            match record:
                case Posted() | DisputeSettled():
                    self._book(site, record)
                case StatementKept(state="agreed"):
                    self._agree(site, record)

    def _book(self, site: SimMember, record: Posted | DisputeSettled) -> None:
        at_ms = _stands(site, record)
        for first_ms, stop_ms in self._agreed[site.name, record.side, record.site]:
            if at_ms is not None and first_ms <= at_ms < stop_ms:
                self.fail(
                    f"{site.name} books into [{first_ms}, {stop_ms}), which is agreed on: {record}"
                )

    def _agree(self, site: SimMember, record: StatementKept) -> None:
        span = record.first_ms, record.stop_ms
        self._agreed[site.name, record.side, record.site].add(span)
        seller = self.world.sites[record.site] if record.side == "buy" else site
        buyer = site if record.side == "buy" else self.world.sites[record.site]
        for each in (_entries(buyer, "buy", seller, span), _entries(seller, "sell", buyer, span)):
            if tally_of(each).digest != record.digest:
                text = f"{site.name} agrees on [{span[0]}, {span[1]}) with {record.site}"
                self.fail(f"{text}, but their books differ: {_difference(buyer, seller)}")

    def finish(self) -> None:
        """Check that everything is settled, and the same at both."""
        for buyer in self.world.sites.values():
            for name in buyer.plan.others:
                seller = self.world.sites[name]
                open_ = next(unsettled(buyer, seller), "")
                if open_:
                    self.fail(open_)
                self._compare_statements(buyer, seller)

    def _compare_statements(self, one: SimMember, other: SimMember) -> None:
        ours, theirs = (
            {
                each.currency: (each.balance_nanos, each.turnover)
                for each in owed.statements(store, name, UtcS(0.0), END_S)
            }
            for store, name in (
                (MemoryStore(one.disk).settlement, other.name),
                (MemoryStore(other.disk).settlement, one.name),
            )
        )
        for currency in ours.keys() | theirs.keys():
            balance_nanos, here = ours.get(currency, (0, Turnover()))
            other_nanos, there = theirs.get(currency, (0, Turnover()))
            if balance_nanos != -other_nanos or _without_voids(here) != _mirrored(there):
                self.fail(f"{one.name} has {here} with {other.name}, which has {there}")


def _mirrored(there: Turnover) -> Turnover:
    """Return the same turnover from the view of the other site."""
    return Turnover(
        sold=there.bought,
        refunded=there.credited,
        bought=there.sold,
        credited=there.refunded,
        paid=there.received,
        received=there.paid,
        held_sold=there.held_bought,
        held_bought=there.held_sold,
        sold_tasks=there.bought_tasks,
        bought_tasks=there.sold_tasks,
    )


def _without_voids(here: Turnover) -> Turnover:
    """Return the part that both must have: a buyer may not know of void deliveries."""
    return replace(here, void_sold=0, void_bought=0, void_sold_tasks=0, void_bought_tasks=0)


def unsettled(buyer: SimMember, seller: SimMember) -> Iterator[str]:
    """Yield what one bought from the other and is not settled yet: nothing, in the end."""
    yield from _unconfirmed(buyer, seller)
    yield from _open_disputes(buyer, seller)
    day_ms = buyer.plan.books.day_ms
    if day_ms == DAY_MS:
        return  # no world lasts until the end of a real day
    differing = sorted(_difference(buyer, seller), key=lambda each: (each.contract, each.row))
    for entry in differing:
        yield f"{buyer.name} bought of {seller.name}, but not in both books: {entry}"
    days = {_day(entry, day_ms) for entry in _entries(buyer, "buy", seller, (0, END_MS))}
    for first_ms in sorted(days):
        yield from _not_agreed(buyer, seller, (first_ms, first_ms + day_ms), is_final=False)
    for span in sorted({period_of(day, buyer.plan.books.period, day_ms) for day in days}):
        yield from _not_agreed(buyer, seller, span, is_final=True)


def _not_agreed(
    buyer: SimMember, seller: SimMember, span: Span, *, is_final: bool
) -> Iterator[str]:
    """Yield the sites that have not agreed on a span, or on more: a catch-up compares many days."""
    for site, side, other in ((buyer, "buy", seller), (seller, "sell", buyer)):
        statements = site.disk.tables.statements
        agreed = (
            first_ms <= span[0] and span[1] <= stop_ms and each.is_final >= is_final
            for (name, of, first_ms, stop_ms), each in statements.items()
            if (name, of, each.state) == (other.name, side, "agreed")
        )
        if not any(agreed):
            kept = statements.get((other.name, side, *span))
            state = f"{kept.state} ({kept.details})" if kept is not None else "not compared"
            yield f"{site.name} ({side}) with {other.name}, [{span[0]}, {span[1]}): {state}"


def _unconfirmed(one: SimMember, other: SimMember) -> Iterator[str]:
    """Yield payments that either site does not know to be in both books."""
    for site, name in ((one, other.name), (other, one.name)):
        store = MemoryStore(site.disk).settlement
        for each in owed.paid_with(store, name, store.payments(name)):
            if each.standing is not PaymentStanding.CONFIRMED:
                yield f"{site.name} has {each.line} with {name}: {each.standing}"


def _open_disputes(buyer: SimMember, seller: SimMember) -> Iterator[str]:
    asked, heard = (
        {
            (each.contract, each.epoch, each.first): _answer(each)
            for each in MemoryStore(site.disk).settlement.disputes()
            if (each.side, each.site) == (side, other.name)
        }
        for site, side, other in ((buyer, "buy", seller), (seller, "sell", buyer))
    )
    for key in sorted(asked.keys() | heard.keys()):
        here, there = asked.get(key), heard.get(key)
        # An invalid dispute is rejected at once, and the seller keeps no record of it.
        if here != there and not (there is None and here is not None and here[0] == "rejected"):
            yield f"{buyer.name} disputes {key} with {seller.name}: {here} here, {there} there"


def _answer(row: DisputeRow) -> tuple[str, UtcS | None]:
    return row.state, row.settled_at_s


def _entries(site: SimMember, side: ContractSide, other: SimMember, span: Span) -> list[BookEntry]:
    return list(MemoryStore(site.disk).settlement.entries(side, other.name, *span))


def _difference(buyer: SimMember, seller: SimMember) -> set[BookEntry]:
    """Return the entries that are in only one of the two books, or differ."""
    whole = (0, END_MS)
    return {*_entries(buyer, "buy", seller, whole)} ^ {*_entries(seller, "sell", buyer, whole)}


def _day(entry: BookEntry, day_ms: int) -> int:
    return entry.delivery.at_ms // day_ms * day_ms


def _stands(site: SimMember, record: Posted | DisputeSettled) -> int | None:
    """Return the time of a record, in milliseconds; None where another record takes precedence."""
    tables, key = site.disk.tables, (record.side, record.contract, record.epoch, record.first)
    if isinstance(record, Posted):
        return record.delivery.at_ms if tables.postings[key] is record else None
    is_reversal = record.state == "accepted" and tables.answers[key] is record
    return round(record.settled_at_s * 1000) if is_reversal else None
