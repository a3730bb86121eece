"""Hostile text, as people are shown it: only visible characters reach a terminal."""

import io
import sys
import unicodedata

import pytest

from federation.engine import progress
from federation.engine.books.streams import Ended
from federation.engine.failures import exception_of
from federation.errors import FAILURES, GridError, RemoteTraceback, SessionRefused
from federation.words import ShownDuration, clean, clean_lines, count, duration_text, headline

HOSTILE = {
    "\x1b[2J": r"\x1b[2J",  # CSI: clears the screen
    "\x1b]0;owned\x07": r"\x1b]0;owned\x07",  # OSC: the title of the window
    "\x1b]8;;http://evil\x1b\\here": r"\x1b]8;;http://evil\x1b\here",  # OSC: a link
    "\x1bPq#0\x1b\\": r"\x1bPq#0\x1b\ ".rstrip(),  # DCS
    "\x9b31m": r"\x9b31m",  # CSI of 8 bits
    "\x9d0;owned\x9c": r"\x9d0;owned\x9c",  # OSC of 8 bits
    "\x90q\x9c": r"\x90q\x9c",  # DCS of 8 bits
    "nul\0": r"nul\x00",
    "back\b\b\b\bfree": r"back\x08\x08\x08\x08free",
    "\x7f": r"\x7f",
    "price\u202e000,1": r"price\u202e000,1",  # right-to-left override
    "\u2066a\u2069\u200f\u061c": r"\u2066a\u2069\u200f\u061c",  # isolates and marks
    "pa\u200bris": r"pa\u200bris",  # zero width
    "pa\u00adris\ufeff\u2060": r"pa\xadris\ufeff\u2060",
    "pa\u3164ris": r"pa\u3164ris",  # a letter that is not seen
    "a\u2028b\u2029c\x85d": r"a\u2028b\u2029c\x85d",  # other ends of lines
    "\ud800": r"\ud800",  # half of a character
    "\U000e0041": r"\U000e0041",  # a tag: an invisible A
}
HARMLESS = ["", "plain", "größe · 1 000 €", "日本語", "naïve 👍🏽", r"C:\x1b", "1\u202f000"]


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items())
def test_what_is_not_seen_is_written_out(text, shown):
    assert clean(text) == shown
    assert clean_lines(text) == shown
    assert clean(shown) == shown


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_seen_stays(text):
    assert clean(text) == clean_lines(text) == text


def test_a_line_stays_a_line():
    assert clean("one\r\ntwo\tthree") == r"one\r\ntwo\tthree"


def test_of_several_lines_each_can_be_told_from_ours():
    assert clean_lines("one\r\ntwo\rthree\n\tfour") == "one\ntwo\nthree\n\tfour"
    assert clean_lines("one\ngridfed: run this", indent="  ") == "one\n  gridfed: run this"


def test_no_character_at_all_gets_through_that_does_something():
    seen = clean_lines("".join(map(chr, range(sys.maxunicode + 1))))
    categories = {unicodedata.category(each) for each in seen.replace("\n", "").replace("\t", "")}
    assert not categories & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items())
def test_errors_show_what_others_wrote_written_out(text, shown):
    for kind in (GridError, SessionRefused, *FAILURES.values()):
        assert str(kind(f"a {text}\nb")) == f"a {shown}\nb"
    assert shown in str(RemoteTraceback(text))
    assert shown in str(exception_of(Ended("error", f"Traceback {text}!")))


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items())
def test_prints_and_bars_are_written_out(text, shown, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    progress.show(f"a{text}b\n")
    assert out.getvalue() == f"a{shown}b\n"
    with progress.bar(1, f"a{text}b") as made:
        assert made.desc.removesuffix(": ") == f"a{shown}b"


def test_one_is_counted_as_one():
    assert (count(1, "slot"), count(2000, "slot")) == ("1 slot", "2,000 slots")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("the job reached its cost limit", "the job reached its cost limit"),
        (
            "Traceback\n  File x\nValueError: no\ngridfed: task 3: f(1)",
            "ValueError: no (task 3: f(1))",
        ),
        ("ValueError: " + "x" * 900, "ValueError: " + "x" * 588),
    ],
)
def test_a_failure_in_one_line_has_the_error_and_the_call(text, line):
    assert headline(text) == line


@pytest.mark.parametrize(
    ("lasts_s", "shown"),
    [
        *((0, "0 s"), (0.25, "0.25 s"), (2.5, "2.5 s"), (9.6, "10 s"), (40, "40 s"), (60, "1 min")),
        *(
            (90, "1 min 30 s"),
            (119.6, "2 min"),
            (125, "2 min 5 s"),
            (3_600, "1 h"),
            (3_900, "1 h 5 min"),
        ),
        *((86_399, "24 h"), (90_000, "1 d 1 h"), (1_209_600, "14 d"), (float("inf"), "inf s")),
    ],
)
def test_a_duration_is_written_by_its_two_largest_units(lasts_s, shown):
    assert duration_text(lasts_s) == shown
    assert f"{ShownDuration(lasts_s)}" == shown
