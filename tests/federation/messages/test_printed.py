"""Streams of the output of tasks: on the wire, and from parties of before."""

import pytest

from federation.errors import ProtocolError
from federation.messages.printed import joined, parted, stream_of

ROWS = [[0, "out\n", 1], [0, "err\n", 2], [3, "more", 1]]


def test_rows_come_back_as_they_were():
    prints, streams = parted(ROWS)
    assert prints == [[0, "out\n"], [0, "err\n"], [3, "more"]]
    assert streams == [1, 2, 1]
    assert joined(prints, streams) == ROWS


def test_output_of_a_party_of_before_is_stdout():
    assert [stream_of(row) for row in joined([[0, "old"]], [])] == [1]
    assert parted([[0, "old"]]) == ([[0, "old"]], [])


def test_stdout_alone_needs_no_streams():
    assert parted([[0, "a", 1], [1, "b", 1]]) == ([[0, "a"], [1, "b"]], [])


@pytest.mark.parametrize("streams", [[1], [1, 2, 3], [1, 2, 1, 1], [0, 1, 1]])
def test_streams_that_do_not_fit_are_refused(streams):
    with pytest.raises(ProtocolError):
        joined([[0, "out"], [0, "err"], [3, "more"]], streams)
