"""Proof that the books are right: what no constraint of a database can hold.

An audit reads the books as of one moment, and compares the transfers with the documents that they
were made of: usage records, deliveries under contracts, verdicts, disputes and payments. Each
document is made a transfer once more, by the function that made it the first time. It changes
nothing.

Where a checkpoint stands for transfers, the documents that have none any more have to sum up to
what it says of each account.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    String,
    Table,
    and_,
    case,
    cast,
    except_,
    exists,
    func,
    literal_column,
    select,
    union_all,
)

from federation.errors import GridError, ProtocolError
from federation.ranges import RangeSet
from federation.wire import unpack
from gateway.jobs import REPEAT_MIN_NS, REPEATS_MAX
from gateway.terms import STORED_BYTES_MAX

from .checkpoints import (
    Checkpoint,
    all_checkpoints,
    chained,
    digest_of,
    is_live,
    newest,
    open_holds,
)
from .database import streamed
from .evidence import disagreed, mistold
from .exact import carried, exact_sums, joined
from .journal import GENESIS, Head, balances, balances_to, booked, digest, past_of
from .merging import DELIVERY_KEY, IS_CHARGE, USE_KEY
from .postings import (
    Account,
    Balance,
    Transfer,
    delivered_sides,
    paid_sides,
    transfers_of,
    used_sides,
)
from .records import (
    HOUR_S,
    NO_RECORD,
    DisputeSettled,
    Payment,
    PaymentUndone,
    Posted,
    PostingSettled,
    Record,
    UsageRecord,
    seller_of,
    sender_of,
)
from .tables import (
    SUMMED,
    SUMMED_BY,
    accounts,
    checkpoints,
    contracts,
    disputes,
    outcomes,
    payments,
    payments_told,
    postings,
    statements,
    transfers,
    usage,
    usage_hours,
    usage_ranges,
)

PROBLEMS_MAX: Final = 20  # that are told of one check


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that has to hold: how many rows were looked at, and where it does not hold."""

    name: str
    looked_at: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """All checks, and what they found; `head` is the last transfer's digest, in hexadecimal."""

    checks: tuple[Check, ...]
    transfers: int
    head: str
    balances: dict[Account, Balance]
    checkpoint: str = ""  # the digest of the newest, in hexadecimal

    @property
    def is_clean(self) -> bool:
        """Whether everything holds."""
        return not any(each.problems for each in self.checks)


def audit(connection: Connection) -> Audit:
    """Check everything, in one transaction of the caller's that sees one moment."""
    past = past_of(connection)
    chain, number, head = _chain(connection, past)
    balanced = balances(connection)
    point = newest(connection)
    tables = (
        *(transfers, usage, postings, usage_hours, payments, payments_told),
        *(statements, checkpoints, outcomes),
    )
    rows = {table: _count(connection, table) for table in tables}
    checks = [
        _check(name, rows[table], problems)
        for name, table, problems in (
            ("debits are credits", transfers, _imbalances(balanced)),
            ("every charge is booked once", usage, _uncharged(connection, past.number)),
            ("every delivery is booked", postings, _undelivered(connection, past.number)),
            ("every reversal and payment is booked", payments, _unsettled(connection, past.number)),
            ("nothing else is booked", transfers, _strangers(connection, past.number)),
            ("what was agreed with other sites stands", statements, disagreed(connection)),
            ("what other sites say of payments is signed", payments_told, mistold(connection)),
            ("checkpoints are whole", checkpoints, _mischecked(connection, past.number)),
            (
                "what is rolled up is what a checkpoint says",
                usage,
                _misrolled(connection, past.number),
            ),
            ("no run of a task is charged twice", usage, _twice(connection)),
            ("no bundle is delivered twice", postings, _delivered_twice(connection)),
            ("every result was paid for", outcomes, _unused(connection)),
            ("hours are what their records sum up to", usage_hours, _misadded(connection)),
        )
    ]
    digest_of_point = point.digest.hex() if point is not None else ""
    return Audit((chain, *checks), number, head.hex(), balanced, digest_of_point)


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _check(name: str, looked_at: int, found: Generator[str]) -> Check:
    with closing(_readable(found)) as problems:
        return Check(name, looked_at, tuple(islice(problems, PROBLEMS_MAX)))


