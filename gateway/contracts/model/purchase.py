"""One contract from the buyer's side, checks of its seller's messages, and an index. Pure.

This module needs only the contract and the message. A check raises ProtocolError if a seller's
message contradicts the agreement, or is implausible. Valid messages are processed by
`gateway.contracts.buying.enquiries` until a quote is chosen, and then by
`gateway.contracts.buying.purchases`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase, Delivery, Tab, Verdict, grantor_until_s
from federation.money import check_currency, format_money
from federation.ranges import Range, RangeSet
from federation.signed.transfers import TICKET_S
from federation.wishes import NAME_CHARS_MAX
from federation.words import clean
from gateway.contracts.model.dealing import LEASE_MAX_S
from gateway.contracts.model.moved import (
    MOVE_EPOCH,
    NO_PROOFS,
    MovedObject,
    MoveProof,
    number_of,
    price_of,
)
from gateway.contracts.model.quotations import allowed_nanos, booked_tariff, quoted_terms, tariff_of
from gateway.ledger.db.contracts.records import ContractEnd, ContractRow, PostingRow
from gateway.scheduler.model.intake import SLOTS_MAX
from gateway.scheduler.model.terms import HOPS_MAX, JobSpec
from gateway.scheduler.tasks.completion import is_sound
from gateway.scheduler.tasks.task_usage import DRIFT_SHARE
from policies.costs.budgets import Earmark
from policies.costs.carbon import Footprint, objection
from policies.costs.moving import charge_nanos
from policies.costs.pricelist import PRICE_NANOS_MAX
from policies.tariffs import HOUR_NS, PriceClass, Tariff

# The time that all tasks of a contract may report beyond the elapsed time: two clocks, roundings.
SLACK_S: Final = 1.0
# A clock may have been corrected meanwhile, and both sides book the same time.
MISDATED_MAX_S: Final = 3600.0
TEXT_CHARS_MAX: Final = 200
# For a move: its ticket may be taken up until it expires, and the transfer goes on then.
PLEDGE_S: Final = 2 * TICKET_S
# Verdicts of a contract that are kept in memory. A seller bills each delivery once in a session: it
# asks again only about those whose verdict was under way when a session was lost.
VERDICTS_KEPT: Final = 256


@dataclass(slots=True)
class Purchase:
    """One contract from the buyer's side. `phase` is None until a quote has arrived."""

    contract: str
    job: str
    site: str
    pool: str
    tasks: int  # that were asked for
    asked_at_s: MonoS
    phase: ContractPhase | None = None
    quote: deals.Quote | None = None
    handle: int = 0
    until_s: MonoS = MonoS(0.0)  # of the lease, as the buyer counts it
    round_trip_s: float = 0.0
    busy_at_s: MonoS = MonoS(0.0)  # when a task was last in flight
    asked_back_at_s: MonoS | None = None  # since when an answer to a reclaim is awaited
    # When tasks were told to stop, by epoch, first and stop: their runs are delivered.
    stopping: dict[tuple[int, int, int], MonoS] = field(default_factory=dict)
    lease_s: float = 0.0
    opened_at_s: UtcS = UtcS(0.0)  # UTC
    rules: int = 0  # the version of this site's rules then
    doubted: int = 0  # forwards up to this epoch may have been lost with a session
    is_recovered: bool = False  # from before a restart, and its seller has not reported its tasks
    # No further delivery counts: its seller is approved no more, or sent results that users here
    # may not have.
    is_void: bool = False
    ended_as: ContractEnd = "settled"  # as it is booked when it has ended
    is_orphan: bool = False  # from before a restart, and its tasks are not wanted any more
    price_class: PriceClass = "guaranteed"  # the requested class
    max_cost_nanos: int | None = None  # its granted cost limit; None: no limit
    spent_nanos: int = 0
    earmark: Earmark | None = None  # the amount that budgets hold for it; None: nothing
    tab: Tab = field(default_factory=Tab)
    moves: set[int] = field(default_factory=set)  # paid moves of objects: their numbers
    moves_nanos: int = 0  # their cost, which is no part of `spent_nanos`
    # For moves under way, by their numbers: the money, and until when their tickets are valid.
    pledges: dict[int, tuple[int, UtcS]] = field(default_factory=dict)
    # Proofs of moves to here that its seller has not billed yet: it may not have them.
    proofs: dict[tuple[int, int], MoveProof] = field(default_factory=dict)
    # Until its seller has reported its tasks after a restart: those delivered before, by epoch.
    delivered: dict[int, RangeSet] = field(default_factory=dict)
    spec: JobSpec | None = None  # of the job; None: from before a restart, of a job that is gone
    fetching: int = 0  # deliveries whose results are on their way from its seller
    fetching_nanos: int = 0  # their cost, which is not spent yet
    is_blind: bool = False  # no pool was named in the request to its site
    beyond_ns: int = 0  # run time beyond the elapsed time: SLACK_S at most

    @property
    def place(self) -> str:
        """The broker's name of the pool."""
        return f"{self.site}/{self.pool}"

    @property
    def currency(self) -> str:
        """The currency of payment, once it is quoted."""
        assert self.quote is not None
        return self.quote.currency

    @property
    def tariff(self) -> Tariff:
        """The tariff of payment, once it is quoted."""
        assert self.quote is not None
        return replace(tariff_of(self.quote), rules=self.rules)

    @property
    def left_nanos(self) -> int:
        """The part of its cost limit that is not spent; 0 without a limit."""
        return max(0, (self.max_cost_nanos or 0) - self.spent_nanos - self.moves_nanos)

    def has_money_for(self, cost_nanos: int) -> bool:
        """Whether its cost limit pays for this beside what is spent, and moved."""
        most = self.max_cost_nanos
        return most is None or self.spent_nanos + self.moves_nanos + cost_nanos <= most

    @property
    def pledged_nanos(self) -> int:
        """The money that is kept for moves under way."""
        return sum(nanos for nanos, _ in self.pledges.values())

    def pledge(self, digest: bytes, size: int, direction: str, utc_s: UtcS) -> str:
        """Keep money of its cost limit for an object that is to move, or return why it can't.

        Budgets hold the whole limit. The money is kept until the receipt tells the bytes, the
        transfer is given up, or no receipt is to be expected any more: PLEDGE_S.
        """
        cost_nanos = charge_nanos(price_of(self.tariff, direction), size)
        number = number_of(self.contract, digest, direction)
        for at in [at for at, (_, until_s) in self.pledges.items() if utc_s >= until_s]:
            del self.pledges[at]
        if self.max_cost_nanos is None or not cost_nanos or number in self.moves:
            return ""
        if number in self.pledges:
            self.pledges[number] = self.pledges[number][0], utc_s + PLEDGE_S
            return ""
        kept_nanos = self.fetching_nanos + self.pledged_nanos
        left_nanos = max(0, self.left_nanos - kept_nanos)
        if cost_nanos > left_nanos:
            cost, left = (format_money(each, self.currency) for each in (cost_nanos, left_nanos))
            return f"its way costs {cost}, and of the money of the contract {left} is left"
        self.pledges[number] = cost_nanos, utc_s + PLEDGE_S
        return ""

    def give_up(self, digest: bytes, direction: str) -> None:
        """Keep no more money for an object: it has not moved, or cost nothing."""
        self.pledges.pop(number_of(self.contract, digest, direction), None)

    @property
    def is_live(self) -> bool:
        """Whether tasks may be in flight under it."""
        return self.phase in (ContractPhase.OPEN, ContractPhase.CLOSING)

    @property
    def is_under_way(self) -> bool:
        """Whether it is being made."""
        return self.phase in (None, ContractPhase.QUOTED, ContractPhase.HELD)


