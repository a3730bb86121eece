"""Sessions: nothing lost, nothing twice, over pipes that break at any moment."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from federation.errors import ProtocolError
from federation.messages.wire import pack
from federation.sessions.session import FRAME_BYTES_MAX, RECEIVE_BYTES_MAX, Session


def listener(**changes):
    terms = {"window": 1, "peer_window": 8, "numbers_acks": True, "message_bytes_max": 1 << 26}
    return Session(**(terms | changes))


def dialler(**changes):
    terms = {"window": 8, "peer_window": 1, "numbers_acks": False, "message_bytes_max": 1 << 26}
    return Session(**(terms | changes))


def test_a_frame_holds_all_that_waits():
    one, other = dialler(), listener()
    for at in range(100):
        one.post(b"%d" % at)
    frame = one.next_frame()
    assert one.next_frame() is None
    assert other.accept(frame) == [b"%d" % at for at in range(100)]


@pytest.mark.parametrize("size", [90, 5_000, 300_000])
def test_a_frame_is_filled_up_to_its_limit_and_not_beyond(size):
    one, other = dialler(), listener()
    count = 3 * FRAME_BYTES_MAX // size
    for _ in range(count):
        one.post(bytes(size))
    frame = one.next_frame()
    assert 0.9 * FRAME_BYTES_MAX - size < len(frame) <= FRAME_BYTES_MAX + 64
    arrived = len(other.accept(frame))
    assert 0 < arrived < count


def test_the_listener_has_one_frame_under_way():
    one, other = listener(), dialler()
    one.post(b"first")
    frame = one.next_frame()
    one.post(b"second")
    assert one.next_frame() is None
    assert one.next_frame(acknowledge=True) is None
    other.accept(frame)
    one.accept(other.next_frame(acknowledge=True))
    assert other.accept(one.next_frame()) == [b"second"]


def test_a_bare_acknowledgement_of_the_listener_is_itself_acknowledged():
    one, other = listener(), dialler()
    frame = one.next_frame(acknowledge=True)
    assert other.accept(frame) == []
    assert other.owes == 1
    assert one.next_frame(acknowledge=True) is None


def test_a_session_that_is_held_stops_the_other_side_at_its_window_and_loses_nothing():
    one, other = dialler(), listener()
    other.is_held = True
    got = []
    for at in range(20):
        one.post(b"%d" % at)
        while (frame := one.next_frame()) is not None:
            got += other.accept(frame)
        assert other.owes == 0
        if (beat := other.next_frame(acknowledge=True)) is not None:
            one.accept(beat)
        # Its bare acknowledgements go on, and so do the listener's own frames.
        other.accept(one.next_frame(acknowledge=True))
    assert got == [b"%d" % at for at in range(8)]
    # On a new pipe it is told no more than before, and its window stays full.
    one.rewind(other.admitted)
    other.rewind(one.received)
    while (frame := one.next_frame()) is not None:
        assert other.accept(frame) == []
    other.is_held = False
    while not one.is_idle:
        one.accept(other.next_frame(acknowledge=True))
        got += other.accept(one.next_frame(acknowledge=True))
    assert got == [b"%d" % at for at in range(20)]


def test_the_diallers_window_is_kept_and_enforced():
    one, other = dialler(), listener()
    frames = []
    for at in range(10):
        one.post(b"%d" % at)
        frames.append(one.next_frame())
    assert [frame is None for frame in frames] == [False] * 8 + [True] * 2
    greedy = dialler(window=20)
    for _ in range(8):
        greedy.post(b"x")
        other.accept(greedy.next_frame())
    greedy.post(b"x")
    with pytest.raises(ProtocolError, match="unacknowledged"):
        other.accept(greedy.next_frame())


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 5 * FRAME_BYTES_MAX])
def test_messages_of_every_size_arrive_whole(size):
    one, other = dialler(), listener()
    sent = [b"before", b"x" * size, b"after"]
    for message in sent:
        one.post(message)
    got = []
    while frame := one.next_frame():
        got += other.accept(frame)
        one.accept(other.next_frame(acknowledge=True))
    assert got == sent


def test_a_message_over_the_limit_is_refused():
    one, other = dialler(), listener(message_bytes_max=2 * FRAME_BYTES_MAX)
    one.post(bytes(3 * FRAME_BYTES_MAX))
    first, second, third = (one.next_frame() for _ in range(3))
    other.accept(first)
    other.accept(second)
    with pytest.raises(ProtocolError, match="exceeds 2,097,152 bytes"):
        other.accept(third)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff" * 40,
        pack({"t": "hello"}),
        pack([1, 0]),
        pack([1, 0, "x"]),
        pack([1, 0, ["text"]]),
        pack([1, 0, [[b"", True]]]),
        pack([1, 0, [[b"x", 1]]]),
        pack([2, 0, []]),
        pack([-1, 0, []]),
        pack([1, 5, []]),
        pack([1, -1, []]),
        pack([0, 0, [b"x"]]),
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 5000,
        b"\xc6\x7f\xff\xff\xff",
    ],
)
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(ProtocolError):
        listener().accept(frame)


@given(st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_random_bytes_never_do_worse_than_a_protocol_error(data):
    session = listener()
    try:
        messages = session.accept(data)
    except ProtocolError:
        return
    assert all(type(message) is bytes for message in messages)


class Pipes(RuleBasedStateMachine):
    """Two sides that talk over a pipe that loses its content whenever it breaks."""

    def __init__(self):
        super().__init__()
        self.sides = [dialler(), listener()]
        self.wire = [[], []]  # frames on the way to each side
        self.sent = [[], []]
        self.got = [[], []]

    @rule(
        side=st.integers(0, 1),
        sizes=st.lists(st.sampled_from([1, 10, 1 << 20, 3 << 20]), max_size=3),
    )
    def post(self, side, sizes):
        for size in sizes:
            message = b"%d:" % len(self.sent[side]) + bytes(size)
            self.sent[side].append(message)
            self.sides[side].post(message)

    @rule(side=st.integers(0, 1), acknowledge=st.booleans())
    def flush(self, side, acknowledge):
        frame = self.sides[side].next_frame(acknowledge=acknowledge)
        if frame is not None:
            self.wire[1 - side].append(frame)

    @rule(side=st.integers(0, 1))
    def deliver(self, side):
        if self.wire[side]:
            self.got[side] += self.sides[side].accept(self.wire[side].pop(0))

    @rule()
    def break_pipe(self):
        self.wire = [[], []]
        one, other = self.sides
        received = one.received, other.received
        one.rewind(received[1])
        other.rewind(received[0])

    @invariant()
    def nothing_out_of_order(self):
        for side in (0, 1):
            expected = self.sent[1 - side]
            assert self.got[side] == expected[: len(self.got[side])]

    @invariant()
    def the_transport_rule_holds(self):
        assert len(self.wire[0]) <= 2

    def teardown(self):
        for _ in range(10_000):
            for side in (0, 1):
                self.flush(side, True)
                while self.wire[1 - side]:
                    self.deliver(1 - side)
            if self.got[0] == self.sent[1] and self.got[1] == self.sent[0]:
                return
        raise AssertionError("something was lost")


TestPipes = Pipes.TestCase
TestPipes.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_a_frame_that_is_sent_again_after_a_lost_pipe_is_not_current():
    one, other = dialler(), listener()
    one.post(b"first")
    lost = one.next_frame()
    other.rewind(one.received)
    one.rewind(other.received)
    one.post(b"second")
    assert one.next_frame() == lost
    assert other.accept(lost) == [b"first"]
    assert not other.is_current, "it was made before the pipe was lost"
    one.accept(other.next_frame(acknowledge=True))
    assert other.accept(one.next_frame()) == [b"second"]
    assert other.is_current


def test_an_unnumbered_frame_is_current_if_the_window_certainly_has_room():
    one, other = dialler(), listener()
    one.post(b"first")
    frame = one.next_frame()
    for _ in range(3):  # what the listener says, acknowledgements among it, does not arrive
        beat = one.next_frame(beat=True)
        assert other.accept(beat) == []
        assert other.is_current, "seven more frames were possible"
        if frame is not None:
            assert other.accept(frame) == [b"first"]
            assert other.is_current
            frame = None
    for at in range(7):
        one.post(b"%d" % at)
        other.accept(one.next_frame())
        assert other.is_current
    one.post(b"last")
    assert one.next_frame() is None
    other.accept(one.next_frame(beat=True))
    assert not other.is_current
    one.accept(other.next_frame(acknowledge=True))
    assert other.accept(one.next_frame()) == [b"last"]
    other.accept(one.next_frame(acknowledge=True))
    assert other.is_current


SIZES = st.integers(1, FRAME_BYTES_MAX + 10) | st.integers(1, 50)


@settings(max_examples=50)
@given(st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=8))
def test_nothing_waits_behind_a_frame_that_is_current(sizes):
    one, other = dialler(), listener()
    for size, urgent in sizes:
        one.post(b"x" * size, urgent=urgent)
    sent = 0
    while (frame := one.next_frame()) is not None:
        assert len(frame) <= RECEIVE_BYTES_MAX
        sent += len(other.accept(frame))
        if other.is_current:
            assert sent == len(sizes)
    assert sent == len(sizes)


def test_a_message_of_over_half_a_frame_does_not_wait_unseen():
    one, other = dialler(), listener()
    one.post(b"x" * 400_000)
    one.post(b"x" * 700_000)
    assert len(other.accept(one.next_frame())) == 2
    assert one.next_frame() is None


@pytest.mark.parametrize(
    "sizes", [(900_000, 900_000), (3_000_000,), (600_000, 10)], ids=["fits", "pieces", "beside"]
)
def test_a_frame_that_may_have_had_no_room_for_the_next_message_is_not_current(sizes):
    one, other = dialler(), listener()
    for size in sizes:
        one.post(b"x" * size)
    other.accept(one.next_frame())
    assert not other.is_current
    while (frame := one.next_frame()) is not None:
        other.accept(frame)
    one.post(b"end")
    other.accept(one.next_frame())
    assert other.is_current
