"""Two bookkeepers, their books in SQLite, a clock that the test sets, and a post that may lose."""

from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing
from support.pure.bookkeeper import (
    CONTRACT,
    DAY_3_MS,
    DAY_4_MS,
    DAY_S,
    MORNING_S,
    NOVEMBER_S,
    BooksWorld,
    both,
    delivery,
)

from federation.errors import ProtocolError
from federation.messages.contracts import Verdict
from federation.messages.messages import MESSAGES
from federation.messages.payments import LINES_MAX, Payments
from federation.messages.reconciliation import (
    DAY_MS,
    AskEntries,
    Dispute,
    DisputeAnswer,
    Entries,
    Reconcile,
    Reconciled,
    Sums,
)
from federation.messages.wire import pack
from federation.signed.envelopes import body_of
from gateway.base.values import SettingError
from gateway.config.books import period_of, read_books
from gateway.ledger.accounting.settlement import agreed_until
from gateway.ledger.db.contracts.records import posted
from gateway.ledger.db.errors import StoreError
from gateway.settlement.as_buyer import QUESTIONS_MAX, TRIES_MAX
from gateway.settlement.comparing import ComparisonSpan
from gateway.settlement.context import NoSuchEntry
from gateway.settlement.payments import ANSWERS_MAX
from gateway.settlement.reconciler import WAITING_MAX, Comparison
from gateway.settlement.turns import OURS


@pytest.fixture
def world(tmp_path):
    made = BooksWorld(tmp_path)
    yield made
    made.close()


async def test_a_day_is_compared_when_it_is_over_and_once(world):
    both(world, delivery(0), delivery(10), delivery(20, MORNING_S + DAY_S))
    await world.look()
    assert world.london.statements() == []
    world.utc_s = NOVEMBER_S + 3 * DAY_S + 599
    await world.look()
    assert world.london.statements() == []
    world.utc_s += 2
    await world.look()
    for each in (world.london, world.paris):
        assert each.statements() == [(DAY_3_MS, "agreed", False)]
    await world.look()
    assert not world.mail
    world.utc_s += 10 * DAY_S
    await world.look()
    for each in (world.london, world.paris):
        assert each.statements() == [(DAY_3_MS, "agreed", False), (DAY_4_MS, "agreed", False)]
    [kept, _] = world.london.store.settlement.statements()
    [theirs, _] = world.paris.store.settlement.statements()
    assert (kept.digest, kept.ours, kept.theirs) == (theirs.digest, theirs.theirs, theirs.ours)
    assert kept.ours
    assert kept.theirs


async def test_a_seller_that_answers_after_many_looks_is_heard_all_the_same(world):
    """By then the buyer has asked for the first day as often as it may, and asks for the next."""
    both(world, delivery(0), delivery(10, MORNING_S + DAY_S))
    world.utc_s += 2 * DAY_S
    reconciler = world.london.reconciler
    for _ in range(2 * TRIES_MAX):
        await reconciler.in_turn(reconciler.look)
    await world.deliver()
    for each in (world.london, world.paris):
        assert each.statements() == [(DAY_3_MS, "agreed", False), (DAY_4_MS, "agreed", False)]


async def test_entries_that_come_after_a_look_mend_the_books(world):
    both(world, delivery(0))
    world.london.posted(delivery(10), Verdict.POST)
    world.paris.posted(delivery(10))
    world.utc_s += DAY_S
    reconciler = world.london.reconciler
    await reconciler.in_turn(reconciler.look)
    await world.deliver(messages_max=2)
    [(_, question)] = world.mail
    assert isinstance(question, AskEntries)
    await reconciler.in_turn(reconciler.look)
    while len(world.mail) > 1:
        world.mail.pop()  # lost: the question of that look
    await world.deliver()
    assert world.paris.entries() == [(delivery(0), 1), (delivery(10), 1)]


@pytest.mark.parametrize(("most", "asked"), [(3, 3), (8, 8), (20, 10)])
async def test_a_seller_that_never_answers_leaves_a_bounded_number_of_questions(
    world, monkeypatch, most, asked
):
    monkeypatch.setattr("gateway.settlement.as_buyer.OPEN_MAX", most)
    reconciler = world.london.reconciler
    for at in range(10):
        window = ComparisonSpan(DAY_3_MS + at, DAY_3_MS + 100)
        await reconciler.in_turn(partial(reconciler.buying.ask, "paris", window))
    assert len(reconciler.buying.asked) == asked


async def test_a_partner_that_has_more_than_we_in_many_windows_fills_no_memory(world, monkeypatch):
    monkeypatch.setattr("gateway.settlement.book_age.SUSPECTED_MAX", 3)
    both(world, delivery(0))
    reconciler = world.paris.reconciler
    sums = {"USD": ["9"] * len(Sums.__dataclass_fields__)}
    for at in range(10):
        window = ComparisonSpan(DAY_3_MS + at, DAY_3_MS + 100)
        ours = await reconciler.books.tally("sell", "london", window)
        reconciler.age.judge("sell", "london", window, ours, sums)
    assert len(reconciler.age.suspected) == 3