def _readable(found: Generator[str]) -> Generator[str]:
    """The same; what can't even be read is one more problem, and no other check stops at it.

    Each check says by itself what it can of such a row; SQLite holds anything in any column.
    """
    with closing(found):
        try:
            yield from found
        except (GridError, LookupError, *NO_RECORD) as error:
            yield f"there is a row that can't be read, and those after it were not: {error!r}"


def _chain(connection: Connection, past: Head) -> tuple[Check, int, bytes]:
    """Work out every digest anew; the first one that differs says where somebody wrote."""
    head, number = past.hash, past.number
    with closing(booked(connection, past.number)) as found:
        for number, each in enumerate(found, start=past.number + 1):
            if each.number != number:
                return _broken(number, f"transfer {number} is missing"), number, head
            head = digest(head, number, each.transfer)
            if head != each.hash:
                text = f"transfer {number} ({each.transfer.key}) is not what was booked"
                return _broken(number, text), number, head
    return Check("the chain is whole", number - past.number, ()), number, head


def _broken(number: int, problem: str) -> Check:
    return Check("the chain is whole", number, (problem,))


def _imbalances(sums: dict[Account, Balance]) -> Generator[str]:
    nets: dict[str, list[int]] = {}
    for account, balance in sums.items():
        net = nets.setdefault(account.currency, [0, 0])
        net[0] += balance.net_nanos
        net[1] += balance.held_nanos
        if balance.held_debits_nanos < 0 or balance.held_credits_nanos < 0:
            yield f"less than nothing is held on {account}"
    for currency, (net_nanos, held_nanos) in nets.items():
        if net_nanos or held_nanos:
            yield f"{currency}: debits less credits are {net_nanos}, {held_nanos} of holds"


def _rows(connection: Connection, query: Any) -> Iterator[tuple[Any, ...]]:
    return map(tuple, streamed(connection, query))


_SLASH: Final = literal_column("'/'", String)
_REVERSAL: Final = literal_column("'reverse/'", String) + DELIVERY_KEY
_PAYMENT: Final = (
    case(
        (payments.c.attempt == 0, literal_column("'pay/'", String)),
        else_=literal_column("'pay-'", String) + cast(payments.c.attempt, String) + _SLASH,
    )
    + payments.c.site
    + _SLASH
    + payments.c.currency
    + _SLASH
    + payments.c.reference
)
_UNDOING: Final = literal_column("'undo/'", String) + _PAYMENT
_OF_CONTRACT: Final = and_(
    contracts.c.side == postings.c.side, contracts.c.contract == postings.c.contract
)
_OF_DISPUTE: Final = and_(
    *(disputes.c[name] == postings.c[name] for name in ("side", "contract", "epoch", "first"))
)

_BOOKED: Final = ("key", "kind", "debit", "credit", "amount_nanos", "at_s", "resolves")
_COMPARED: Final = tuple(each.name for each in fields(Transfer))


def _booked_as(table: FromClause) -> list[ColumnElement[Any]]:
    """What makes a transfer of a row, its accounts as numbers."""
    return [table.c[name].label(f"booked_{name}") for name in _BOOKED]


