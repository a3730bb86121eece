"""Numbers are exact; names come back; nothing gets by that a format can't hold."""

import re
from fractions import Fraction
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.exports import HOSTILE, names

from gateway.ledger.exports import texts
from gateway.ledger.output import formulas

# As XML 1.0 defines its characters.
XML = re.compile("[\x09\x0a\x0d\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
HOST = re.compile(
    r"([a-zA-Z0-9][a-zA-Z0-9'\-']*[a-zA-Z0-9]\.)*([a-zA-Z0-9][a-zA-Z0-9'\-']*[a-zA-Z0-9])?"
)


@given(names)
@example("%2")
@example("%%41")
def test_a_name_is_one_line_of_xml_and_comes_back(name):
    written = texts.plain(name)
    assert XML.fullmatch(written)
    assert len(written.splitlines()) <= 1
    assert unquote(written) == name


@given(names)
@example("%%%")
@example("a%")
def test_a_name_is_one_value_of_apel_and_comes_back(name):
    written = texts.apel(name)
    assert "%%" not in written
    assert len(written.splitlines()) <= 1
    assert written == written.strip()
    assert written.lower() not in ("none", "null")
    assert bool(written) == bool(name)
    assert unquote(written) == name


@given(names)
def test_a_cell_is_no_formula_and_comes_back(name):
    written = formulas.cell(name)
    assert not written.startswith(formulas.FORMULA_STARTS)
    assert formulas.uncell(written) == name


def test_names_that_need_nothing_stay_as_they_are():
    for name in ("ada", "Zoë 漢字", "100%", "50% of x", "a b"):
        assert texts.plain(name) == texts.apel(name) == formulas.cell(name) == name


@given(names)
@example("a.b")
@example("x" * 300)
@example("..")
def test_a_host_is_one(name):
    written = texts.domain(name)
    assert HOST.fullmatch(written)
    assert len(written) <= 255


def test_a_host_that_is_one_stays_as_it_is():
    for name in ("london", "node-1.grid.example.org", "10.20.30.40"):
        assert texts.domain(name) == name
    assert texts.domain("node_1") == "node-1"
    assert texts.domain("a.é.b") == "x-a.x-b"


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**15), st.integers(0, 20))
def test_a_decimal_is_the_nearest_one(numerator, denominator, places):
    written = texts.decimal(numerator, denominator, places)
    assert re.fullmatch(r"-?(0|[1-9]\d*)(\.\d*[1-9])?", written)
    assert written != "-0"
    away = abs(Fraction(written) - Fraction(numerator, denominator))
    assert away <= Fraction(1, 2 * 10**places)


def test_halves_go_to_the_even_digit():
    assert [texts.decimal(n, 2, 0) for n in (1, 3, 5, -1, -3)] == ["0", "2", "2", "0", "-2"]
    assert [texts.seconds(n * 10**9 // 2) for n in (1, 3, 5)] == [0, 2, 2]


@given(st.integers(0, 10**25))
def test_a_duration_is_exact(ns):
    assert Fraction(texts.duration(ns).removeprefix("PT").removesuffix("S")) * 10**9 == ns


@pytest.mark.parametrize(
    ("time_s", "shown"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (1_700_000_001.999, "2023-11-14T22:13:21Z"),
        (253_402_300_799.0, "9999-12-31T23:59:59Z"),
    ],
)
def test_a_moment_is_in_utc(time_s, shown):
    assert texts.moment(time_s) == shown


def test_months_and_hours():
    assert texts.hour_start(472_222) == "2023-11-14T22:00:00Z"
    assert texts.month_of(472_222) == (2023, 11)
    assert texts.month_start(2023, 12) == "2023-12-01T00:00:00Z"
    assert texts.month_start(2023, 13) == "2024-01-01T00:00:00Z"


def test_names_of_things_are_one_word_each_and_differ():
    found = {texts.urn(a, b) for a in HOSTILE for b in HOSTILE}
    assert len(found) == len(HOSTILE) ** 2
    assert all(re.fullmatch(r"urn:gridfed:[!-~]*", each) for each in found)