async def test_a_seller_has_kept_what_it_agrees_to_before_it_says_so(world):
    both(world, delivery(0))
    world.utc_s += DAY_S
    under_way = []
    write = world.paris.write

    def noting(*records):
        under_way.extend(len(world.mail) for _ in records)
        write(*records)

    world.paris.write = noting
    await world.look()
    assert world.london.statements() == [(DAY_3_MS, "agreed", False)]
    assert under_way == [0]


@pytest.mark.parametrize("site", ["london", "paris"])
async def test_what_waits_for_the_disk_is_compared_too(world, site):
    both(world, delivery(0))
    books = getattr(world, site)
    books.waiting = [posted(CONTRACT, books.side, books.other, delivery(10), "USD")]
    world.utc_s += DAY_S
    await world.look()
    assert [state for _, state, _ in world.london.statements()] != ["agreed"]


@pytest.mark.parametrize("site", ["london", "paris"])
async def test_what_waits_for_the_disk_is_not_absent_when_entries_are_compared(world, site):
    books = getattr(world, site)
    other, asked = (world.paris, Entries) if site == "london" else (world.london, AskEntries)
    both(world, delivery(0))
    other.posted(delivery(10))
    books_at(books, asked, delivery(10))
    world.utc_s += DAY_S
    await world.look()
    for each in (world.london, world.paris):
        assert each.entries() == [(delivery(0), 1), (delivery(10), 1)]


async def test_what_waits_for_the_disk_is_in_the_digest_of_its_contract(world):
    both(world, delivery(0))
    world.paris.posted(delivery(10))
    books_at(world.london, Reconciled, delivery(10))
    asked = books_at(world.paris, AskEntries)
    world.utc_s += DAY_S
    await world.look()
    assert not world.london.waiting
    assert not asked  # by then it is the same on both sides


def books_at(books, kind, *deliveries):
    """Let a site book something when it hears a message of a kind; return the messages it heard."""
    found, hear = [], books.reconciler.hear

    def hearing(sender, message, envelope):
        if isinstance(message, kind):
            found.append(message)
            books.waiting += [
                posted(CONTRACT, books.side, books.other, each, "USD") for each in deliveries
            ]
        hear(sender, message, envelope)

    books.reconciler.hear = hearing
    return found


async def test_a_day_that_is_not_over_at_the_seller_is_not_agreed_on(world):
    both(world, delivery(0))
    reconcile = Reconcile(DAY_3_MS, DAY_4_MS, False, {}, b"")
    world.utc_s = DAY_4_MS / 1000 - 0.001
    for _ in range(2):
        for _ in range(10):
            world.paris.reconciler.hear("london", reconcile, b"")
        await world.work()
        await world.look(world.paris)
    assert not world.mail
    assert len(world.paris.told) == 2  # one for each time that it looked
    assert "which has not ended here" in world.paris.told[-1]
    world.utc_s = DAY_4_MS / 1000
    world.paris.reconciler.hear("london", reconcile, b"")
    await world.work()
    assert len(world.mail) == 1


async def test_a_period_is_closed_when_all_its_days_agree(world):
    both(world, delivery(0), delivery(10, MORNING_S + 20 * DAY_S))
    world.utc_s = NOVEMBER_S + 30 * DAY_S + 601
    await world.look()
    start_ms, stop_ms = period_of(DAY_3_MS, "month")
    assert stop_ms == int((NOVEMBER_S + 30 * DAY_S) * 1000)
    for each in (world.london, world.paris):
        assert (start_ms, "agreed", True) in each.statements()
        assert len(each.statements()) == 3
    await world.look()
    assert not world.mail
    assert any("2026-11-01 to 2026-11-30 agrees with paris" in each for each in world.london.told)


async def test_verdicts_that_were_lost_are_said_again(world):
    for each in (delivery(0), delivery(10), delivery(20)):
        world.london.posted(each)
        world.paris.posted(each)
    world.london.settle(delivery(0), Verdict.POST)  # and the word of it was lost
    world.london.posted(delivery(30))  # what Paris lost
    world.paris.posted(delivery(40))  # what never arrived
    world.utc_s += DAY_S
    for _ in range(2):
        await world.look()
    for each in (world.london, world.paris):
        assert each.entries() == [(delivery(first), 1) for first in (0, 10, 20)]
        assert each.statements() == [(DAY_3_MS, "agreed", False)]
        assert each.clean()


async def test_a_contract_that_goes_on_is_left_alone(world):
    world.london.posted(delivery(0))
    world.paris.posted(delivery(0))
    world.london.live.add(CONTRACT)
    world.utc_s += DAY_S
    await world.look()
    assert [state for _, state in world.london.entries()] == [0]
    assert world.london.statements() == [(DAY_3_MS, "pending", False)]