class _Books:
    """Makes transfers of rows, and says where they are not what their documents mean."""

    def __init__(self, connection: Connection) -> None:
        self._accounts = {
            row.id: Account(*row[1:]) for row in connection.execute(select(accounts)).all()
        }
        self._ids = {account: id_ for id_, account in self._accounts.items()}
        self._sides: dict[tuple[str, ...], tuple[int | None, ...]] = {}

    def transfer(self, row: Sequence[Any]) -> Transfer | None:
        """The transfer that a row ends with; None: the outer join found none."""
        key, kind, debit, credit, *others = row
        if key is None:
            return None
        return Transfer(key, kind, self._account(debit), self._account(credit), *others)

    def _account(self, number: Any) -> Account:
        """One that is gone is like no other, so that whatever is booked on it differs."""
        gone: Any = "no account"
        return self._accounts.get(number) or Account(gone, str(number), "", "")

    def is_use(self, row: Sequence[Any]) -> bool:
        """Whether a row of `_uncharged` is plainly booked as what it is."""
        job, first, attempt, user, project, pool, currency, cost_nanos, at_s, *made = row[:12]
        _, kind, debit, credit, amount_nanos, booked_at_s, resolves = row[12:]
        if not (amount_nanos == cost_nanos and booked_at_s == at_s and first >= 0 <= attempt):
            return False
        if "\0" in job:
            return False  # no record has one; the other texts are seen below, once for many rows
        who = user, project, pool, currency, sender_of(job)
        sides = self._sides.get(who)
        if sides is None:
            try:
                record = UsageRecord(*(job, 0, 1, 0, user, project, "", pool, "", "ok", 0.0, 0.0),
                                     *(0, 0, 0, 0, currency, "", 0))  # fmt: skip
            except NO_RECORD:
                return False
            sides = tuple(map(self._ids.get, used_sides(record)))
            self._sides[who] = sides
        return (debit, credit, kind, resolves) == (*sides, "entry", None) and made == [
            seller_of(pool),
            who[-1],
            at_s // HOUR_S,
        ]

    @staticmethod
    def problems(record: Record, found: Transfer | None, *, is_gone: bool = False) -> Iterator[str]:
        """Compare what a document means with what is booked.

        `is_gone`: when nothing is booked any more, a checkpoint stands for it: _misrolled.
        """
        for wanted in transfers_of(record):
            if found is None:
                if not is_gone:
                    yield f"{wanted.key} is of {wanted.amount_nanos}, and nothing is booked"
            elif wanted != found:
                for name in _COMPARED:
                    one, other = getattr(wanted, name), getattr(found, name)
                    if one != other:
                        yield f"{wanted.key}: its {name} is {one}, and {other} is booked"
            return
        if found is not None:
            yield f"{found.key} is of nothing, and {found.amount_nanos} is booked"


def _uncharged(connection: Connection, past: int) -> Generator[str]:
    """Usage records that are not booked, or not as what they are.

    They are by far the most: what is plainly right is told without making a record of it.
    """
    names = ("job", "first", "attempt", "user", "project", "pool", "currency", "cost_nanos")
    query = (
        select(*(usage.c[name] for name in (*names, "ended_at_s", "site", "origin", "hour")))
        .add_columns(*_booked_as(transfers))
        .select_from(usage)
        .outerjoin(transfers, and_(transfers.c.key == USE_KEY, transfers.c.number > past))
    )
    books, is_gone = _Books(connection), bool(past)
    for row in _rows(connection, query):
        job, first, attempt, user, project, pool, currency, cost_nanos, ended_at_s, *made = row[:12]
        if books.is_use(row):
            continue
        try:
            record = UsageRecord(
                *(job, first, 1, attempt, user, project, "", pool, "", "ok", 0.0, ended_at_s),
                *(0, 0, 0, 0, currency, "", cost_nanos),
            )
        except NO_RECORD as error:
            yield f"usage {job}/{first}/{attempt} is none: {error}"
            continue
        yield from books.problems(record, books.transfer(row[12:]), is_gone=is_gone)
        if made != [record.site, record.origin, record.hour]:
            yield f"usage {job}/{first}/{attempt} is not of the site, origin or hour that it says"


def _undelivered(connection: Connection, past: int) -> Generator[str]:
    """Deliveries, and verdicts, that are not booked, or not as what they are."""
    names = ("contract", "side", "epoch", "first", "tasks", "wall_ns", "cost_nanos", "posted_at_s")
    settled = transfers.alias("settled")
    query = (
        select(*(postings.c[name] for name in names), postings.c.state)
        .add_columns(contracts.c.site, contracts.c.currency)
        .add_columns(*_booked_as(transfers), *_booked_as(settled))
        .select_from(postings)
        .outerjoin(contracts, _OF_CONTRACT)
        .outerjoin(transfers, and_(transfers.c.key == DELIVERY_KEY, is_live(past)))
        .outerjoin(settled, settled.c.resolves == transfers.c.key)
    )
    books, width = _Books(connection), len(_BOOKED)
    for row in _rows(connection, query):
        *_, state, site, currency = row[: -2 * width]
        contract, side, epoch, first, tasks, wall_ns, cost_nanos, posted_at_s = row[:8]
        key = f"{side}/{contract}/{epoch}/{first}"
        if site is None or state not in ("pending", "post", "void"):
            yield f"{key} is {state}, of a contract with {site or 'nobody'}"
            continue
        hold, verdict = books.transfer(row[-2 * width : -width]), books.transfer(row[-width:])
        is_gone = bool(past) and state != "pending"
        try:
            posted = Posted(
                *(contract, side, site, epoch, first, tasks, wall_ns, cost_nanos, currency),
                posted_at_s,
            )
        except NO_RECORD as error:
            yield f"{key} is none: {error}"
            continue
        yield from books.problems(posted, hold, is_gone=is_gone)
        if hold is None:
            continue
        if state == "pending":
            if verdict is not None:
                yield f"{key} is pending, and {verdict.kind} is booked"
            continue
        # Of a verdict only its transfer says when it was.
        at_s = verdict.at_s if verdict is not None else posted_at_s
        settled_ = PostingSettled(
            *(contract, side, site, epoch, first, state, cost_nanos, currency, at_s)
        )
        yield from books.problems(settled_, verdict)


