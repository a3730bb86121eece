"""The end of a task's output is kept, by stream and in order."""

import sys

import pytest

from federation.messages.printed import PIECES_MAX, PRINTS_BYTES_MAX
from gateway.worker.slot.prints import Prints


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