async def test_a_seller_that_billed_something_else_is_named_and_nothing_is_changed(world):
    world.london.posted(delivery(0), Verdict.POST)
    world.paris.posted(delivery(0, cost_nanos=999), Verdict.POST)
    world.paris.posted(delivery(10), Verdict.POST)
    before = world.london.entries(), world.paris.entries()
    world.utc_s += DAY_S
    await world.look()
    assert (world.london.entries(), world.paris.entries()) == before
    [kept] = world.london.store.settlement.statements()
    assert kept.state == "differs"
    assert "epoch 1, task 0: 10 tasks, 0.0000001 USD, " in kept.details
    assert "epoch 1, task 10: 0.0000001 USD there only" in kept.details
    [theirs] = world.paris.store.settlement.statements()
    assert "USD cost: 0.000001099 USD here, 0.0000001 USD there" in theirs.details


async def test_more_entries_than_a_message_holds_are_asked_for_in_parts(world, monkeypatch):
    monkeypatch.setattr("gateway.settlement.as_seller.ENTRIES_MAX", 3)
    many = [delivery(10 * n, MORNING_S + n) for n in range(20)]
    for each in many:
        world.london.posted(each, Verdict.POST)
        world.paris.posted(each)
    world.utc_s += DAY_S
    for _ in range(2):
        await world.look()
    assert [state for _, state in world.paris.entries()] == [1] * 20
    assert world.paris.statements() == [(DAY_3_MS, "agreed", False)]


async def test_a_dispute_is_told_until_it_is_answered(world):
    both(world, delivery(0), delivery(10), delivery(20))
    [first, second, third] = await world.london.reconciler.disputes.dispute(CONTRACT, None, "wrong")
    assert {each.state for each in (first, second, third)} == {"open"}
    world.mail.clear()  # lost
    await world.look()
    answer = world.paris.reconciler.disputes.answer
    await answer(CONTRACT, [(1, 0)], accept=True, reason="so it is")
    world.mail.clear()  # lost as well
    await world.look()
    await answer(CONTRACT, None, accept=False, reason="no")
    await world.deliver()
    with pytest.raises(NoSuchEntry):
        await answer(CONTRACT, None, accept=True, reason="second thoughts")
    for each in (world.london, world.paris):
        states = {row.first: (row.state, row.answer) for row in each.store.settlement.disputes()}
        assert states == {0: ("accepted", "so it is"), 10: ("rejected", "no"),
                          20: ("rejected", "no")}  # fmt: skip
        [reversal] = [found for found, state in each.entries() if state == 2]
        assert replace(reversal, at_ms=0) == replace(delivery(0), at_ms=0)
        sums = each.store.settlement.entry_sums(each.side, each.other, 0, 10**15)["USD"]
        assert sums.due_nanos == 200
        assert each.clean()
    assert world.london.entries() == world.paris.entries()
    await world.look()
    assert not world.mail


async def test_a_rejection_is_heard_also_when_its_day_was_agreed_on_meanwhile(world):
    both(world, delivery(0))
    await world.london.reconciler.disputes.dispute(CONTRACT, None, "wrong")
    await world.deliver()
    await world.paris.reconciler.disputes.answer(CONTRACT, None, accept=False, reason="no")
    world.mail.clear()  # lost
    world.utc_s += DAY_S
    for _ in range(2):
        await world.look()
    assert world.london.statements() == [(DAY_3_MS, "agreed", False)]
    assert [row.state for row in world.london.store.settlement.disputes()] == ["rejected"]


async def test_a_dispute_that_comes_before_the_verdict_waits_for_it(world):
    world.london.posted(delivery(0), Verdict.POST)
    world.paris.posted(delivery(0))
    await world.london.reconciler.disputes.dispute(CONTRACT, None, "wrong")
    await world.deliver()
    assert {row.state for row in world.london.store.settlement.disputes()} == {"open"}
    assert world.paris.store.settlement.disputes() == []
    world.paris.settle(delivery(0), Verdict.POST)
    await world.look()
    await world.paris.reconciler.disputes.answer(CONTRACT, None, accept=True, reason="so it is")
    await world.deliver()
    for each in (world.london, world.paris):
        assert [row.state for row in each.store.settlement.disputes()] == ["accepted"]
    assert world.london.entries() == world.paris.entries()


async def test_what_is_disputed_is_not_disputed_again_for_another_reason(world):
    both(world, delivery(0), delivery(10))
    disputes = world.london.reconciler.disputes
    await disputes.dispute(CONTRACT, [(1, 0)], "wrong")
    with pytest.raises(NoSuchEntry, match="disputed already"):
        await disputes.dispute(CONTRACT, [(1, 0)], "again")
    # Of all of a contract: what is left.
    found = await disputes.dispute(CONTRACT, None, "all of it")
    assert [(each.first, each.reason) for each in found] == [(0, "wrong"), (10, "all of it")]