def _unsettled(connection: Connection, past: int) -> Generator[str]:
    """Disputes and payments that are not booked, or not as what they are.

    A dispute is of something that was delivered, and only what was paid for is taken back.
    """
    books, is_gone, width = _Books(connection), bool(past), len(_BOOKED)
    names = ("side", "contract", "epoch", "first", "site", "state", "settled_at_s")
    query: Any = (
        select(*(disputes.c[name] for name in names), postings.c.cost_nanos, contracts.c.currency)
        .add_columns(postings.c.state.label("verdict"))
        .add_columns(*_booked_as(transfers))
        .select_from(disputes)
        .outerjoin(postings, _OF_DISPUTE)
        .outerjoin(contracts, _OF_CONTRACT)
        .outerjoin(transfers, and_(transfers.c.key == _REVERSAL, transfers.c.number > past))
    )
    for row in _rows(connection, query):
        side, contract, epoch, first, site, state, settled_at_s, *delivered = row[:10]
        cost_nanos, currency, verdict = delivered
        if currency is None:
            yield f"the dispute of {side}/{contract}/{epoch}/{first} is of no delivery"
            continue
        if state == "accepted" and verdict != "post":
            yield f"{side}/{contract}/{epoch}/{first} is {verdict}, and reversed after a dispute"
        try:
            dispute = DisputeSettled(
                *(side, contract, epoch, first, site, state, "", settled_at_s or 0.0),
                *(cost_nanos, currency),
            )
        except NO_RECORD as error:
            yield f"the dispute of {side}/{contract}/{epoch}/{first} is none: {error}"
            continue
        for problem in books.problems(dispute, books.transfer(row[-width:]), is_gone=is_gone):
            yield problem if state == "accepted" else f"{problem}, as if {state} were accepted"
    yield from _unpaid(connection, books, past)


def _unpaid(connection: Connection, books: _Books, past: int) -> Generator[str]:
    """Payments, and what undid them, that are not booked, or not as what they are."""
    is_gone, width = bool(past), len(_BOOKED)
    undoing = transfers.alias("undoing")
    names = [*Payment.__dataclass_fields__, "undone_why", "undone_at_s"]
    query = (
        select(*(payments.c[name] for name in names))
        .add_columns(*_booked_as(transfers), *_booked_as(undoing))
        .select_from(payments)
        .outerjoin(transfers, and_(transfers.c.key == _PAYMENT, transfers.c.number > past))
        .outerjoin(undoing, and_(undoing.c.key == _UNDOING, undoing.c.number > past))
    )
    for row in _rows(connection, query):
        site, reference, currency, direction, through, nanos, _, _, attempt, *undone = row[:11]
        try:
            payment = Payment(*row[:9])
            undoing_ = PaymentUndone(
                *(site, reference, currency, attempt, direction, through, nanos),
                *(undone[0], undone[1] or 0.0),
            )
        except NO_RECORD as error:
            yield f"payment {site}/{reference} is none: {error}"
            continue
        paid, unpaid = books.transfer(row[-2 * width : -width]), books.transfer(row[-width:])
        yield from books.problems(payment, paid, is_gone=is_gone)
        if undone[1] is not None:
            yield from books.problems(undoing_, unpaid, is_gone=is_gone)
        elif unpaid is not None:
            yield f"{unpaid.key} is booked, and the payment stands"


