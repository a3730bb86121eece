"""Details of questions and orders are read within bounds; an error names detail and bounds."""

import pytest

from federation.clocks import UtcS
from gateway.base.details import NAMES_MAX, DetailReader


class Bad(Exception):
    """The error of the caller."""


READ = DetailReader(Bad)
SOME = {"site": "paris", "names": ["a", "b"], "dry_run": True, "tasks": 3, "at_s": 5, "text": "é"}


def test_details_of_the_right_type_are_returned():
    assert READ.text(SOME, "site") == "paris"
    assert READ.text(SOME, "text", 1) == "é"
    assert READ.text(SOME, "note", least=0) == ""
    assert READ.names(SOME, "names") == ["a", "b"]
    assert READ.names(SOME, "sites") == []
    assert READ.flag(SOME, "dry_run") is True
    assert READ.flag(SOME, "force") is False
    assert READ.flag_or_none(SOME, "force") is None
    assert READ.whole(SOME, "tasks", 0, 3) == 3
    assert READ.whole(SOME, "limit", 0, 100, 50) == 50
    assert READ.seconds(SOME, "at_s", 10.0) == 5.0
    assert READ.seconds(SOME, "wait_s", 10.0, 1.0) == 1.0
    assert READ.time(SOME, "at_s") == UtcS(5.0)
    assert READ.time(SOME, "until_s") is None


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda: READ.text({}, "site"), "the detail site is missing"),
        (lambda: READ.text({"site": 7}, "site"), "site must be 1 to 1,000 printable characters"),
        (lambda: READ.text({"site": ""}, "site"), "site must be 1 to 1,000 printable characters"),
        (
            lambda: READ.text({"site": "a\n"}, "site", 9, least=0),
            "site must be text of up to 9 printable",
        ),
        (lambda: READ.text({"site": "abc"}, "site", 2), "site must be 1 to 2 printable"),
        (lambda: READ.names({"sites": "paris"}, "sites"), "sites must be a list of names"),
        (lambda: READ.names({"sites": [1]}, "sites"), "sites must be a list of names"),
        (lambda: READ.names({"s": [""] * (NAMES_MAX + 1)}, "s"), "s has 10,001 names: at most"),
        (lambda: READ.flag({"force": 1}, "force"), "force must be true or false"),
        (lambda: READ.whole({}, "tasks", 1, 9), "tasks must be a whole number, from 1 to 9"),
        (lambda: READ.whole({"n": True}, "n", 0, 9), "n must be a whole number, from 0 to 9"),
        (lambda: READ.whole({"n": 10}, "n", 0, 9), "n must be a whole number, from 0 to 9"),
        (lambda: READ.seconds({}, "lasts_s", 9.0), "lasts_s must be seconds, from 0 to 9"),
        (lambda: READ.seconds({"s": float("nan")}, "s", 9.0), "s must be seconds, from 0 to 9"),
        (lambda: READ.time({"at_s": "noon"}, "at_s"), "at_s must be a time in seconds since 1970"),
        (lambda: READ.time({"at_s": 1e12}, "at_s"), "at_s must be a time in seconds since 1970"),
    ],
)
def test_an_invalid_detail_is_the_error_of_the_caller(read, text):
    with pytest.raises(Bad, match=f"^{text}"):
        read()
