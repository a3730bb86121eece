"""The silence of a gateway, as its dialler is told; and the frames that are heard."""

import itertools
import os
from types import SimpleNamespace

import pytest
import trio

from federation.errors import ProtocolError, SessionRefused
from federation.sessions.handshake import SharedSecret
from gateway.sessions import conversation as conversations
from gateway.sessions.conversation import PART_MAX, REDIAL_MAX_S, Conversation
from gateway.sessions.driving import drive
from gateway.worker.outbox import WorkerOutbox


class Enough(Exception):
    pass


class Dialler:
    """Is refused so many times; then the address is dead, or each dial fails at once."""

    def __init__(self, refusals, *, fails=False):
        self.refusals, self.silences, self.fails = refusals, [], fails

    def dial(self, _on_change):
        if self.refusals:
            self.refusals -= 1
            raise SessionRefused("not you", "worker")
        return SimpleNamespace(is_up=False, is_lost=self.fails, close=lambda: None)

    def refused(self, _error):
        pass

    def unanswered(self, for_s):
        self.silences.append(for_s)
        if for_s > 2 * REDIAL_MAX_S:
            raise Enough


async def test_dials_that_fail_at_once_count_as_silence_too(autojump_clock):
    dialler = Dialler(refusals=0, fails=True)
    conversation = Conversation(dialler, WorkerOutbox(), None, SharedSecret(""), random_bytes=bytes)
    with pytest.raises(Enough):
        await drive(conversation)


async def test_who_waits_after_a_refusal_has_not_been_without_an_answer(autojump_clock):
    dialler = Dialler(refusals=8)
    conversation = Conversation(dialler, WorkerOutbox(), None, SharedSecret(""), random_bytes=bytes)
    with pytest.raises(Enough):
        await drive(conversation)
    assert trio.current_time() > 3 * REDIAL_MAX_S, "it waited long between refusals"
    assert dialler.silences[0] == 0.0
    assert dialler.silences == sorted(dialler.silences), "silence adds up over attempts"


def test_refusals_are_retried_after_pauses_that_double():
    conversation = Conversation(
        Dialler(refusals=9), WorkerOutbox(), None, SharedSecret(""), random_bytes=bytes
    )
    moments = [0.0]
    for _ in range(8):
        moments.append(conversation.step(moments[-1]))
    pauses = [after - before for before, after in itertools.pairwise(moments)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5, 2.5])


def test_a_hurry_ends_the_pause_after_a_refusal_and_no_back_off():
    dialler = Dialler(refusals=9)
    conversation = Conversation(dialler, WorkerOutbox(), None, SharedSecret(""), random_bytes=bytes)
    conversation.step(0.0)
    conversation.put_off(0.05)
    conversation.hurry()
    assert conversation.step(0.0) == 0.05
    assert dialler.refusals == 8
    conversation.step(0.05)
    assert dialler.refusals == 7


class Talk:
    """A dialogue in which each frame has more messages than are heard at once."""

    acknowledge_s = 1.0
    session = welcome = None

    def __init__(self, **_):
        self.is_open, self.frames = False, []

    def connected(self, _now_s):
        self.is_open = True

    def receive(self, frame, _now_s):
        self.frames.append(frame)
        if not self.is_open:
            raise ProtocolError("a frame before the greeting")
        return [frame] * (PART_MAX + 1)

    def is_silent(self, _now_s):
        return False

    def flush(self, _send, _now_s):
        pass

    def lost(self):
        self.is_open = False


class Flooded:
    """Whose one pipe has two frames, and whose session is over in the midst of the first."""

    is_empty = True

    def __init__(self, end):
        self.end, self.dialled, self.heard, self.refusals = end, 0, [], []
        self.ready, self._other = os.pipe()
        os.write(self._other, b"x")

    def close(self):
        os.close(self.ready)
        os.close(self._other)

    def dial(self, _on_change):
        self.dialled += 1
        if self.dialled > 1:
            raise Enough
        return SimpleNamespace(
            is_up=True,
            is_lost=False,
            fileno=lambda: self.ready,
            receive=lambda: [b"first", b"second"],
            send=None,
            close=lambda: None,
        )

    def hear(self, messages):
        self.heard += messages

    def heard_all(self):
        self.end()

    def fill(self, _dialogue):
        pass

    def refused(self, error):
        self.refusals.append(error)
        raise Enough


@pytest.mark.parametrize("is_lapse", [True, False])
async def test_frames_of_a_pipe_are_not_heard_in_the_session_after_its_own(
    monkeypatch, autojump_clock, is_lapse
):
    talks = []
    monkeypatch.setattr(
        conversations, "Dialogue", lambda **given: talks.append(Talk(**given)) or talks[-1]
    )

    def end():
        conversation.lapse("too much waits") if is_lapse else conversation.start_over()

    flooded = Flooded(end)
    conversation = Conversation(flooded, WorkerOutbox(), None, SharedSecret(""), random_bytes=bytes)
    with pytest.raises(Enough):
        await drive(conversation)
    flooded.close()
    assert [talk.frames for talk in talks] == [[b"first"], []]
    assert flooded.refusals == []
    assert flooded.heard.count(b"first") == PART_MAX
