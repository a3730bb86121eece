"""Rules over time: in force, versions, planned and temporary changes, and a plain count."""

from hypothesis import given
from hypothesis import strategies as st

from federation.clocks import NEVER_S
from gateway.ledger.db.rules.records import RuleChangeKept, RuleChangeRow, RuleEditKept
from gateway.rules.books import history_of, records_of
from gateway.rules.history import (
    RuleChange,
    RuleEdit,
    RuleHistory,
    RuleKey,
    RuleKind,
    difference,
    overridden,
)

NIGHT = RuleKey(RuleKind.WINDOW, "risk", "night")
PRICE = RuleKey(RuleKind.PRICE, "risk")


def change(number, from_s, content, *, key=NIGHT, source="command", **more):
    return RuleChange(
        number, from_s, min(from_s, 1.0), "ada", source, (RuleEdit(key, content),), **more
    )


def test_the_latest_change_that_counts_is_in_force():
    history = RuleHistory([change(2, 20.0, "b"), change(1, 10.0, "a"), change(3, 30.0, None)])
    assert [history.at(at_s).get(NIGHT) for at_s in (9.0, 10.0, 20.0, 30.0)] == [
        *(None, "a", "b", None)
    ]
    assert [history.version_at(at_s) for at_s in (9.0, 10.0, 29.0, 30.0)] == [0, 1, 2, 3]


def test_a_planned_change_is_not_undone_by_one_that_is_made_later_and_counts_earlier():
    history = RuleHistory([change(1, 50.0, "planned"), change(2, 20.0, "now")])
    assert [history.at(at_s)[NIGHT] for at_s in (20.0, 50.0)] == ["now", "planned"]
    assert [history.version_at(at_s) for at_s in (20.0, 50.0)] == [2, 1]
    assert history.of(2) == {NIGHT: "now"}
    assert history.of(1) == {NIGHT: "planned"}


def test_a_temporary_change_gives_way_to_what_was_before_and_its_end_is_a_version():
    usual, holiday = change(1, 0.0, "usual"), change(2, 10.0, "holiday", until_s=20.0)
    end = RuleChange(3, 20.0, 1.0, "ada", "command", ends=2)
    history = RuleHistory([usual, holiday, end])
    assert [history.at(at_s)[NIGHT] for at_s in (9.0, 10.0, 20.0)] == ["usual", "holiday", "usual"]
    assert [history.version_at(at_s) for at_s in (9.0, 10.0, 20.0)] == [1, 2, 3]
    assert [each.number for each in history.planned(5.0)] == [2, 3]
    assert [history.next_edge(at_s) for at_s in (5.0, 10.0, 20.0)] == [10.0, 20.0, None]
    assert [tuple(each) for each in history.spans(NIGHT, 5.0)] == [
        (float("-inf"), 10.0, "usual"),
        (10.0, 20.0, "holiday"),
        (20.0, NEVER_S, "usual"),
    ]


def test_a_cancelled_change_never_counts():
    history = RuleHistory([change(1, 0.0, "a"), change(2, 10.0, "b", cancelled_at_s=5.0)])
    assert history.at(11.0) == {NIGHT: "a"}
    assert history.version_at(11.0) == 1
    assert history.of(2) is None
    assert history.planned(6.0) == []
    assert history.next_number == 3


def test_a_file_overrides_only_what_it_changes():
    history = RuleHistory(
        [
            RuleChange(
                *(1, 0.0, 0.0, "", "file"),
                edits=(RuleEdit(NIGHT, "a"), RuleEdit(PRICE, "1 USD")),
            ),
            change(2, 5.0, "b"),
            change(3, 6.0, "2 USD", key=PRICE),
        ]
    )
    file = {NIGHT: "a", PRICE: "3 USD"}
    edits = difference(history.of_source("file"), file)
    assert edits == (RuleEdit(PRICE, "3 USD"),)
    assert list(overridden(history, edits, 7.0)) == [RuleEdit(PRICE, "3 USD")]
    after = history.with_change(RuleChange(4, 7.0, 7.0, "", "file", edits))
    assert after.at(7.0) == {NIGHT: "b", PRICE: "3 USD"}
    assert after.of_source("file") == file
    assert difference(after.of_source("file"), {PRICE: "3 USD"}) == (RuleEdit(NIGHT, None),)


_CHANGES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.none() | st.integers(1, 9),
        st.sampled_from([NIGHT, PRICE]),
        st.sampled_from(["a", "b", None]),
        st.booleans(),
    ),
    max_size=8,
)


@given(_CHANGES, st.integers(0, 12))
def test_what_is_in_force_is_what_a_plain_count_says(drawn, at):
    changes = [
        change(
            number, float(from_s), content, key=key,
            until_s=float(from_s + lasts) if lasts else NEVER_S,
            cancelled_at_s=0.0 if cancelled else None,
        )
        for number, (from_s, lasts, key, content, cancelled) in enumerate(drawn, 1)
    ]  # fmt: skip
    expected = {}
    for tick in range(at + 1):  # whatever counts at `at`, by the time of its beginning
        for each in changes:
            if each.from_s == tick and each.until_s > at and each.cancelled_at_s is None:
                expected[each.edits[0].key] = each.edits[0].content
    expected = {key: content for key, content in expected.items() if content is not None}
    history = RuleHistory(reversed(changes))
    assert history.at(float(at)) == expected
    for key in (NIGHT, PRICE):
        [now, *_] = history.spans(key, float(at))
        assert now.content == expected.get(key)
        for span in history.spans(key, float(at)):
            at_s = max(span.from_s, float(at))
            assert history.at(at_s).get(key) == span.content


def test_a_history_is_the_same_from_the_books():
    changes = [
        change(1, 5.0, [{"from": "22:00", "claims": []}], until_s=9.0, reason="year's end"),
        RuleChange(2, 9.0, 1.0, "ada", "command", ends=1),
        change(3, 6.0, None, key=PRICE, cancelled_at_s=4.0),
    ]
    rows = []
    for each in changes:
        head, *edits = records_of(each)
        assert isinstance(head, RuleChangeKept)
        assert all(isinstance(edit, RuleEditKept) for edit in edits)
        rows.append(RuleChangeRow(head, each.cancelled_at_s, tuple(edits)))
    assert list(history_of(rows).changes) == changes


def test_the_order_of_groups_is_part_of_them():
    key = RuleKey(RuleKind.GROUPS)
    before, after = {"a": ["ann"], "b": ["ann"]}, {"b": ["ann"], "a": ["ann"]}
    assert difference({key: before}, {key: dict(before)}) == ()
    assert difference({key: before}, {key: after}) == (RuleEdit(key, after),)