async def test_what_is_too_old_or_was_never_paid_is_not_disputed(world):
    both(world, delivery(0))
    world.london.posted(delivery(10), Verdict.VOID)
    with pytest.raises(NoSuchEntry, match="contract 'london-9-9' not found"):
        await world.london.reconciler.disputes.dispute("london-9-9", None, "wrong")
    with pytest.raises(NoSuchEntry, match="none of these deliveries of contract"):
        await world.london.reconciler.disputes.dispute(CONTRACT, [(1, 10)], "wrong")
    message = Dispute(CONTRACT, [[1, 0], [1, 10], [2, 0]], "wrong")
    world.utc_s += 31 * DAY_S
    with pytest.raises(NoSuchEntry, match="30 days"):
        await world.london.reconciler.disputes.dispute(CONTRACT, None, "wrong")
    await world.paris.reconciler.disputes.disputed("london", message)
    answers = {}
    for _, sealed in world.mail:
        told = MESSAGES.decode(body_of(sealed.envelope), 1 << 20)
        answers |= {(row[0], row[1]): (row[3], told.reason) for row in told.answers}
    assert answers == {
        (1, 0): (0, "the delivery is older than 30 days, and counts as accepted"),
        (1, 10): (0, "no such delivery was paid for"),
        (2, 0): (0, "no such delivery was paid for"),
    }
    assert world.paris.store.settlement.disputes() == []


async def test_another_sites_contract_can_not_be_disputed_or_answered(world):
    both(world, delivery(0))
    await world.paris.reconciler.disputes.disputed("rome", Dispute(CONTRACT, [[1, 0]], "mine"))
    assert world.paris.store.settlement.disputes() == []
    await world.london.reconciler.disputes.dispute(CONTRACT, None, "wrong")
    answer = DisputeAnswer(CONTRACT, [[1, 0, int(world.utc_s * 1000), 1]], "fine")
    await world.london.reconciler.disputes.answered("rome", answer)
    early = DisputeAnswer(CONTRACT, [[1, 0, int(NOVEMBER_S * 1000), 1]], "long ago")
    await world.london.reconciler.disputes.answered("paris", early)
    [row] = world.london.store.settlement.disputes()
    assert row.state == "open"


async def test_people_are_told_once_between_two_looks_of_answers_as_of_another_time(world):
    both(world, *(delivery(first) for first in range(0, 50, 10)))
    disputes = world.london.reconciler.disputes
    await disputes.dispute(CONTRACT, None, "wrong")
    early = DisputeAnswer(CONTRACT, [[1, first, 0, 1] for first in range(0, 50, 10)], "no")
    world.london.told.clear()
    what = f"5 disputed deliveries of contract {CONTRACT}"
    line = f"books: paris answers {what} with an invalid time: they stay open"
    for looks in (1, 2):
        for _ in range(20):
            await disputes.answered("paris", early)
        assert world.london.told == [line] * looks
        await world.london.reconciler.look()
    assert {each.state for each in world.london.store.settlement.disputes()} == {"open"}


def reconcile(first_ms, stop_ms, *, is_final=False):
    return Reconcile(first_ms, stop_ms, is_final, {}, bytes(32))


@pytest.mark.parametrize(
    "message",
    [
        reconcile(10, 10),
        reconcile(10, 9),
        reconcile(0, 1 << 62),
        reconcile(0, 10, is_final=True),
        reconcile(DAY_3_MS, DAY_4_MS, is_final=True),
        Reconcile(0, 10, False, {"USD": "x"}, b""),
        Reconciled(0, 10, False, "agreed", {"USD": [1]}, b"", {}),
        AskEntries(CONTRACT, 5, 5),
        Entries(CONTRACT, 0, 5, [[1]] * 5001, True),
        Dispute(CONTRACT, [], "no"),
        DisputeAnswer(CONTRACT, [[1, 0, 1]], "no"),
        Payments([["wire", "USD", "stole", 1, 5]], 0, b""),
        Payments([], 0, bytes(31)),
        Payments([], 0, bytes(33)),
    ],
)  # fmt: skip
async def test_what_can_not_be_said_about_the_books_ends_the_session(world, message):
    with pytest.raises(ProtocolError):
        world.paris.reconciler.hear("london", message, b"")


async def test_nobody_fills_our_disk_with_comparisons_of_nothing(world):
    both(world, delivery(0))
    world.utc_s += 40 * DAY_S
    for first in range(20):
        for days in (1, 2, 3):
            window = (first * DAY_MS, (first + days) * DAY_MS)
            world.paris.reconciler.hear("london", reconcile(*window), b"")
            await world.work()
    world.paris.reconciler.hear("london", reconcile(DAY_3_MS - DAY_MS, DAY_4_MS), b"")
    await world.work()
    assert world.paris.statements() == []
    world.paris.reconciler.hear("london", reconcile(DAY_3_MS, DAY_4_MS), b"")
    await world.work()
    assert world.paris.statements() == [(DAY_3_MS, "differs", False)]


async def test_a_site_that_asks_on_and_on_waits_for_its_turn(world):
    reconciler = world.paris.reconciler
    for stop_ms in range(1, 1001):
        reconciler.hear("london", reconcile(0, stop_ms), b"")
    assert len(reconciler.turns) == WAITING_MAX
    reconciler.hear("rome", reconcile(0, 1), b"")
    reconciler._later(OURS, reconciler.look)
    assert [reconciler.turns.take()[0] for _ in range(4)] == [OURS, "london", "rome", "london"]


