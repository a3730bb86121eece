"""The client's books: every call ends once, for any events in any order."""

from collections import Counter, deque
from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.engine.books.streams import PENDING, BundleSender, Ended, Stream
from federation.messages.messages import HoldChanged, OpenJob
from federation.objects.labels import UNLABELLED, read_label
from federation.objects.left import WHOLE
from federation.objects.manifests import SHA256
from federation.objects.open_calls import InputValue, OpenCall
from federation.objects.references import with_head
from federation.ranges import RangeSet

OPENING = OpenJob(
    "j", "n", b"d" * 32, False, "p", 0.0, {}, None, 0, None, "", "3.11", False, False, {}
)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "extend", "send", "place", "end", "again"]),
        st.integers(0, 60),
        st.integers(1, 20),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_every_call_ends_exactly_once(steps):  # noqa: C901 - one match
    sink = deque()
    stream = Stream(OPENING, sink)
    futures, resolved, bundles, sent = [], Counter(), [], Counter()
    calls_out = 0
    for step, first, count in steps:
        placed = None
        match step:
            case "submit":
                for _ in range(count):
                    futures.append(stream.submit(b"x", len(futures)))
            case "extend":
                bundles.append(stream.extend([b"y"] * count))
            case "send":
                found = stream.next_to_send()
                if found is not None:
                    calls_out += found[0].missing
                    for message in found[1]:
                        last = message.first + len(message.arguments)
                        sent.update(range(message.first, last))
            case "place":
                stop = min(stream.total, first + count)
                if first < stop:
                    placed = stream.place(first, [b"v"] * (stop - first), failed=False)
            case "end":
                placed = stream.end([(first, first + count)], Ended("lost", "why"))
            case "again":
                stream.send_again()
                calls_out = 0
        if placed is not None:
            calls_out -= placed.calls
            resolved.update(future for future, _ in sink)
            sink.clear()
        assert calls_out >= 0
        assert all(count == 1 for count in resolved.values())
    stream.end_all(Ended("lost", "the end"))
    assert stream.unfinished == 0
    assert all(PENDING not in bundle.outcomes for bundle in bundles)


def test_what_ended_elsewhere_is_named_in_a_job_that_was_opened_again_and_only_there():
    stream = Stream(OPENING, deque())
    stream.extend([b"x"] * 10)
    stream.extend([b"y"] * 10)
    stream.place(0, [b"v"] * 12, failed=False)
    stream.place(15, [b"v"], failed=False)
    assert stream.elsewhere() == []
    stream.opening = replace(OPENING, again=True)
    assert stream.elsewhere() == [[0, 12], [15, 16]]
    stream.opening = replace(OPENING, again=True, detached=True)
    assert stream.elsewhere() == []


def test_the_last_word_about_a_hold_goes_to_the_next_gateway():
    stream = Stream(OPENING, deque())
    assert stream.opening_at("tcp://a") == OPENING
    stream.note_hold(
        HoldChanged("j", "an\x1bn" + "x" * 500, 5.0, is_operators=True), "tcp://a", "paris"
    )
    found = stream.opening_at("tcp://b")
    assert found.hold["by"].startswith("an\\x1bnxx")
    assert len(found.hold["by"]) == 128
    assert (found.hold["at_s"], found.hold["is_operators"], found.hold["is_own"]) == (
        *(5.0, True, False),
    )
    assert stream.opening_at("tcp://a").hold["is_own"]
    assert found.hold["site"] == "paris"
    stream.note_hold(
        HoldChanged("j", "ann", 5.0, is_operators=True, site="oslo"), "tcp://b", "rome"
    )
    assert stream.opening_at("tcp://c").hold["site"] == "oslo"  # the gateway there had it so
    stream.note_hold(HoldChanged("j", "", 9.0, is_operators=False), "tcp://b", "rome")
    assert stream.opening_at("tcp://a").hold == {
        "by": "",
        "at_s": 9.0,
        "site": "rome",
        "is_operators": False,
        "is_own": False,
    }
    assert stream.opening.hold == {}  # a job that takes its calls over is not held


def test_a_bundle_names_the_objects_of_its_calls_and_keeps_them_until_all_have_ended():
    stream = Stream(OPENING, deque())
    stream.submit(b"0", "a", {b"1": "lease 1"})
    stream.submit(b"0", "b", {b"2": "lease 2"})
    stream.submit(b"x", "c")
    found = stream.next_to_send()
    assert found is not None
    assert [message.objects for message in found[1]] == [[b"1", b"2"]]
    stream.place(0, [b"v", b"v"], failed=False)
    assert set(stream.leases()) == {b"1", b"2"}
    stream.place(2, [b"v"], failed=False)
    assert stream.leases() == {}