class Purchased:
    """All our contracts: by name, and by job in the order of their requests.

    A job is planned again and again, and each time looks up its own among ten thousand others.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Purchase] = {}  # written only here
        self._by_job: dict[str, dict[str, Purchase]] = {}

    def add(self, purchase: Purchase) -> None:
        """Add a contract."""
        self.by_name[purchase.contract] = purchase
        self._by_job.setdefault(purchase.job, {})[purchase.contract] = purchase

    def remove(self, purchase: Purchase) -> None:
        """Remove a contract, if it is present."""
        if self.by_name.pop(purchase.contract, None) is None:
            return
        of_job = self._by_job[purchase.job]
        del of_job[purchase.contract]
        if not of_job:
            del self._by_job[purchase.job]

    def of_job(self, job: str) -> Collection[Purchase]:
        """Return the contracts of a job."""
        return self._by_job.get(job, {}).values()


def from_books(
    row: ContractRow,
    postings: Iterable[PostingRow],
    mono_s: MonoS,
    proofs: Mapping[tuple[int, int], MoveProof] = NO_PROOFS,
) -> Purchase:
    """Restore a booked contract at its terms, open as if it had been renewed now."""
    quote = deals.Quote(
        contract=row.contract,
        pool=row.pool,
        tasks=0,
        slots=row.slots,
        begin_in_s=0.0,
        finish_in_s=0.0,
        valid_s=0.0,
        lease_s=row.lease_s,
        **quoted_terms(booked_tariff(row)),
    )
    purchase = Purchase(
        row.contract, row.job, row.site, row.pool, 0, mono_s, ContractPhase.OPEN, quote
    )
    purchase.price_class = row.price_class
    purchase.lease_s = row.lease_s
    purchase.until_s = grantor_until_s(mono_s, row.lease_s)
    purchase.busy_at_s = mono_s
    purchase.opened_at_s = row.opened_at_s
    purchase.rules = row.rules
    purchase.max_cost_nanos = row.max_cost_nanos
    for each in postings:
        delivery = each.delivery
        purchase.tab.deliver(delivery)
        if each.epoch == MOVE_EPOCH:
            purchase.moves.add(each.first)
            purchase.moves_nanos += each.cost_nanos
            if each.state == "pending" and (key := (each.epoch, each.first)) in proofs:
                purchase.proofs[key] = proofs[key]
        else:
            purchase.delivered.setdefault(each.epoch, RangeSet()).add(delivery.first, delivery.stop)
            purchase.spent_nanos += each.cost_nanos
        if each.state != "pending":
            purchase.tab.settle(each.epoch, each.first, Verdict(each.state))
            purchase.tab.forget(VERDICTS_KEPT)
    return purchase


# --- a seller's messages -------------------------------------------------------------------------


def check_quote(purchase: Purchase, quote: deals.Quote) -> None:
    """Raise ProtocolError unless this is the first quote for it, of a pool, slots and money."""
    if purchase.phase is not None:
        raise ProtocolError("a second quote arrived for the same contract")
    if purchase.pool not in ("", quote.pool) or not 1 <= quote.slots <= SLOTS_MAX:
        raise ProtocolError("the quote is for another pool, or has no slots")
    if not _is_name(quote.pool) or not 0 <= quote.price_nanos <= PRICE_NANOS_MAX:
        raise ProtocolError("the quote has no valid pool name, or no valid price")
    if not 0 <= quote.lease_s <= LEASE_MAX_S:
        raise ProtocolError("the quote has a lease of more than a day")
    try:
        check_currency(quote.currency)
    except ValueError as error:
        raise ProtocolError(f"the quote has an invalid currency: {error}") from None
    _check_terms(purchase, quote)


def _check_terms(purchase: Purchase, quote: deals.Quote) -> None:
    if quote.minimum_nanos > quote.price_nanos or quote.step_ns > HOUR_NS:
        raise ProtocolError(
            "the quote has a minimum charge or a time step that exceeds the maximum"
        )
    if max(quote.receive_nanos, quote.send_nanos) > PRICE_NANOS_MAX:
        raise ProtocolError("the quote has a price of moved bytes out of range")
    if not quote.price_nanos <= max(quote.list_nanos, quote.price_nanos) <= PRICE_NANOS_MAX:
        raise ProtocolError("the quote has a list price out of range")
    if not all(each == "" or _is_name(each) for each in (quote.tariff, quote.window)):
        raise ProtocolError("the quote has an invalid version of its price list")
    # Reserved slots are of the class guaranteed, for any class of work in the request.
    tariff = tariff_of(quote)
    is_reserved = bool(tariff.reservation) and tariff.price_class == "guaranteed"
    if tariff.price_class != purchase.price_class and not is_reserved:
        raise ProtocolError("the quote is for another price class than requested")


def check_delivery(purchase: Purchase, message: deals.Deliver) -> None:
    """Raise ProtocolError if a delivery costs too much or is inconsistent."""
    if not is_sound(message):
        raise ProtocolError("a delivery has no tasks, or has failures beside them")
    if message.cost_nanos > allowed_nanos(purchase.tariff, message):
        raise ProtocolError("a delivery costs more than was agreed")
    most = purchase.max_cost_nanos
    if most is not None and purchase.spent_nanos + message.cost_nanos > most:
        raise ProtocolError("a delivery costs more than the grant allows")


def why_unpaid(purchase: Purchase, message: deals.Deliver) -> str:
    """Return why the grant does not pay for a delivery beside the moves of objects, or "".

    Its seller has broken no rule: it may not have known of a result that has just come here.
    """
    cost_nanos = message.cost_nanos
    if not cost_nanos or purchase.has_money_for(cost_nanos):
        return ""
    cost, left = (
        format_money(each, purchase.currency) for each in (cost_nanos, purchase.left_nanos)
    )
    return (
        f"a delivery costs {cost}, and of the money of the contract {left} is left after the "
        "objects that moved"
    )


def check_move(purchase: Purchase, fact: MovedObject, utc_s: UtcS, settled_ms: int) -> None:
    """Raise ProtocolError for a receipt that is dated before its contract, or in closed books."""
    _check_at(purchase, fact.at_ms, utc_s, settled_ms, "receipt")


def footprint_of(message: deals.Deliver, site: str) -> Footprint:
    """Return a delivery's footprint as the seller's word; ProtocolError if implausible."""
    found = Footprint(
        message.energy_uj,
        message.carbon_ng,
        message.embodied_ng,
        message.intensity_mg_per_kwh,
        message.carbon_source,
    )
    why = objection(found, message.wall_ns)
    if why:
        raise ProtocolError(f"a delivery has an impossible footprint: {why}")
    return found.as_told_by(site)


def check_moment(purchase: Purchase, message: deals.Deliver, utc_s: UtcS, settled_ms: int) -> None:
    """Raise ProtocolError if a delivery is dated before its contract or in the future.

    A delivery may be late: after an outage it is delivered again, with its original time. It must
    not be from a period on which both sites have agreed, which ends at `settled_ms`.
    """
    _check_at(purchase, message.at_ms, utc_s, settled_ms, "delivery")


def _check_at(purchase: Purchase, at_ms: int, utc_s: UtcS, settled_ms: int, name: str) -> None:
    if at_ms < settled_ms:
        raise ProtocolError(f"a {name} is dated in a period whose books are closed")
    at_s = UtcS(at_ms / 1000)
    if not purchase.opened_at_s - MISDATED_MAX_S <= at_s <= utc_s + MISDATED_MAX_S:
        raise ProtocolError(f"a {name} is dated before its contract, or in the future")


def check_time(purchase: Purchase, message: deals.Deliver, passed_s: float) -> None:
    """Raise ProtocolError if tasks ran for longer than since they were forwarded.

    A clock may run fast by DRIFT_SHARE; the excess beyond that is added up for the whole contract.
    """
    passed_ns = round(len(message.values) * passed_s * (1 + DRIFT_SHARE) * 1e9)
    purchase.beyond_ns += max(0, message.wall_ns - passed_ns)
    if purchase.beyond_ns > SLACK_S * 1e9:
        raise ProtocolError("a delivery reports more time than has passed")


def check_way(message: deals.Deliver, site: str) -> None:
    """Raise ProtocolError if results can't have come that way to `site`, which is our site."""
    sites = message.sites
    if len(sites) > HOPS_MAX or site in sites or not all(map(_is_name, sites)):
        raise ProtocolError("the path of the results is empty, too long, or contains this site")


