"""Values of a configuration: lengths of time, sizes, and keys that are not known."""

import re

import pytest

from federation.words import read_length, size_text
from gateway.base.values import (
    SettingError,
    check_known,
    length_s,
    number,
    share,
    show_length,
    size,
    text_of,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("1.5h", 5_400.0),
        ("10 s", 10.0),
        ("2w", 1_209_600.0),
        ("04:00:00", 14_400.0),
        ("4:00:30", 14_430.0),
        ("100:00:00", 360_000.0),
        ("1-12:00:00", 129_600.0),
    ],
)
def test_a_length_of_time_is_read_in_our_form_and_in_that_of_slurm(text, seconds):
    assert read_length(text) == seconds


@pytest.mark.parametrize("text", ["04:00", "00:60:00", "1:2:3", "-04:00:00", "4 hours", ""])
def test_what_is_no_length_of_time_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"write 30s, 30m, 24h or 7d, or 04:00:00"):
        read_length(text)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1 << 30, 1 << 30),
        ("1073741824", 1 << 30),
        ("4 GiB", 4 << 30),
        ("4GB", 4 << 30),
        ("4g", 4 << 30),
        ("0.5T", 1 << 39),
        ("64M", 64 << 20),
        ("64 kB", 64 << 10),
    ],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(value, found):
    assert size("memory_bytes", value, 0, 1 << 40) == found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("4 X", "memory_bytes: '4 X' is not a size: write 500M or 4 GiB"),
        ("", "memory_bytes: '' is not a size"),
        ("-1", "memory_bytes: '-1' is not a size"),
        ("2 TiB", "memory_bytes is 2 TiB: it must be 0 bytes to 1 TiB"),
        (1 << 41, "memory_bytes is 2199023255552, 2 TiB: it must be 0 bytes to 1 TiB"),
        (1.5, "memory_bytes is 1.5: it must be a whole number"),
    ],
)
def test_what_is_no_size_is_refused(value, text):
    with pytest.raises(SettingError, match=re.escape(text)):
        size("memory_bytes", value, 0, 1 << 40)


@pytest.mark.parametrize("value", [4, 4.0, "4", " 4 "])
def test_a_plain_number_without_a_unit_in_its_name_is_refused_with_both_readings(value):
    told = (
        "walltime: 4 has no unit: write 4s for seconds, 4m for minutes (as Slurm reads a plain "
        "number) or 4h for hours, or as in 04:00:00"
    )
    with pytest.raises(SettingError) as refused:
        length_s("walltime", value, "1m", "7d")
    assert str(refused.value) == told


def test_an_unknown_key_is_told_with_the_most_similar_known_one():
    with pytest.raises(SettingError, match=r"'token_requird' \(did you mean 'token_required'\?\)"):
        check_known(["token_requird"], ["listen", "name", "token_required"])
    with pytest.raises(SettingError, match=r"unknown key 'colour'; known keys: listen, name$"):
        check_known(["colour"], ["listen", "name"])


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("grace_s", 10, 10),
        ("grace_s", "10s", 10),
        ("grace_s", "00:01:30", 90),
        ("spot.damp_s", "2m", 120),
        ("detail_days", "36h", 1.5),
        ("hours", "1d", 24),
        ("clear_percent", "10%", 10),
        ("clear_percent", 10, 10),
    ],
)
def test_a_number_of_a_unit_may_be_written_with_it(key, value, found):
    assert number(key, value, 0, 86_400) == found


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("grace_s", "2d", "grace_s is 2d: it must be 0.05s to 1d"),
        ("grace_s", 0, "grace_s is 0: it must be 0.05s to 1d"),
        ("grace_s", "soon", "grace_s: 'soon' is not a length of time: write 30s, 30m"),
        ("keep_days", 0, "keep_days is 0: it must be 0.05 to 86400 days"),
        ("priority", "10s", "priority must be a number"),
        ("frames_per_s", "10s", "frames_per_s must be a number"),
        ("frames_per_s", 0, "frames_per_s is 0: it must be 0.05 to 86400"),
        ("priority", "10%", "priority must be a number"),
    ],
)
def test_bounds_are_told_in_the_units_of_people(key, value, text):
    with pytest.raises(SettingError, match=re.escape(text)):
        number(key, value, 0.05, 86_400)


@pytest.mark.parametrize(
    ("value", "found"), [(0.5, 0.5), ("50%", 0.5), ("12.5 %", 0.125), (1, 1), ("0.1%", 0.001)]
)
def test_a_share_is_a_factor_or_a_percentage(value, found):
    assert share("waste", value, 0, 1) == found


@pytest.mark.parametrize("value", ["half", "50", "150%", True, -0.1])
def test_what_is_no_share_is_refused(value):
    with pytest.raises(SettingError, match=r"waste (is|must be)"):
        share("waste", value, 0, 1)


def test_lengths_and_sizes_are_shown_as_they_are_written():
    lengths = [0, 0.05, 1.5, 90, 1_800, 86_400, 14_400, 604_800]
    shown = ["0s", "0.05s", "1.5s", "90s", "30m", "1d", "4h", "7d"]
    assert [show_length(each) for each in lengths] == shown
    sizes = [0, 512, 64 << 10, 64 << 20, 3 << 29, 1 << 40]
    assert [size_text(each) for each in sizes] == [
        *("0 bytes", "512 bytes", "64 KiB", "64 MiB", "1.5 GiB", "1 TiB"),
    ]


@pytest.mark.parametrize("value", [3, None, "", "abcd", "a\n"])
def test_a_text_that_is_none_too_long_or_unprintable_is_refused(value):
    assert text_of("key", "abc", 3, least=1) == "abc"
    with pytest.raises(SettingError, match=r"^key "):
        text_of("key", value, 3, least=1)


def test_a_text_may_be_empty_and_of_any_characters_where_its_key_says_so():
    assert text_of("key", "", 3) == ""
    assert text_of("key", "a\n", 3, is_printable=False) == "a\n"