def _strangers(connection: Connection, past: int) -> Generator[str]:
    """Transfers for which there is no document."""
    documents = {
        "entry": [select(USE_KEY), select(_PAYMENT)],
        "hold": [select(DELIVERY_KEY)],
        "post": [select(literal_column("'settle/'", String) + DELIVERY_KEY)],
        "void": [select(literal_column("'settle/'", String) + DELIVERY_KEY)],
        "reversal": [
            select(_REVERSAL).join_from(disputes, postings, _OF_DISPUTE),
            select(_UNDOING),
        ],
    }
    for kind, keys in documents.items():
        # As a set: a join on keys that are put together from columns would try every pair.
        live = select(transfers.c.key).where(transfers.c.kind == kind, is_live(past))
        for (key,) in _rows(connection, except_(live, *keys)):
            yield f"{key} is booked, and there is no such record"


def _mischecked(connection: Connection, past: int) -> Generator[str]:
    """Checkpoints that are not what was stored."""
    before = GENESIS
    last: Checkpoint | None = None
    for last in all_checkpoints(connection):
        made = chained(before, last.number, last.at_s, last.hash, last.contents)
        if made.digest != last.digest:
            yield f"the checkpoint at transfer {last.number} is not what was stored"
        before = last.digest
    kept = balances_to(connection, past)
    if last is not None:
        if digest_of(kept, open_holds(connection, past)) != last.contents:
            yield f"balances or open holds are not those of the checkpoint at transfer {past}"
    elif any(each != Balance() for each in kept.values()):
        yield "there are balances of a checkpoint, and there is no checkpoint"


def _misrolled(connection: Connection, past: int) -> Generator[str]:
    """Accounts to which documents without a transfer bring another sum than the checkpoint says."""
    if not past:
        return
    said = balances_to(connection, past)
    found: dict[Account, Balance] = {}
    for (debit, credit), amount_nanos in _rolled_up(connection, past):
        found.setdefault(debit, Balance()).debits_nanos += amount_nanos
        found.setdefault(credit, Balance()).credits_nanos += amount_nanos
    for account in sorted({*said, *found}):
        one, other = said.get(account, Balance()), found.get(account, Balance())
        for side in ("debits_nanos", "credits_nanos"):
            if getattr(one, side) != getattr(other, side):
                yield (
                    f"{side.removesuffix('_nanos')} of {account} are {getattr(one, side)} by the "
                    f"checkpoint, {getattr(other, side)} by the records that it stands for"
                )
    rolled_up = (
        select(usage.c.job, func.sum(usage.c.tasks).label("tasks"))
        .where(usage.c.records > 1, IS_CHARGE)
        .group_by(usage.c.job)
        .subquery()
    )
    kept = (
        select(usage_ranges.c.job, func.sum(usage_ranges.c.tasks).label("tasks"))
        .where(usage_ranges.c.is_charge)
        .group_by(usage_ranges.c.job)
        .subquery()
    )
    query = (
        select(func.coalesce(rolled_up.c.job, kept.c.job), rolled_up.c.tasks, kept.c.tasks)
        .select_from(rolled_up)
        .join(kept, rolled_up.c.job == kept.c.job, full=True)
        .where(func.coalesce(rolled_up.c.tasks, 0) != func.coalesce(kept.c.tasks, 0))
    )
    for job, tasks, ranges in _rows(connection, query):
        yield f"rolled-up usage of job {job} is of {tasks or 0} tasks, and {ranges or 0} are kept"


def _rolled_up(connection: Connection, past: int) -> Iterator[tuple[tuple[Account, Account], int]]:
    """What records came to whose transfers are dropped: debit and credit, and the amount."""
    names = ("user", "project", "origin", "site", "pool", "currency")
    key = [usage.c[name] for name in names]
    live = and_(transfers.c.key == USE_KEY, transfers.c.number > past)
    query: Any = (
        select(*key, *exact_sums(usage.c.cost_nanos))
        .where(usage.c.cost_nanos > 0, ~exists().where(live))
        .group_by(*key)
    )
    for row in connection.execute(query):
        [amount_nanos] = joined(row[-2:])
        yield used_sides(row), amount_nanos
    key = [contracts.c[name] for name in ("side", "site", "currency")]
    live = and_(transfers.c.key == DELIVERY_KEY, is_live(past))
    query = (
        select(*key, *exact_sums(postings.c.cost_nanos))
        .join_from(
            postings,
            contracts,
            and_(contracts.c.side == postings.c.side, contracts.c.contract == postings.c.contract),
        )
        .where(postings.c.state == "post", postings.c.cost_nanos > 0, ~exists().where(live))
        .group_by(*key)
    )
    for row in connection.execute(query):
        [amount_nanos] = joined(row[-2:])
        yield delivered_sides(row), amount_nanos
    yield from _rolled_up_between_sites(connection, past)


