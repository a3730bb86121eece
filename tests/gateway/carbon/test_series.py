"""Intensities by the hour. GB_2023.csv are some hours of Great Britain, gCO2e/kWh, life cycle.

From `HewlettPackard/green-dcc` on GitHub (MIT), which has them from Electricity Maps: 1 January, 28
February and 31 December, and the nights of 26 March and 29 October, when the clocks there changed.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from federation.errors import GridError
from gateway.carbon.series import read_series
from gateway.config.carbon import SeriesConfig
from policies.costs.carbon import Intensity

REAL = SeriesConfig(str(Path(__file__).parent / "GB_2023.csv"), value="carbon_lca_g_per_kwh")
REPEATED = SeriesConfig(REAL.file, value=REAL.value, repeats=True)


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.fixture
def write(tmp_path):
    """Write a series; its configuration."""

    def write_(text, **changes):
        path = tmp_path / "grid.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return SeriesConfig(str(path), **changes)

    return write_


@pytest.mark.parametrize(
    ("when", "intensity"),
    [
        ("2023-01-01 00:00", 91_440),
        ("2023-01-01 00:59:59", 91_440),
        ("2023-01-01 01:00", 94_660),
        ("2023-12-31 23:59:59", 95_020),
        # No hour is left out in spring, and none comes twice in autumn.
        ("2023-03-26 00:30", 181_980),
        ("2023-03-26 01:30", 165_300),
        ("2023-03-26 02:30", 168_670),
        ("2023-10-29 00:30", 85_020),
        ("2023-10-29 01:30", 87_550),
        ("2023-10-29 02:30", 96_990),
    ],
)
def test_an_hour_has_its_own_utc(when, intensity):
    assert read_series(REAL).at(at(when)) == Intensity(intensity, "series GB_2023.csv")


def test_an_hour_that_is_left_out_is_not_filled_in():
    for series in (read_series(REAL), read_series(REPEATED)):
        assert series.at(at("2023-06-01 12:00")) is None


@pytest.mark.parametrize(
    ("when", "from_s", "tenths"),
    [
        # As far as the file goes without a gap, which begins with the second of January.
        ("2023-01-01 20:30", "2023-01-01 21:00", 3),
        ("2023-01-01 23:00", None, 0),
        ("2023-06-01 12:00", None, 0),
    ],
)
def test_the_hours_that_follow_are_foreseen(when, from_s, tenths):
    series = read_series(REAL)
    found = series.ahead(at(when))
    if from_s is None:
        assert found is None
        return
    assert (found.from_s, found.step_s, len(found.dg_per_kwh)) == (at(from_s), 3_600.0, tenths)
    mg = [series.at(at(from_s) + 3_600 * hour).mg_per_kwh for hour in range(tenths)]
    assert found.dg_per_kwh == tuple((each + 50) // 100 for each in mg)
    assert series.ahead(at(when) + 60) is found, "it is packed once an hour"


def test_a_series_that_repeats_foresees_two_days(write):
    days = [f"2023-{month:02}-{day:02}" for month, day in ((12, 31), (1, 1), (1, 2))]
    rows = [f"{day}T{hour:02}:00Z,{hour + 1}" for day in days for hour in range(24)]
    series = read_series(write("hour_utc,g_per_kwh\n" + "\n".join(rows) + "\n", repeats=True))
    found = series.ahead(at("2026-12-31 20:15"))
    assert (found.from_s, len(found.dg_per_kwh)) == (at("2026-12-31 21:00"), 48)
    assert found.dg_per_kwh[:5] == (220, 230, 240, 10, 20)


def test_outside_of_its_span_nothing_is_known():
    for when in ("2022-12-31 23:59:59", "2024-01-01 00:00", "2026-11-22 10:00"):
        assert read_series(REAL).at(at(when)) is None


def test_a_series_that_repeats_says_so():
    series = read_series(REPEATED)
    assert series.at(at("2023-01-01 00:00")).source == "series GB_2023.csv"
    repeated = Intensity(91_440, "series GB_2023.csv repeated")
    assert series.at(at("2026-01-01 00:30")) == repeated
    assert series.at(at("1999-01-01 00:00")) == repeated
    assert series.at(at("2026-06-01 12:00")) is None
    # A leap day is as the day before.
    assert series.at(at("2024-02-29 23:00")).mg_per_kwh == 289_240


def test_of_several_years_the_latest_that_has_the_hour_is_repeated(write):
    rows = "hour_utc,g_per_kwh\n2020-02-29T00:00Z,9\n2021-05-01T00:00Z,1\n2022-05-01T00:00Z,2\n"
    series = read_series(write(rows, repeats=True))
    assert series.at(at("2030-05-01 00:00")).mg_per_kwh == 2_000
    assert series.at(at("2032-02-29 00:00")).mg_per_kwh == 9_000


def test_a_cell_that_is_empty_is_not_known(write):
    rows = "hour_utc,g_per_kwh\n2023-01-01T00:00Z,1\n2023-01-01T01:00Z,\n2023-01-01T02:00Z,3\n\n"
    series = read_series(write(rows))
    found = [series.at(at(f"2023-01-01 0{hour}:00")) for hour in range(3)]
    assert [each and each.mg_per_kwh for each in found] == [1_000, None, 3_000]


def test_times_may_say_their_offset_and_come_in_any_order(write):
    rows = "\ufeffvalue,when\r\n2,2023-06-01T03:00+02:00\r\n1,2023-06-01T00:00Z\r\n"
    series = read_series(write(rows, hour="when", value="value"))
    found = [series.at(at(f"2023-06-01 0{hour}:00")).mg_per_kwh for hour in range(2)]
    assert found == [1_000, 2_000]


@pytest.mark.parametrize(
    ("row", "line", "why"),
    [
        ("2023-01-01T01:00Z,x", 3, "not a number"),
        ("2023-01-01T01:00Z,-1", 3, "must be from 0 to 5,000"),
        ("2023-01-01T01:00Z,nan", 3, "must be from 0 to 5,000"),
        ("2023-01-01T01:00Z,1e99999999", 3, "must be from 0 to 5,000"),
        ("2023-01-01T01:00Z,5001", 3, "must be from 0 to 5,000"),
        ("2023-01-01T01:00Z", 3, "1 cells, but 2 columns"),
        ("2023-01-01T01:00Z,1,2", 3, "3 cells, but 2 columns"),
        ("yesterday,1", 3, "'yesterday' is not a time"),
        ("2023-01-01T01:30Z,1", 3, "not a full hour"),
        ("2023-01-01T01:00+05:30,1", 3, "not a full hour"),
        ("2023-01-01T00:00Z,1", 3, "is repeated"),
        ('"2023-01-01T01:00Z,1', 3, "unexpected end"),
        ("0000-01-01T00:00Z,1", 3, "'0000-01-01T00:00Z' is not a time"),
        ("-0001-01-01T00:00Z,1", 3, "is not a time"),
        ("99999-01-01T00:00Z,1", 3, "is not a time"),
        ("0001-01-01T00:00+05:00,1", 3, "is before 1970 or after 9999"),  # in the year 0, UTC
        ("0001-01-01T00:00Z,1", 3, "is before 1970 or after 9999"),
        ("1969-12-31T23:00Z,1", 3, "is before 1970 or after 9999"),
        ("9999-12-31T23:00-05:00,1", 3, "is before 1970 or after 9999"),
    ],
)
@pytest.mark.parametrize("repeats", [False, True])
def test_a_broken_row_is_named_by_file_and_line(write, row, line, why, repeats):
    lines = f"hour_utc,g_per_kwh\n2023-01-01T00:00Z,1\n{row}\n"
    config = write(lines, repeats=repeats)
    with pytest.raises(GridError) as caught:
        read_series(config)
    assert f"grid.csv, line {line}: " in str(caught.value)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1: one column 'hour_utc'"),
        ("hour_utc,price\n", "line 1: one column 'g_per_kwh' is required; the columns are"),
        ("hour_utc,g_per_kwh,g_per_kwh\n", "one column"),
        ("hour_utc,g_per_kwh\n", "no intensity found"),
        ("hour_utc,g_per_kwh\n2023-01-01T00:00Z,\n", "no intensity found"),
        (b"hour_utc,g_per_kwh\n\xff\xfe\n", "not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_series_is_refused(write, text, why):
    with pytest.raises(GridError, match=why):
        read_series(write(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(GridError, match=r"can't read .*gone\.csv: No such file"):
        read_series(SeriesConfig(str(tmp_path / "gone.csv")))
