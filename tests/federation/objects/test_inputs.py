"""Inputs of calls: heads, their filling, futures that are sealed, and calls as they are sent."""

import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from federation.engine.books.streams import BundleSender, Ended, Stream
from federation.errors import ProtocolError, SerializationError
from federation.messages.messages import Cancel
from federation.objects import inputs, references
from federation.objects.inputs import (
    INPUTS_MAX,
    filled,
    has_inputs,
    merged,
    read_head,
    with_inputs,
)
from federation.objects.labels import UNLABELLED
from federation.objects.left import left_value
from federation.objects.manifests import SHA256
from federation.objects.open_calls import InputFailure, InputValue, OpenCall
from federation.objects.references import any_has_references, pickle_of, references_of
from federation.payload import seal_call, seal_calls, seal_singles

DIGEST = bytes([SHA256]) + b"d" * 32
OTHER = bytes([SHA256]) + b"e" * 32


class Future:
    """A future as the client has them: it stands for its result among arguments."""

    is_detached = False
    label = UNLABELLED
    lost = None

    def __init__(self, job="a", task=0):
        self.node = (job, task)
        self.given = None

    def as_input(self):
        return self.lost or self.given

    def __reduce__(self):
        return references.reduced_input(self)


@dataclass
class Deal:
    price: object


ROWS = st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(1, 9)).map(
    lambda row: (row[0], row[1], row[1] + row[2])
)


@given_by(st.lists(st.one_of(ROWS, st.binary(max_size=5)), max_size=6), st.binary(max_size=9))
def test_a_head_says_what_was_put_into_it_and_is_filled_in_order(found, pickled):
    call = with_inputs(pickled, [DIGEST], found)
    head = read_head(call)
    assert (head.digests, list(head.inputs)) == ((DIGEST,), found)
    assert call[head.start :] == pickled
    assert list(head.rows) == [each for each in found if not isinstance(each, bytes)]
    width = sum(stop - first for _, first, stop in head.rows)
    values = [b"v%d" % at for at in range(width)]
    whole = read_head(filled(call, values))
    left = iter(values)
    expected = []
    for each in found:
        if isinstance(each, bytes):
            expected.append(each)
        else:
            expected += [next(left) for _ in range(each[1], each[2])]
    assert list(whole.inputs) == expected
    assert bytes(pickle_of(filled(call, values))) == pickled


def test_an_object_among_the_values_is_named_in_the_head():
    call = filled(with_inputs(b"p", [DIGEST], [("a", 0, 2)]), [left_value(OTHER, 5), b"x"])
    assert references_of(call) == [DIGEST, OTHER]


@given_by(st.binary(max_size=40))
def test_any_bytes_are_a_head_or_refused(rest):
    call = inputs.MARK + rest
    try:
        read_head(call)
    except ProtocolError:
        return
    assert has_inputs(call)


@pytest.mark.parametrize(
    "row",
    [
        ("a", 2, 2),
        ("a", -1, 2),
        ("", 0, 1),
        ("a" * 65, 0, 1),
        ("a", 0, 1 << 50),
        ("a", 0, INPUTS_MAX + 1),
        ("a", 0),
        (1, 0, 1),
        ("a", True, 2),
        None,
        7,
    ],
)
def test_a_range_that_is_wrong_is_refused(row):
    with pytest.raises(ProtocolError):
        read_head(with_inputs(b"p", [], [row]))


def test_a_head_that_is_cut_off_is_refused():
    call = with_inputs(b"", [DIGEST], [("a", 0, 1)])
    for length in range(3, len(call)):
        with pytest.raises(ProtocolError):
            read_head(call[:length])
    with pytest.raises(ProtocolError):
        read_head(with_inputs(b"p", [b"no digest"], []))


def test_tasks_that_follow_each_other_are_a_range():
    found = [("a", 1), ("a", 2), b"v", ("a", 3), ("a", 5), ("b", 6), ("b", 7)]
    assert merged(found) == [("a", 1, 3), b"v", ("a", 3, 4), ("a", 5, 6), ("b", 6, 8)]


def test_futures_are_found_anywhere_and_each_is_one_hole():
    first, second = Future(task=3), Future(task=4)
    call = seal_call(([first, {"deal": Deal((second, first))}],), {"last": second})
    assert isinstance(call, OpenCall)
    assert call.inputs == (first, second)
    sent = call.as_sent()
    assert isinstance(sent, bytes)
    assert read_head(sent).inputs == (("a", 3, 5),)
    whole = filled(sent, [pickle.dumps("x"), pickle.dumps("y")])
    head = read_head(whole)
    inputs.set_source(lambda number: pickle.loads(head.inputs[number]))
    try:
        opened = pickle.loads(whole[head.start :])
    finally:
        inputs.set_source(inputs._no_source)
    assert opened.args == (["x", {"deal": Deal(("y", "x"))}],)
    assert opened.kwargs == {"last": "y"}


def test_calls_of_a_map_with_and_without_futures():
    future = Future()
    sealed = seal_singles([1, future])
    assert [type(each) for each in sealed] == [bytes, OpenCall]
    assert any_has_references(sealed)
    assert not any_has_references(seal_calls([(1, 2)]))


def test_a_future_is_pickled_nowhere_else():
    with pytest.raises(SerializationError, match="a future can be pickled only among"):
        pickle.dumps(Future())
    with pytest.raises(SerializationError, match="can be loaded only by its task"):
        inputs.given(0)


