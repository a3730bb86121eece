"""Answers of sources on the net: their two real forms, and the results of invalid ones."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.carbon.answers import (
    FORESEEN_MAX_S,
    BadAnswer,
    Foreseen,
    Reading,
    read_answer,
    read_forecast,
)
from gateway.config.carbon import ForecastConfig, HttpConfig

GB = HttpConfig(
    "https://api.carbonintensity.org.uk/intensity",
    ("data.0.intensity.actual", "data.0.intensity.forecast"),
    "data.0.from",
)
MAPS = HttpConfig("https://api.electricitymap.org/", ("carbonIntensity",), "datetime")
PLAIN = HttpConfig("https://h.example/", ("g",))
GB_AHEAD = ForecastConfig("https://h/{now}/fw48h", ("intensity.forecast",), "from", "data")
MAPS_AHEAD = ForecastConfig("https://h/", ("carbonIntensity",), "datetime", "forecast")
BARE_AHEAD = ForecastConfig("https://h/", ("g",), "t")
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
        (b"null", "no number found at g"),
        (b"{}", "no number found at g"),
        (b'{"g": null}', "no number found at g"),
        (b'{"g": "91"}', "no number found at g"),
        (b'{"g": true}', "no number found at g"),
        (b'{"g": [1]}', "no number found at g"),
        (b'{"g": -1}', "invalid intensity"),
        (b'{"g": 1e400}', "invalid intensity"),
        (b'{"g": 5001}', "invalid intensity"),
        (b'{"g": 99999999999999999999999999}', "invalid intensity"),
    ],
)
def test_what_can_not_be_believed_is_refused(body, why):
    with pytest.raises(BadAnswer, match=why):
        read_answer(PLAIN, body, "", NOW_S)


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("soon", "is invalid"),
        (None, "is invalid"),
        (7, "is invalid"),
        ("2026-11-22T12:00Z", "future"),
        ("1826-11-22T12:00Z", "before 1970"),
        ("0001-01-01T00:00:00+14:00", "invalid|before 1970"),
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


# --- hours to come -------------------------------------------------------------------------------


def test_great_britain_tells_of_half_hours():
    rows = [
        ("2026-11-22T10:00Z", 146, None),
        ("2026-11-22T11:00Z", 150, None),
        ("2026-11-22T10:30Z", 148, None),
    ]
    data = [
        {"from": at, "to": at, "intensity": {"forecast": told, "actual": real, "index": "low"}}
        for at, told, real in rows
    ]
    found = read_forecast(GB_AHEAD, json.dumps({"data": data}).encode(), '"v1"', NOW_S)
    half_hours = [(HALF_PAST_S, 146_000), (HALF_PAST_S + 1_800, 148_000)]
    assert found == Foreseen((*half_hours, (HALF_PAST_S + 3_600, 150_000)), NOW_S, '"v1"')


def test_electricity_maps_tells_of_hours():
    body = b"""{"zone": "DK-DK2", "updatedAt": "2026-11-22T09:25:24.685Z", "forecast": [
        {"carbonIntensity": 326, "datetime": "2026-11-22T11:00:00.000Z"},
        {"carbonIntensity": 297.5, "datetime": "2026-11-22T12:00:00.000Z"}]}"""
    found = read_forecast(MAPS_AHEAD, body, "", NOW_S)
    assert found.steps == ((HALF_PAST_S + 3_600, 326_000), (HALF_PAST_S + 7_200, 297_500))


def test_what_is_not_known_yet_and_what_is_too_far_ahead_is_left_out():
    far = datetime.fromtimestamp(NOW_S + FORESEEN_MAX_S + 1, UTC).isoformat()
    rows = [{"g": None, "t": "2026-11-22T11:00Z"}, {"g": 3, "t": "2026-11-22T12:00Z"}]
    body = json.dumps([*rows, {"g": 4, "t": far}]).encode()
    found = read_forecast(BARE_AHEAD, body, "", NOW_S)
    assert found.steps == ((HALF_PAST_S + 7_200, 3_000),)


@pytest.mark.parametrize(
    ("config", "body", "why"),
    [
        (GB_AHEAD, b"<html>", "not JSON"),
        (GB_AHEAD, b"[]", "no list found at data"),
        (GB_AHEAD, b'{"data": {}}', "no list found at data"),
        (BARE_AHEAD, b"{}", "no list found at the top level"),
        (BARE_AHEAD, b"[]", "its forecast has no intensity"),
        (BARE_AHEAD, b'[{"g": null, "t": "2026-11-22T11:00Z"}]', "its forecast has no intensity"),
        (BARE_AHEAD, b'[{"g": 1}]', "its time is invalid"),
        (BARE_AHEAD, b'[{"g": 1, "t": "soon"}]', "its time is invalid"),
        (BARE_AHEAD, b'[{"g": 1, "t": "1826-11-22T11:00Z"}]', "before 1970"),
        (BARE_AHEAD, b'[{"g": "1", "t": "2026-11-22T11:00Z"}]', "no number found at g"),
        (BARE_AHEAD, b'[{"g": -1, "t": "2026-11-22T11:00Z"}]', "invalid intensity"),
        (BARE_AHEAD, b"[7]", "its time is invalid"),
    ],
)
def test_a_forecast_that_can_not_be_believed_is_refused(config, body, why):
    with pytest.raises(BadAnswer, match=why):
        read_forecast(config, body, "", NOW_S)


@given(plain | st.binary())
def test_whatever_comes_is_a_forecast_or_refused(document):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    for config in (GB_AHEAD, BARE_AHEAD):
        try:
            found = read_forecast(config, body, "", NOW_S)
        except BadAnswer:
            continue
        assert all(0 <= mg <= 5_000_000 for _, mg in found.steps)