def _rolled_up_between_sites(
    connection: Connection, past: int
) -> Iterator[tuple[tuple[Account, Account], int]]:
    """The same of reversals, and of payments."""
    names = [contracts.c[name] for name in ("side", "site", "currency")]
    live = and_(transfers.c.key == _REVERSAL, transfers.c.number > past)
    query: Any = (
        select(*names, postings.c.cost_nanos)
        .join_from(disputes, postings, _OF_DISPUTE)
        .join(
            contracts,
            and_(contracts.c.side == postings.c.side, contracts.c.contract == postings.c.contract),
        )
        .where(disputes.c.state == "accepted", postings.c.cost_nanos > 0, ~exists().where(live))
    )
    for row in connection.execute(query):
        debit, credit = delivered_sides(row)
        yield (credit, debit), row.cost_nanos
    live = and_(transfers.c.key == _PAYMENT, transfers.c.number > past)
    for row in connection.execute(select(payments).where(~exists().where(live))):
        yield paid_sides(row), row.amount_nanos
    live = and_(transfers.c.key == _UNDOING, transfers.c.number > past)
    undone = payments.c.undone_at_s.is_not(None)
    for row in connection.execute(select(payments).where(undone, ~exists().where(live))):
        debit, credit = paid_sides(row)
        yield (credit, debit), row.amount_nanos


def _twice(connection: Connection) -> Generator[str]:
    """Charges of the same tasks: in one attempt, or in a later one although they were done.

    Where some tasks of a run failed, these are charged again when they are tried again, and the
    run is "ok" all the same; so it is found when all of its tasks are charged again. And what was
    charged may be charged again when it ran longer for nothing than Job.may_repeat_free allows.
    Of what is rolled up only the first is known: attempts have no wall time of their own any more.
    """
    repeats = _repeats(connection)
    names = ("job", "attempt", "first", "tasks", "state", "wall_ns", "cost_nanos")
    written = select(*(usage.c[name] for name in names)).where(
        usage.c.state != "repeat", usage.c.records == 1
    )
    kept = select(
        *(usage_ranges.c[name] for name in names[:4]),
        literal_column("''", String),
        literal_column("0"),
        literal_column("1"),
    ).where(usage_ranges.c.is_charge)
    both = union_all(written, kept).subquery()
    query = select(both).order_by(both.c.job, both.c.attempt.desc(), both.c.first)
    at: tuple[str, int] | None = None
    stop = later_ns = now_ns = 0
    later, now = RangeSet(), RangeSet()  # what is charged in later attempts, and in this one
    for job, attempt, first, tasks, state, wall_ns, cost_nanos in _rows(connection, query):
        if (job, attempt) != at:
            if at is None or at[0] != job:
                later, later_ns = RangeSet(), 0
                repeat_ns, repeated = repeats.get(job, (0, frozenset()))
            else:
                later_ns += now_ns
                for low, high in now:
                    later.add(low, high)
            at, stop, now, now_ns = (job, attempt), 0, RangeSet(), 0
        if state:
            now_ns += wall_ns
        if not cost_nanos or not tasks:
            continue
        if first < stop:
            yield f"tasks of job {job} from {first} on were charged before, in attempt {attempt}"
        stop = max(stop, first + tasks)
        if state:
            now.add(first, first + tasks)
        if (
            state == "ok"
            and later
            and attempt not in repeated
            and not later.missing(first, first + tasks)
            and repeat_ns + later_ns <= REPEATS_MAX * wall_ns + REPEAT_MIN_NS
        ):
            yield f"tasks of job {job} from {first} on, of attempt {attempt}, are charged again"