# --- as they are sent ----------------------------------------------------------------------------


class Lease:
    digest = OTHER


def open_call(*futures):
    return OpenCall(b"p", (DIGEST,), futures)


def stream_of(job="b"):
    class Opening:
        detached = False
        again = False

    opening = Opening()
    opening.job = job
    return Stream(opening, __import__("collections").deque())


def test_a_call_is_sent_with_what_its_inputs_are_by_then():
    first, second = Future(task=0), Future(task=1)
    call = open_call(first, second)
    assert read_head(call.as_sent()).inputs == (("a", 0, 2),)
    first.given = InputValue(b"value")
    assert read_head(call.as_sent()).inputs == (b"value", ("a", 1, 2))
    second.given = InputValue(left_value(OTHER, 9), Lease())
    head = read_head(call.as_sent())
    assert head.digests == (DIGEST, OTHER)
    assert references_of(call) == [DIGEST, OTHER]  # held until the call has ended
    first.given = InputFailure("boom")
    assert call.as_sent() == InputFailure("boom")


def test_a_future_that_moved_is_named_where_it_is_now():
    future = Future("a", 7)
    call = open_call(future)
    future.node = ("again", 1)
    assert read_head(call.as_sent()).inputs == (("again", 1, 2),)


def test_a_call_whose_input_has_failed_is_not_sent_and_ends():
    stream = stream_of()
    bad, good = Future(), Future(task=1)
    futures = [Future("b", at) for at in range(3)]
    stream.submit(open_call(good), futures[0])
    stream.submit(open_call(bad), futures[1])
    stream.submit(open_call(futures[1]), futures[2])
    bad.given = InputFailure("boom", b"exception")
    bundle, messages = stream.next_to_send()
    assert [(each.first, len(each.arguments), each.inputs) for each in messages] == [(0, 1, True)]
    assert bundle.missing == 1
    resolved = list(stream._resolved)
    assert [each[0] for each in resolved] == futures[1:]
    assert {each[1] for each in resolved} == {Ended("dependency", "boom", b"exception")}
    assert stream.elsewhere() == [[1, 3]]  # so the gateway does not wait for them


def test_the_gateway_is_told_once_of_calls_that_ended_here():
    stream, bad = stream_of(), Future()
    futures = [Future("b", at) for at in range(3)]
    stream.submit(open_call(bad), futures[0])
    stream.submit(open_call(Future(task=1)), futures[1])
    stream.submit(open_call(futures[0]), futures[2])
    stream.next_to_send()
    assert stream.take_untold() is None
    bad.given = InputFailure("boom", b"exception")
    stream.send_calls([(0, 1)], 1 << 20)  # its gateway looks for the input, in vain
    assert stream.take_untold() == Cancel(0, "b", [[0, 1]], True)
    assert stream.take_untold() is None


def test_a_call_behind_one_that_ended_here_ends_for_the_reason_that_is_known_here():
    stream, bad = stream_of(), Future()
    calls = [bad, None, None, Future(task=7)]
    futures = [Future("b", at) for at in range(4)]
    for at, each in enumerate(calls):
        stream.submit(open_call(each or futures[at - 1]), futures[at])
    stream.next_to_send()
    bad.given = InputFailure("boom", b"exception")
    stream.send_calls([(0, 1)], 1 << 20)
    told = Ended("dependency", "task 0 of job b (f), which it needs, was cancelled")
    placed = stream.end_behind([(1, 4)], told)
    assert placed.calls == 3
    known = Ended("dependency", "boom", b"exception")
    assert [each[1] for each in stream._resolved] == [known, known, known, told]


def test_calls_are_sent_again_with_the_values_that_came_since():
    stream = stream_of()
    first, bad = Future(), Future(task=1)
    for each in (first, bad):
        stream.submit(open_call(each), Future("b"))
    stream.next_to_send()
    first.given, bad.given = InputValue(b"v"), InputFailure("boom")
    messages, placed = stream.send_calls([(0, 2), (5, 9)], 1 << 20)
    (message,) = messages
    assert (message.first, read_head(message.arguments[0]).inputs) == (0, (b"v",))
    assert placed.calls == 1  # the other is not in flight any more
    assert stream.send_calls([(1, 2)], 1 << 20)[0] == []


def test_a_call_that_outgrows_a_message_fails_with_the_sizes():
    stream, large = stream_of(), Future()
    large.given = InputValue(b"x" * 2000)
    stream.submit(open_call(large), Future("b"))
    assert stream.next_to_send(1000) is None
    ((_, ended),) = stream._resolved
    assert "bytes, the limit is 1,000" in ended.text


class Session:
    backlog_bytes = 0
    has_room = True


class Welcome:
    tasks_max = 10_000
    bytes_max = 1 << 20
    message_bytes_max = 1 << 20


class Dialogue:
    session = Session()
    welcome = Welcome()
    is_open = True

    def __init__(self):
        self.posted = []

    def post(self, message):
        self.posted.append(message)


def test_inputs_are_sent_before_what_waits_for_them():
    sender, dialogue = BundleSender(lambda stream: None), Dialogue()
    late, early = stream_of("late"), stream_of("early")
    early.submit(b"\x80", Future("early", 0))
    late.submit(open_call(Future("early", 0)), Future("late", 0))
    sender.keep_order()
    sender.add(late)  # first in turn
    sender.add(early)
    sender.fill(dialogue)
    assert [each.job for each in dialogue.posted] == ["early", "late"]