def without_values(message: deals.Deliver) -> deals.Deliver:
    """Return a delivery of failed tasks without anything to unpickle: their texts are left."""
    failures = [[at, kind, text, b""] for at, kind, text, _ in message.failures]
    return replace(message, values=[b""] * len(message.values), failures=failures)


def is_owed(tab: Tab, row: list[int]) -> bool | None:
    """Whether we pay for a delivery that is billed; a delivery that was not accepted is void.

    None: only the books can tell.

    Raises:
        ProtocolError: the bill differs from the delivery.
    """
    billed = Delivery.of(row)
    pending = tab.pending.get((billed.epoch, billed.first))
    settled = tab.verdicts.get((billed.epoch, billed.first))
    known = pending or (settled[0] if settled else None)
    if known is None:
        return None if tab.has_forgotten else False
    if known != billed:
        raise ProtocolError("the bill differs from the delivery")
    return pending is not None or (settled is not None and settled[1] is Verdict.POST)


def held_by_epoch(rows: Iterable[list[int]]) -> dict[int, list[Range]]:
    """Return the tasks that a seller reports to hold under a contract; ProtocolError."""
    held: dict[int, list[Range]] = {}
    for row in rows:
        if len(row) != 3:
            raise ProtocolError("held tasks must be listed as [epoch, first, stop]")
        held.setdefault(row[0], []).append((row[1], row[2]))
    return held


def shown(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return another site's text in a form that may be shown to people here."""
    return clean(text[:chars_max])[:chars_max]


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and text.isprintable()