@pytest.mark.parametrize("is_news", [False, True])
async def test_a_site_that_asks_for_payments_on_and_on_is_answered_when_we_look(world, is_news):
    both(world, delivery(0))
    world.paris.pay("wire-1", 100, "received")
    ours, heard = await world.paris.reconciler.payments._ours("london", None), b""
    for n in range(100):
        lines = [[f"wire-{n}", "USD", "paid", 1, 5]] if is_news else []
        world.paris.reconciler.hear("london", Payments(lines, 0, heard), b"envelope")
        await world.work()
        heard = ours.digest if is_news else b""
    assert len(world.mail) == ANSWERS_MAX
    world.mail.clear()
    for _ in range(2):
        await world.paris.reconciler.in_turn(world.paris.reconciler.look)
    if is_news:  # it has heard ours, but not that we have its own; that is said once
        assert len(world.mail) == 1
    world.mail.clear()
    world.paris.reconciler.hear("london", Payments([], 0, b""), b"envelope")
    await world.work()
    assert len(world.mail) == 1


async def test_a_seller_that_never_has_all_entries_is_not_asked_for_ever(world):
    both(world, delivery(0))
    reconciler = world.london.reconciler
    reconciler.buying._ask_entries("paris", CONTRACT, DAY_3_MS, DAY_4_MS)
    asked = 1
    while world.mail:
        _, question = world.mail.popleft()
        answer = Entries(CONTRACT, question.first_ms, question.stop_ms, [], is_all=False)
        reconciler.hear("paris", answer, b"")
        await world.work()
        asked += 1
        assert asked < 2 * QUESTIONS_MAX
    assert asked > QUESTIONS_MAX
    await world.london.reconciler.in_turn(world.london.reconciler.look)
    world.mail.clear()
    reconciler.buying._ask_entries("paris", CONTRACT, DAY_3_MS, DAY_4_MS)
    assert world.mail  # after a look it may be asked again


async def test_of_one_question_only_the_newest_waits(world):
    both(world, delivery(0))
    reconciler = world.paris.reconciler
    for digest in (b"old", b"new"):
        reconciler.hear("london", Reconcile(0, DAY_MS, False, {}, digest), b"")
        reconciler.hear("london", Reconcile(0, DAY_MS, True, {}, digest), b"")
        reconciler.hear("london", AskEntries(CONTRACT, 0, 10), b"")
        reconciler.hear("london", AskEntries("another", 0, 10), b"")
        reconciler.hear("london", Payments([], 0, b""), b"")
    assert len(reconciler.turns) == 5


@pytest.mark.parametrize(
    ("at_s", "period", "first_day", "days"),
    [
        (MORNING_S, "day", 2, 1),
        (MORNING_S, "week", 1, 7),
        (NOVEMBER_S, "week", -6, 7),
        (MORNING_S, "month", 0, 30),
        (NOVEMBER_S + 30 * DAY_S, "month", 30, 31),
        (NOVEMBER_S - 1, "month", -31, 31),
        (NOVEMBER_S + 120 * DAY_S - 1, "month", 92, 28),
        (NOVEMBER_S + 485 * DAY_S, "month", 457, 29),
    ],
)
def test_periods_are_of_the_calendar(at_s, period, first_day, days):
    first_ms, stop_ms = period_of(int(at_s * 1000), period)
    assert first_ms == int(NOVEMBER_S * 1000) + first_day * DAY_MS
    assert stop_ms - first_ms == days * DAY_MS


@pytest.mark.parametrize(("period", "days"), [("day", 1), ("week", 7)])
def test_days_of_another_length_make_periods_too(period, days):
    first_ms, stop_ms = period_of(1_800_000_001_234, period, 2_000)
    assert first_ms <= 1_800_000_001_234 < stop_ms == first_ms + 2_000 * days
    assert period_of(stop_ms - 1, period, 2_000) == (first_ms, stop_ms)
    assert period_of(stop_ms, period, 2_000) == (stop_ms, stop_ms + 2_000 * days)


def test_the_length_of_a_day_is_no_setting():
    with pytest.raises(SettingError):
        read_books({"day_ms": 1000})


async def test_a_day_that_differs_holds_up_no_other_and_ends_what_is_agreed(world):
    world.london.posted(delivery(0), Verdict.POST)
    world.paris.posted(delivery(0, cost_nanos=999), Verdict.POST)
    both(world, delivery(10, MORNING_S + DAY_S), delivery(20, MORNING_S + 2 * DAY_S))
    world.utc_s += 4 * DAY_S
    for _ in range(6):
        await world.look()
    states = [(first_ms, state) for first_ms, state, _ in world.london.statements()]
    days = [DAY_3_MS + n * DAY_MS for n in range(3)]
    assert states == [(days[0], "differs"), (days[1], "agreed"), (days[2], "agreed")]
    kept = world.london.store.settlement.statements()
    next_ms = partial(world.london.store.settlement.next_delivery_ms, "buy", "paris")
    assert agreed_until(kept, next_ms) == 0
    assert agreed_until(kept[1:], lambda since_ms: None) == days[2] + DAY_MS
    asked = len(world.told())
    await world.look()
    assert len(world.told()) == asked  # not again and again
    world.utc_s += 7 * 3600
    await world.look()
    assert len(world.told()) > asked


