"""What sources on the net answer: their two real forms, and what can't be believed."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.carbon.answers import BadAnswer, Reading, read_answer
from gateway.carbon.config import HttpConfig

GB = HttpConfig(
    "https://api.carbonintensity.org.uk/intensity",
    ("data.0.intensity.actual", "data.0.intensity.forecast"),
    "data.0.from",
)
MAPS = HttpConfig("https://api.electricitymap.org/", ("carbonIntensity",), "datetime")
PLAIN = HttpConfig("https://h.example/", ("g",))
NOW_S = datetime(2026, 11, 22, 10, 20, tzinfo=UTC).timestamp()
HALF_PAST_S = NOW_S - 20 * 60


def gb(**intensity):
    times = {"from": "2026-11-22T10:00Z", "to": "2026-11-22T10:30Z"}
    return json.dumps({"data": [{**times, "intensity": {**intensity, "index": "low"}}]}).encode()


def test_great_britain():
    found = read_answer(GB, gb(forecast=101, actual=97), '"v1"', NOW_S)
    assert found == Reading(97_000, HALF_PAST_S, NOW_S, '"v1"')
    assert read_answer(GB, gb(forecast=101, actual=None), "", NOW_S).mg_per_kwh == 101_000


def test_electricity_maps():
    body = b'{"zone": "DE", "carbonIntensity": 302, "datetime": "2026-11-22T10:00:00.000Z"}'
    assert read_answer(MAPS, body, "", NOW_S) == Reading(302_000, HALF_PAST_S, NOW_S)


def test_without_a_time_it_is_of_now():
    assert read_answer(PLAIN, b'{"g": 0.5}', "", NOW_S) == Reading(500, NOW_S, NOW_S)


@pytest.mark.parametrize("etag", ["x" * 201, "a\x00b", "caf\u00e9"])
def test_a_mark_that_can_not_be_sent_back_is_left_out(etag):
    assert read_answer(PLAIN, b'{"g": 1}', etag, NOW_S).etag == ""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b'{"g": NaN}', "not JSON"),
        (b'{"g": Infinity}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"g": ' + b"9" * 5_000 + b"}", "not JSON"),
        (b"\xff\xfe\xfd", "not JSON"),
        (b"null", "no number at g"),
        (b"{}", "no number at g"),
        (b'{"g": null}', "no number at g"),
        (b'{"g": "91"}', "no number at g"),
        (b'{"g": true}', "no number at g"),
        (b'{"g": [1]}', "no number at g"),
        (b'{"g": -1}', "can't be"),
        (b'{"g": 1e400}', "can't be"),
        (b'{"g": 5001}', "can't be"),
        (b'{"g": 99999999999999999999999999}', "can't be"),
    ],
)
def test_what_can_not_be_believed_is_refused(body, why):
    with pytest.raises(BadAnswer, match=why):
        read_answer(PLAIN, body, "", NOW_S)


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("soon", "is none"),
        (None, "is none"),
        (7, "is none"),
        ("2026-11-22T12:00Z", "ahead"),
        ("1826-11-22T12:00Z", "long ago"),
        ("0001-01-01T00:00:00+14:00", "none|long ago"),
    ],
)
def test_a_time_that_can_not_be_is_refused(when, why):
    body = json.dumps({"carbonIntensity": 1, "datetime": when}).encode()
    with pytest.raises(BadAnswer, match=why):
        read_answer(MAPS, body, "", NOW_S)


def test_a_time_slightly_ahead_is_our_clock_s_fault():
    body = b'{"carbonIntensity": 1, "datetime": "2026-11-22T10:30Z"}'
    assert read_answer(MAPS, body, "", NOW_S).as_of_s == NOW_S


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "intensity", "actual", "from", "x"]), inner)
    ),
    max_leaves=12,
)


@given(plain | st.binary())
def test_whatever_comes_is_a_reading_or_refused(document):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    try:
        found = read_answer(GB, body, "", NOW_S)
    except BadAnswer:
        return
    assert 0 <= found.mg_per_kwh <= 5_000_000
    assert 0 <= found.as_of_s <= NOW_S