def test_open_calls_that_have_become_large_are_sent_in_messages_that_fit():
    stream = Stream(OPENING, deque())
    values = [InputValue(WHOLE + bytes(size)) for size in (600, 300, 700, 2_000, 100)]
    for value in values:
        future = SimpleNamespace(as_input=lambda value=value: value, label=UNLABELLED)
        stream.submit(OpenCall(b"\x80", (), (future,)), SimpleNamespace(lost=None))
    found = stream.next_to_send(1_000)
    assert found is not None
    messages = found[1]
    assert [(each.first, len(each.arguments)) for each in messages] == [(0, 2), (2, 1), (4, 1)]
    assert all(each.objects == [] for each in messages)
    assert stream.ended_here == RangeSet([(3, 4)])  # it fits no message


def test_calls_with_values_of_labelled_results_are_sent_with_the_label():
    def result(*words):
        value = InputValue(WHOLE + b"v")
        return SimpleNamespace(as_input=lambda: value, label=read_label(words).named("a result"))

    stream = Stream(OPENING, deque())
    inputs = [
        [result()],
        [result("UK")],
        [result("UK"), result("UK", "EU")],
        [result("JP")],
        [result("UK"), result("JP")],
    ]
    for futures in inputs:
        call = OpenCall(b"\x80", (), tuple(futures))
        stream.submit(call, SimpleNamespace(lost=None))
    _, messages = stream.next_to_send(1_000)
    found = [(each.first, len(each.arguments), each.label) for each in messages]
    assert found == [(0, 1, []), (1, 2, ["UK"]), (3, 1, ["JP"])]
    assert stream.ended_here == RangeSet([(4, 5)])  # no place is left for it


def test_the_calls_that_refer_to_an_object_are_told_apart():
    one, two = (bytes([SHA256]) + bytes([at]) * 32 for at in (1, 2))
    stream = Stream(OPENING, deque())
    for digests in ([one], [], [two], [one, two]):
        stream.submit(with_head(b"x", digests), "f", dict.fromkeys(digests, "lease"))
    assert stream.calls_with({one}) == [(0, 1), (3, 4)]
    assert stream.calls_with({one, two}) == [(0, 1), (2, 4)]
    stream.place(0, [b"v"], failed=False)
    assert stream.calls_with({one}) == [(3, 4)]
    assert stream.calls_with({b"other"}) == []


def test_a_job_whose_objects_are_not_held_yet_sends_nothing():
    stream = Stream(OPENING, deque())
    stream.submit(b"0", "a")
    stream.paused = True
    assert stream.next_to_send() is None
    assert stream.waiting
    stream.paused = False
    assert stream.next_to_send() is not None


class Channel:
    """A dialogue as its sender sees it."""

    is_open = True

    def __init__(self, tasks_max):
        self.session = SimpleNamespace(backlog_bytes=0, has_room=True)
        self.welcome = SimpleNamespace(
            tasks_max=tasks_max, bytes_max=1 << 20, message_bytes_max=1 << 20
        )
        self.posted = []
        self.post = self.posted.append


def test_calls_are_sent_within_the_limit_on_unfinished_ones_and_the_end_of_a_job_after_them():
    closed, channel, stream = [], Channel(tasks_max=1), Stream(OPENING, deque())
    sender = BundleSender(closed.append)
    for _ in range(2):  # two bundles
        stream.extend([b"call"])
    sender.add(stream)
    sender.close(stream, channel)
    sender.fill(channel)
    assert [message.kind for message in channel.posted] == ["tasks"]
    assert closed == []
    sender.returned(stream.place(0, [b"result"], failed=False))
    sender.fill(channel)
    sender.returned(stream.place(1, [b"result"], failed=False))
    sender.fill(channel)
    assert [message.kind for message in channel.posted] == ["tasks", "tasks", "close"]
    assert closed == [stream]
    assert stream.is_over


def test_the_label_of_results_is_where_both_the_opening_and_the_gateway_allow():
    """The words of both were added up: results of EU data were allowed in the US."""
    opening = replace(OPENING, wishes={"label": ["EU", "US"]})
    stream = Stream(opening, deque())
    assert stream.label.words == ("EU", "US")
    stream.told_label = ("EU", "site:paris")
    assert stream.label.words == ("EU", "site:paris")
    many = [f"not-site:{at}" for at in range(40)]
    wide = Stream(replace(OPENING, wishes={"label": many}), deque())
    wide.told_label = tuple(f"not-site:x{at}" for at in range(40))
    assert len(wide.label.words) == 80
    assert Stream(OPENING, deque()).label == UNLABELLED
