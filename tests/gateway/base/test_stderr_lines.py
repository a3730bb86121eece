"""Lines on stderr: with their time, unless a terminal shows them."""

import io
import re
import sys

from gateway.base.stderr_lines import say, stamped


class Terminal(io.StringIO):
    """A stderr that may be a terminal."""

    def __init__(self, *, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


def test_a_line_has_its_time_where_it_is_kept(monkeypatch):
    kept, shown = Terminal(is_terminal=False), Terminal(is_terminal=True)
    for each in (kept, shown):
        monkeypatch.setattr(sys, "stderr", each)
        say("gridfed: worker w1\x1b[2J stops")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ gridfed: worker w1\\x1b\[2J stops\n", kept.getvalue()
    )
    assert shown.getvalue() == "gridfed: worker w1\\x1b[2J stops\n"


def test_the_time_is_utc():
    assert stamped("x", 0.0) == "1970-01-01T00:00:00Z x"


def test_a_stderr_that_was_closed_is_no_reason_to_stop(monkeypatch):
    class Closed(Terminal):
        def write(self, _text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed(is_terminal=False))
    say("lost")
