"""A buyer's comparison with its seller's books."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import ProtocolError
from federation.messages.contracts import Delivery
from federation.messages.reconciliation import (
    BookEntry,
    EntryState,
    Findings,
    Tally,
    by_contract,
    compare,
    sums_of,
    tally_of,
)

P, S, R = EntryState.PENDING, EntryState.POSTED, EntryState.REVERSAL


def entry(first=0, state=S, epoch=1, cost=5, contract="c-1", currency="USD"):
    return BookEntry(contract, currency, Delivery(epoch, first, first + 10, cost, 7, 1000), state)


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ([entry()], [entry()], Findings()),
        ([], [], Findings()),
        ([entry()], [entry(state=P)], Findings(say=[[1, 0, 1]])),
        ([entry(state=P)], [entry()], Findings(post=[entry().delivery])),
        ([entry(state=P)], [entry(state=P)], Findings(say=[[1, 0, 1]], post=[entry().delivery])),
        ([entry(state=P)], [], Findings(void=[entry().delivery])),
        ([], [entry(state=P)], Findings(say=[[1, 0, 0]])),
        ([entry()], [], Findings(unclear=["epoch 1, task 0: 0.000000005 USD here only"])),
        ([], [entry()], Findings(unclear=["epoch 1, task 0: 0.000000005 there only"])),
        (
            [entry()],
            [entry(cost=6)],
            Findings(
                unclear=[
                    "epoch 1, task 0: 10 tasks, 0.000000005 USD, 0.000000007 s, booked at 1000 ms "
                    "since 1970 here; 10 tasks, 0.000000006 USD, 0.000000007 s, booked at 1000 ms "
                    "since 1970 there"
                ]
            ),
        ),
        ([entry(), entry(state=R)], [entry(), entry(state=R)], Findings()),
        (
            [entry(), entry(state=R)],
            [entry()],
            Findings(unclear=["the reversal of epoch 1, task 0: 0.000000005 USD here only"]),
        ),
    ],
)  # fmt: skip
def test_what_follows_from_the_entries_of_both(ours, theirs, found):
    assert compare(ours, [each.row for each in theirs]) == found


@pytest.mark.parametrize(
    "row", [[1, 0, 10, 5, 7, 1000], [1, 0, 10, 5, 7, 1000, 3], [1, 0, 10, 5, 7, 1000, 1, 1], []]
)
def test_what_is_no_entry_is_refused(row):
    with pytest.raises(ProtocolError):
        compare([], [row])


ENTRIES = st.lists(
    st.builds(
        entry,
        first=st.integers(0, 5).map(lambda n: 10 * n),
        state=st.sampled_from([P, S]),
        epoch=st.integers(1, 3),
        cost=st.integers(0, 2**63 - 1),
        contract=st.sampled_from(["c-1", "c-2"]),
    ),
    unique_by=lambda each: (each.contract, each.delivery.epoch, each.delivery.first),
).map(lambda found: sorted(found, key=lambda each: (each.contract, each.row)))


@given(ENTRIES, ENTRIES)
def test_books_are_equal_exactly_when_their_digests_are(ours, theirs):
    assert (tally_of(ours).digest == tally_of(theirs).digest) == (ours == theirs)
    assert (by_contract(ours) == by_contract(theirs)) == (ours == theirs)
    assert sums_of(tally_of(ours).plain) == tally_of(ours).sums


@given(ENTRIES, st.data())
def test_verdicts_that_were_lost_are_mended_in_one_round(truth, data):
    """Books that differ only in verdicts, and in messages that one side missed, become equal."""
    posted = [BookEntry(each.contract, each.currency, each.delivery, S) for each in truth]
    ours = [each for each in posted if data.draw(st.booleans())]
    ours = [
        BookEntry(each.contract, each.currency, each.delivery, data.draw(st.sampled_from([P, S])))
        for each in ours
    ]
    theirs = [BookEntry(each.contract, each.currency, each.delivery, P) for each in posted]
    for contract in {each.contract for each in truth}:
        here = [each for each in ours if each.contract == contract]
        there = [each for each in theirs if each.contract == contract]
        found = compare(here, [each.row for each in there])
        assert not found.unclear
        paid = {(e, f) for e, f, is_paid in found.say if is_paid}
        void = {(e, f) for e, f, is_paid in found.say if not is_paid}
        assert not found.void
        owed = {(each.delivery.epoch, each.delivery.first) for each in here}
        assert paid == owed
        assert paid | void == {(each.delivery.epoch, each.delivery.first) for each in there}
        assert {(d.epoch, d.first) for d in found.post} == {
            (each.delivery.epoch, each.delivery.first) for each in here if each.state is P
        }


@pytest.mark.parametrize(
    "plain",
    [
        {"USD": ["1"]},
        {"USD": ["1"] * 7 + ["-1"]},
        {"USD": ["1"] * 7 + ["1" * 50]},
        {"USD": [1] * 8},
        {"usd": ["1"] * 8},
        {b"USD": ["1"] * 8},
        -1,
        None,
        ["USD"],
        {"<b>": ["1"] * 8},
        {f"{a}{b}{c}": ["1"] * 8 for a in "ABCDEF" for b in "ABCDEF" for c in "ABCDEF"},
    ],
)
def test_sums_that_are_none_are_refused(plain):
    with pytest.raises(ProtocolError):
        sums_of(plain)


def test_a_reversal_is_owed_no_more():
    tally = tally_of([entry(cost=7), entry(first=10, cost=5), entry(cost=7, state=R)])
    assert tally.sums["USD"].due_nanos == 5
    assert not tally.is_pending
    assert tally_of([entry(state=P)]).is_pending
    assert Tally().plain == {}