def _delivered_twice(connection: Connection) -> Generator[str]:
    """Deliveries, under one contract and epoch, of tasks that were delivered under it before.

    A task comes back once from where it went; who tries it again sends it under another epoch. What
    we sold is not known task by task once it is rolled up; what we paid for never is.
    """
    names = ("side", "contract", "epoch", "first", "tasks")
    query = (
        select(*(postings.c[name] for name in names))
        .where(postings.c.state != "void", postings.c.records == 1)
        .order_by(*(postings.c[name] for name in names[:4]))
    )
    at, stop = ("", "", 0), 0
    for side, contract, epoch, first, tasks in _rows(connection, query):
        if (side, contract, epoch) != at:
            at, stop = (side, contract, epoch), 0
        if first < stop:
            yield f"{side}/{contract}/{epoch}/{first} is of tasks that were delivered before"
        stop = max(stop, first + tasks)


def _repeats(connection: Connection) -> dict[str, tuple[int, frozenset[int]]]:
    """Of each job that ran again for nothing: for how long, and in which attempts."""
    found: dict[str, tuple[int, frozenset[int]]] = {}
    query = (
        select(usage.c.job, usage.c.attempt, *exact_sums(usage.c.wall_ns))
        .where(usage.c.state == "repeat")
        .group_by(usage.c.job, usage.c.attempt)
    )
    for job, attempt, *halves in _rows(connection, query):
        [wall_ns] = joined(halves)
        before_ns, attempts = found.get(job, (0, frozenset()))
        found[job] = before_ns + wall_ns, attempts | {attempt}
    return found


def _unused(connection: Connection) -> Generator[str]:
    """Results of detached jobs that nobody charged, repeated or failed.

    What never ran has a failure for an outcome, and no usage. The other way round nothing has to
    hold: results are dropped when their job is forgotten, and attached jobs have none here.
    """
    names = ("job", "first", "tasks")
    theirs = select(outcomes.c.job)
    ranges = union_all(
        *(
            select(
                *(table.c[name] for name in names), literal_column("0").label("is_outcome")
            ).where(table.c.job.in_(theirs), *conditions)
            for table, conditions in ((usage, [usage.c.records == 1]), (usage_ranges, []))
        ),
        select(outcomes.c.job, outcomes.c.first, outcomes.c.count, literal_column("1")),
    ).subquery()
    query = select(ranges).order_by(ranges.c.job, ranges.c.is_outcome, ranges.c.first)
    at, used = "", RangeSet()
    for job, first, tasks, is_outcome in _rows(connection, query):
        if job != at:
            at, used = job, RangeSet()
        if not is_outcome:
            used.add(first, first + tasks)
            continue
        missing = used.missing(first, first + tasks)
        if not missing:
            continue
        try:
            failed = _failed(connection, job, first)
        except (ProtocolError, *NO_RECORD) as error:
            yield f"results of job {job} from {first} on can't be read: {error}"
            continue
        for low, high in missing:
            for start, _ in failed.missing(low, high):
                yield f"results of job {job} from {start} on are there, and no usage of them"


def _failed(connection: Connection, job: str, first: int) -> RangeSet:
    """The tasks whose kept results are failures."""
    query = select(outcomes.c.body).where(outcomes.c.job == job, outcomes.c.first == first)
    _, failures, *_ = unpack(connection.execute(query).scalar_one(), STORED_BYTES_MAX)
    return RangeSet((first + int(at), first + int(at) + 1) for at, *_ in failures)


def _misadded(connection: Connection) -> Generator[str]:
    """Hours whose sums are not those of the records, in any dimension or amount."""
    keys = [[table.c[name] for name in SUMMED_BY] for table in (usage, usage_hours)]
    sums = exact_sums(*(usage.c[name] for name in SUMMED))
    counted = select(*keys[0], func.sum(usage.c.records), *carried(sums)).group_by(*keys[0])
    halves = [usage_hours.c[f"{name}_{half}"] for name in SUMMED for half in ("high", "low")]
    kept = select(*keys[1], usage_hours.c.records, *carried(halves))
    for query in (except_(counted, kept), except_(kept, counted)):
        for hour, *key in _rows(connection, query):
            yield f"the sums of hour {hour} for {'/'.join(map(str, key[:7]))} are not its records'"