async def test_what_was_agreed_on_is_not_taken_back_by_asking_otherwise(world):
    both(world, delivery(0))
    world.utc_s += DAY_S
    await world.look()
    before = world.paris.store.settlement.statements()
    world.paris.reconciler.hear("london", reconcile(DAY_3_MS, DAY_4_MS), b"junk")
    await world.work()
    world.paris.reconciler.hear("london", reconcile(DAY_3_MS, DAY_4_MS, is_final=True), b"junk")
    await world.work()
    assert world.paris.store.settlement.statements() == before


async def test_a_day_with_deliveries_that_are_not_settled_is_not_agreed_on(world):
    world.london.posted(delivery(0))
    world.paris.posted(delivery(0))
    honest = world.paris.seal

    def lying(site, message):
        if isinstance(message, Reconciled):
            message = replace(message, state="agreed", contracts={})
        return honest(site, message)

    world.paris.seal = lying
    world.utc_s += 2 * DAY_S
    await world.look()
    assert "agreed" not in {state for _, state, _ in world.london.statements()}
    world.london.settle(delivery(0), Verdict.POST)
    assert world.london.clean()


async def test_what_is_booked_between_the_question_and_the_answer_is_compared_too(world):
    both(world, delivery(0))
    world.utc_s += DAY_S
    await world.london.reconciler.in_turn(world.london.reconciler.look)
    world.london.posted(delivery(10), Verdict.POST)
    await world.deliver()
    assert "agreed" not in {state for _, state, _ in world.london.statements()}
    assert world.london.clean()


@pytest.mark.parametrize("liar", ["london", "paris"])
async def test_sums_that_are_not_of_the_digest_are_not_agreed_on(world, liar):
    both(world, delivery(0))
    site = getattr(world, liar)
    honest = site.seal

    def lying(to, message):
        if isinstance(message, Reconcile | Reconciled):
            message = replace(message, sums={"EUR": ["9"] * 8})
        return honest(to, message)

    site.seal = lying
    world.utc_s += DAY_S
    await world.look()
    other = world.paris if liar == "london" else world.london
    assert "agreed" not in {state for _, state, _ in other.statements()}


async def test_no_reversal_goes_into_what_was_agreed_on(world):
    both(world, delivery(0), delivery(10))
    await world.london.reconciler.disputes.dispute(CONTRACT, None, "wrong")
    await world.deliver()
    world.utc_s += DAY_S
    await world.look()
    assert world.london.statements() == [(DAY_3_MS, "agreed", False)]
    early = DisputeAnswer(CONTRACT, [[1, 0, DAY_4_MS - 1, 1]], "yesterday")
    await world.london.reconciler.disputes.answered("paris", early)
    assert {each.state for each in world.london.store.settlement.disputes()} == {"open"}
    world.utc_s = MORNING_S + 3600  # the seller's clock is set back
    await world.paris.reconciler.disputes.answer(CONTRACT, None, accept=True, reason="so it is")
    world.utc_s = MORNING_S + DAY_S
    await world.deliver()
    for each in (world.london, world.paris):
        assert {row.settled_at_s for row in each.store.settlement.disputes()} == {DAY_4_MS / 1000}
        assert each.clean()
    world.utc_s = MORNING_S + 3 * DAY_S
    for _ in range(2):
        await world.look()
    assert (DAY_4_MS, "agreed", False) in world.london.statements()  # a day of reversals alone


async def test_nothing_is_asked_of_a_site_that_we_do_not_talk_to_any_more(world):
    both(world, delivery(0))
    world.london.strangers.add("paris")
    world.utc_s += DAY_S
    await world.look()
    assert world.london.statements() == []


async def test_answers_that_nobody_asked_for_are_left_at_that(world):
    both(world, delivery(0))
    rows = [[1, n, 10, 5, 7, 1000, 1] for n in range(5000)]
    for _ in range(300):
        world.london.reconciler.hear("paris", Entries(CONTRACT, 0, 2**63 - 1, rows, False), b"")
        world.london.reconciler.hear(
            "paris", Reconciled(0, DAY_MS, False, "differs", {}, b"x", {}), b""
        )
    assert len(world.london.reconciler.turns) == 0
    assert world.london.told == []


async def test_what_has_not_been_yet_is_not_compared(world):
    both(world, delivery(0))
    async with trio.open_nursery() as nursery:
        found = []

        async def compare():
            end_ms = int((NOVEMBER_S + 3 * DAY_S) * 1000)
            found.append(await world.london.reconciler.compare("paris", 0, end_ms))

        nursery.start_soon(compare)
        while not found:
            await trio.testing.wait_all_tasks_blocked()
            await world.deliver()
    assert found == [Comparison("agreed", "", [])]


async def test_an_order_that_the_store_can_not_keep_fails_and_a_job_is_tried_again(world):
    async def fail():
        raise StoreError("the disk is gone")

    reconciler = world.london.reconciler
    with pytest.raises(StoreError):
        await reconciler.in_turn(fail)
    done = trio.Event()

    async def work():
        done.set()

    reconciler._later("paris", fail)
    reconciler._later("paris", work)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reconciler.run)
        await done.wait()
        nursery.cancel_scope.cancel()
    assert any("the disk is gone" in each for each in world.london.told)


