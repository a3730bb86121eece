"""The end of a task's output is kept, by stream and in order."""

import sys
import threading

import pytest

from federation.messages.printed import PIECES_MAX, PRINTS_BYTES_MAX
from gateway.worker.slot.prints import BURST, Prints


@pytest.fixture
def prints(monkeypatch):
    kept = Prints()
    real = kept.install

    def install(*, keep):
        # During the test, as pytest sets its own streams after the fixtures; put back at its end.
        monkeypatch.setattr(sys, "stdout", sys.stdout)
        monkeypatch.setattr(sys, "stderr", sys.stderr)
        real(keep=keep)

    monkeypatch.setattr(kept, "install", install)
    return kept


def test_pieces_keep_their_stream_and_order(prints):
    prints.install(keep=True)
    print("a")
    print("b")
    print("c", file=sys.stderr)
    print("d")
    assert prints.take() == [["a\nb\n", 1], ["c\n", 2], ["d\n", 1]]
    assert prints.take() == []


def test_the_oldest_bytes_are_dropped_and_counted(prints):
    prints.install(keep=True)
    print("x" * 10, end="", file=sys.stderr)
    print("y" * PRINTS_BYTES_MAX, end="")
    ((text, stream),) = prints.take()
    assert stream == 1
    assert text == "[gridfed: 10 earlier characters were cut]\n" + "y" * PRINTS_BYTES_MAX


def test_no_half_of_a_character_is_left(prints):
    prints.install(keep=True)
    print("é" * PRINTS_BYTES_MAX + "!", end="")
    ((text, _),) = prints.take()
    assert text.endswith("é!")
    assert "\N{REPLACEMENT CHARACTER}" not in text
    note, _, rest = text.partition("\n")
    assert set(rest) == {"é", "!"}
    assert note == f"[gridfed: {PRINTS_BYTES_MAX // 2 + 1:,} earlier characters were cut]"


def test_the_number_of_pieces_is_bounded(prints):
    prints.install(keep=True)
    for number in range(2 * PIECES_MAX):
        print(number, file=sys.stderr if number % 2 else sys.stdout)
    pieces = prints.take()
    assert len(pieces) == PIECES_MAX
    assert pieces[-1] == [f"{2 * PIECES_MAX - 1}\n", 2]


def test_nothing_is_kept_unless_asked_for(prints):
    prints.install(keep=True)
    prints.install(keep=False)
    print("lost")
    assert prints.take() == []


class Agent:
    """Takes a slot's messages while its task runs."""

    def __init__(self):
        self.rows = []
        self.is_busy = False
        self.soon = []  # what is to be called in a moment

    def send(self, take):
        if not self.is_busy:
            self.rows.append(take())
        return not self.is_busy


@pytest.fixture
def live(monkeypatch):
    """Prints that are sent at once, of task 7; and the agent."""
    agent = Agent()
    prints = Prints(lambda: 7, agent.send, agent.soon.append)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)  # for a later undo
    return prints, agent


def test_lines_are_sent_while_their_task_runs(live):
    prints, agent = live
    prints.install(keep=False, live=True)
    print("a")
    print("no line yet", end="", file=sys.stderr)
    print("b")
    assert agent.rows == [[[7, "a\n", 1]], [[7, "no line yet", 2], [7, "b\n", 1]]]
    print("the rest", end="")
    assert prints.is_dirty
    assert prints.take() == []
    assert not prints.is_dirty
    assert prints.unsent_chars == len("the rest")
    assert prints.rows() == [[7, "the rest", 1]]
    assert prints.rows() == []


def test_what_ends_no_line_is_sent_in_a_moment(live):
    prints, agent = live
    prints.install(keep=False, live=True)
    print("ready? ", end="")
    print("really? ", end="")
    assert len(agent.soon) == 1
    agent.soon.pop()()
    assert agent.rows == [[[7, "ready? really? ", 1]]]
    print("yes")
    assert agent.rows[1:] == [[[7, "yes\n", 1]]]
    for call in agent.soon:  # armed before the end of the line came
        call()
    assert len(agent.rows) == 2


def test_the_last_line_over_the_rate_is_sent_in_a_moment(live, monkeypatch):
    prints, agent = live
    monkeypatch.setattr("gateway.worker.slot.prints.time.monotonic", lambda: 1000.0)
    prints.install(keep=False, live=True)
    for number in range(int(BURST) + 1):
        print(number)
    assert len(agent.rows) == BURST
    agent.is_busy = True
    agent.soon.pop()()
    agent.is_busy = False
    agent.soon.pop()()
    assert agent.rows[-1] == [[7, f"{BURST:.0f}\n", 1]]


def test_output_may_be_both_sent_and_kept(live):
    prints, agent = live
    prints.install(keep=True, live=True)
    print("a")
    assert agent.rows == [[[7, "a\n", 1]]]
    assert prints.take() == [["a\n", 1]]


def test_a_task_that_prints_without_end_sends_now_and_then(live, monkeypatch):
    prints, agent = live
    now = [1000.0]
    monkeypatch.setattr("gateway.worker.slot.prints.time.monotonic", lambda: now[0])
    prints.install(keep=False, live=True)
    for number in range(1000):
        print(number)
    assert len(agent.rows) == BURST
    now[0] += 1.0
    print("after a second")
    ((_, text, _),) = agent.rows[-1]
    assert text.endswith("999\nafter a second\n")


def test_output_waits_while_another_message_is_being_sent(live):
    prints, agent = live
    prints.install(keep=False, live=True)
    agent.is_busy = True
    print("a")
    agent.is_busy = False
    print("b")
    assert agent.rows == [[[7, "a\nb\n", 1]]]


def test_a_forked_child_sends_nothing(live):
    prints, agent = live
    prints.install(keep=False, live=True)
    prints.disown()
    print("from the child")
    assert agent.rows == []


def test_threads_that_print_at_once_lose_nothing(prints):
    prints.install(keep=True)
    out = sys.stdout

    def shout(letter):
        for _ in range(200):
            print(letter, file=out)

    threads = [threading.Thread(target=shout, args=(each,)) for each in "abcd"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    text = "".join(text for text, _ in prints.take())
    assert [text.count(each) for each in "abcd"] == [200] * 4
