"""Values of a configuration: lengths of time, sizes, and keys that are not known."""

import re

import pytest

from gateway.base.values import KnobError, check_known, read_length, size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("1.5h", 5_400.0),
        ("04:00:00", 14_400.0),
        ("4:00:30", 14_430.0),
        ("100:00:00", 360_000.0),
        ("1-12:00:00", 129_600.0),
    ],
)
def test_a_length_of_time_is_read_in_our_form_and_in_that_of_slurm(text, seconds):
    assert read_length(text) == seconds


@pytest.mark.parametrize("text", ["4", "04:00", "00:60:00", "1:2:3", "-04:00:00", "4 hours", ""])
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
        ("2 TiB", "memory_bytes is 2 TiB, 2_199_023_255_552 bytes: it must be 0 to"),
        (1.5, "memory_bytes is 1.5: it must be a whole number"),
    ],
)
def test_what_is_no_size_is_refused(value, text):
    with pytest.raises(KnobError, match=re.escape(text)):
        size("memory_bytes", value, 0, 1 << 40)


def test_an_unknown_key_is_told_with_the_most_similar_known_one():
    with pytest.raises(KnobError, match=r"'token_requird' \(did you mean 'token_required'\?\)"):
        check_known(["token_requird"], ["listen", "name", "token_required"])
    with pytest.raises(KnobError, match=r"unknown key 'colour'; known keys: listen, name$"):
        check_known(["colour"], ["listen", "name"])