async def test_an_answer_that_agrees_at_length_is_no_proof(world):
    both(world, delivery(0))
    world.utc_s += DAY_S
    await world.london.reconciler.in_turn(world.london.reconciler.look)
    answer = Reconciled(DAY_3_MS, DAY_4_MS, False, "agreed", {}, bytes(32), {})
    with pytest.raises(ProtocolError, match="too long"):
        world.london.reconciler.hear("paris", answer, bytes(1 << 20))


async def test_a_site_that_we_do_not_talk_to_any_more_hears_of_no_dispute(world):
    both(world, delivery(0))
    await world.london.reconciler.disputes.dispute(CONTRACT, None, "wrong")
    assert world.mail
    world.mail.clear()
    world.london.strangers.add("paris")
    await world.london.reconciler.disputes.say_again()
    assert not world.mail


async def test_what_one_site_has_paid_the_other_is_told_and_books_nothing(world):
    world.london.pay("wire-1", 100, "paid")
    world.london.pay("lost", 5, "paid", through="loss")  # our own judgement
    await world.london.reconciler.payments.tell("paris")
    await world.deliver()
    assert await world.london.paid() == {"wire-1": "here alone"}
    assert await world.paris.paid() == {"wire-1": "to be confirmed"}
    assert world.paris.store.settlement.payments() == []
    [told] = world.paris.told
    assert "london reports that it paid 0.0000001 USD under 'wire-1', which is not booked" in told
    world.paris.pay("wire-1", 100, "received")
    await world.paris.reconciler.payments.tell("london")
    await world.deliver()
    for each in (world.london, world.paris):
        assert await each.paid() == {"wire-1": "confirmed"}
        assert each.clean()
    await world.look(world.london, world.paris)
    assert not world.mail
    assert world.paris.told == [told]


async def test_who_has_not_heard_of_a_payment_is_told_again_by_buyer_and_seller_alike(world):
    world.london.pay("wire-1", 100, "paid")
    world.paris.pay("wire-2", 7, "received")
    for each in (world.london, world.paris):
        await each.reconciler.in_turn(each.reconciler.look)
        assert world.mail
        world.mail.clear()  # lost
    await world.look(world.paris)
    assert await world.london.paid() == {"wire-1": "here alone", "wire-2": "to be confirmed"}
    assert await world.paris.paid() == {"wire-2": "here alone", "wire-1": "to be confirmed"}
    world.london.strangers.add("paris")
    world.london.pay("wire-3", 100, "paid")
    await world.london.reconciler.payments.tell("paris")
    await world.london.reconciler.payments.say_again()
    assert not world.mail


async def test_who_was_heard_but_not_told_so_asks_and_is_silent_then(world):
    world.london.pay("wire-1", 100, "paid")
    world.paris.pay("wire-1", 100, "received")
    await world.look(world.london, world.paris)
    world.paris.pay("wire-2", 7, "received")
    await world.paris.reconciler.payments.tell("london")
    await world.deliver(1)
    assert world.mail
    world.mail.clear()  # what London said to that is lost
    assert await world.london.paid() == {"wire-1": "confirmed", "wire-2": "to be confirmed"}
    await world.look(world.paris)  # told, and answered this time
    for each in (world.london, world.paris):
        await each.reconciler.in_turn(each.reconciler.look)
        assert not world.mail


async def test_asking_what_a_site_has_booked_makes_nobody_talk_for_ever(world):
    world.london.pay("wire-1", 100, "paid")
    world.paris.pay("wire-1", 100, "received")
    await world.look(world.london, world.paris)
    await world.london.reconciler.payments.ask("paris")
    await world.deliver()
    for each in (world.london, world.paris):
        await each.reconciler.in_turn(each.reconciler.look)
        assert not world.mail


async def test_what_was_undone_is_told_and_may_come_again(world):
    world.london.pay("wire-1", 900, "paid")
    world.paris.pay("wire-1", 90, "received")
    await world.look(world.london, world.paris)
    assert await world.london.paid() == await world.paris.paid() == {"wire-1": "differs"}
    assert any("which is paid 0.0000009 USD here" in each for each in world.london.told)
    world.london.undo("wire-1")
    await world.look(world.london)
    assert await world.paris.paid() == {"wire-1": "here alone"}
    world.london.pay("wire-1", 90, "paid", attempt=1)
    await world.look(world.london)
    for each in (world.london, world.paris):
        assert await each.paid() == {"wire-1": "confirmed"}
        assert each.clean()


