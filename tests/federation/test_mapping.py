"""How a map feeds its inputs and gives its results, over a grid that runs when it is told to."""

import operator
import pickle
from collections import deque

import pytest

from federation.errors import SerializationError
from federation.mapping import MapResults
from federation.messages import OpenJob
from federation.streams import Stream

OPENING = OpenJob("j", "n", b"d" * 32, False, "p", 0.0, {}, None, 0, None, "", "3.11", False, False)


class Grid:
    """As much of an engine as a map needs; what was sent runs when somebody waits."""

    closed = False
    error = None
    takes_work = True

    def __init__(self, function):
        self.stream = Stream(OPENING, deque())
        self.sent = []  # the size of every chunk
        self.abandoned = False
        self._function = function
        self._waiting = deque()

    def map(self, calls):
        return MapResults(
            self, self.stream, calls, singles=True, timeout=None, progress=False, total=None
        )

    def extend(self, stream, arguments):
        chunk = stream.extend(arguments)
        chunk.sent = True
        self.sent.append(len(arguments))
        self._waiting.append((chunk.first, arguments))
        return chunk

    def drive(self, done, timeout_s=None):
        while self._waiting:
            first, arguments = self._waiting.popleft()
            results = [pickle.dumps(self._function(*pickle.loads(each))) for each in arguments]
            self.stream.place(first, results, failed=False)
        return done()

    def check_size(self, payload):
        pass

    def close_stream(self, stream):
        stream.closed = True

    def abandon(self, stream):
        self.abandoned = True


class Unreadable:
    """A result that can be pickled, and not unpickled."""

    def __reduce__(self):
        return operator.truediv, (1, 0)


@pytest.mark.parametrize("bad", [0, 1, 5, 6])
def test_results_before_one_that_cannot_be_opened_come_and_none_after_it(bad):
    grid = Grid(lambda at: Unreadable() if at == bad else at)
    results, came = grid.map(range(1000)), []
    with pytest.raises(SerializationError, match="can't be unpickled"):
        came.extend(results)
    assert came == list(range(bad))
    assert list(results) == []