async def test_a_site_that_tells_of_ever_new_payments_fills_no_disk_and_no_log(world):
    both(world, delivery(0))
    before = world.paris.store.journal.balances()
    for n in range(30):
        lines = [[f"wire-{n}-{m}", "USD", "paid", 1, 5] for m in range(1_000)]
        world.paris.reconciler.hear("london", Payments(lines, 0, b""), b"envelope")
        await world.work()
    [kept] = world.paris.store.settlement.payments_told()
    assert kept.lines == pack(lines)
    assert world.paris.store.settlement.payments() == []
    assert world.paris.store.journal.balances() == before
    assert len(world.paris.told) == 5
    await world.look(world.paris)
    assert len(world.paris.told) == 10  # the newest
    assert all("under 'wire-29-" in each for each in world.paris.told[5:])
    await world.look(world.paris)
    assert len(world.paris.told) == 10
    with pytest.raises(ProtocolError, match="too long"):
        world.paris.reconciler.hear("london", Payments([], 0, b""), bytes(1 << 20))
    lines += [["one more", "USD", "paid", 1, 5]]
    with pytest.raises(ProtocolError, match="too many payments"):
        world.paris.reconciler.hear("london", Payments(lines, 0, b""), b"")
    world.paris.reconciler.hear("rome", Payments([], 0, b""), b"")  # we never dealt with it
    await world.work()
    assert len(world.paris.store.settlement.payments_told()) == 1


async def test_a_payment_that_only_moves_in_time_is_told_to_people_once(world):
    both(world, delivery(0))
    for at_ms in range(5):
        told = Payments([["wire-1", "USD", "paid", 1, at_ms]], 0, b"")
        world.paris.reconciler.hear("london", told, b"")
        await world.work()
        await world.paris.reconciler.in_turn(world.paris.reconciler.look)
    assert len(world.paris.told) == 1
    [kept] = world.paris.store.settlement.payments_told()
    assert kept.lines == pack(told.lines)


async def test_of_one_site_only_its_own_payments_are_read(world):
    both(world, delivery(0))
    read = []
    for name in ("payments", "payments_told"):
        query = getattr(world.paris.store.settlement, name)

        def noting(site="", query=query):
            read.append(site)
            return query(site)

        setattr(world.paris.store.settlement, name, noting)
    world.paris.pay("wire-1", 100, "received")
    await world.paris.reconciler.payments.tell("london")
    await world.deliver()
    told = Payments([["wire-2", "USD", "paid", 1, 5]], 0, b"")
    world.paris.reconciler.hear("london", told, b"")
    await world.work()
    assert len(await world.paris.paid()) == 2
    assert set(read) == {"london"}


async def test_a_list_that_reaches_back_less_far_is_told_though_its_lines_are_the_same(world):
    both(world, delivery(0))
    for n in range(LINES_MAX):
        world.london.pay(f"wire-{n}", 100, "paid")
    await world.look(world.london)
    assert [each.since_ms for each in world.paris.store.settlement.payments_told()] == [0]
    world.utc_s -= 5  # the clock was set back
    world.london.pay("older", 100, "paid")
    at_ms = int(world.utc_s * 1000)
    await world.look(world.london)
    assert [each.since_ms for each in world.paris.store.settlement.payments_told()] == [at_ms + 1]


async def test_an_operator_who_waits_for_a_comparison_gets_it_whatever_is_looked_at(world):
    both(world, delivery(0))
    world.paris.pay("wire-1", 7, "received")
    world.utc_s += DAY_S
    found = []
    async with trio.open_nursery() as nursery:

        async def compare():
            found.append(await world.london.reconciler.compare("paris", DAY_3_MS, DAY_4_MS))

        nursery.start_soon(compare)
        await trio.testing.wait_all_tasks_blocked()
        await world.london.reconciler.in_turn(world.london.reconciler.look)  # it is due anyway
        while not found:
            await world.deliver()
            await trio.testing.wait_all_tasks_blocked()
    [comparison] = found
    assert comparison.state == "agreed"
    assert [each.line.reference for each in comparison.unmatched] == ["wire-1"]
    assert not world.london.reconciler.buying.asked


async def test_a_buyer_that_voids_too_much_is_named_once(world):
    world.utc_s += 1
    for n in range(9):
        world.paris.posted(delivery(10 * n), Verdict.VOID)
    for n in range(9, 41):
        world.paris.posted(delivery(10 * n), Verdict.POST)
    await world.look(world.paris)
    assert world.paris.told == []  # a few may be too late
    world.paris.posted(delivery(1000), Verdict.VOID)
    await world.look(world.paris, world.paris)
    [told] = world.paris.told
    assert "london has voided 24% of its slot time in a week, 10 deliveries" in told
    assert told.endswith("see `gridfed deliveries london --state void --from 2026-10-27`")
    world.utc_s += 8 * DAY_S
    await world.look(world.paris)
    for n in range(200, 210):
        world.paris.posted(delivery(10 * n, world.utc_s - 9), Verdict.VOID)
    await world.look(world.paris, world.london)
    assert [each for each in world.paris.told if "voided 100%" in each] == world.paris.told[1:]
    assert not any("voided" in each for each in world.london.told)


async def test_a_buyer_hears_at_once_that_its_seller_has_booked_a_payment(world):
    """A seller that refused for the debt is asked again then: gateway.contracts.exchange."""
    world.london.pay("wire", 500, "paid")
    await world.london.reconciler.payments.tell("paris")
    await world.deliver()
    assert world.london.noted == [], "Paris has booked nothing"
    world.paris.pay("wire", 500, "received")
    await world.paris.reconciler.payments.tell("london")
    await world.deliver()
    assert world.london.noted == ["paris"]
    await world.paris.reconciler.payments.tell("london")
    await world.deliver()
    assert world.london.noted == ["paris"], "it is no news"
