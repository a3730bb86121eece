"""Moments and lengths of time of options, as they are typed."""

import click
import pytest

from federation.clocks import UtcS
from gateway.cli.shared.moments import ahead

NOW_S = UtcS(1_782_900_000.0)  # 2026-07-01 10:00:00 UTC


@pytest.mark.parametrize(
    ("text", "after_s"),
    [("2h", 7_200), ("90s", 90), ("2026-07-01T10:01", 60), ("2026-07-01", 14 * 3_600)],
)
def test_a_moment_to_come_is_a_length_of_time_or_a_time(text, after_s):
    assert ahead(text, option="--deadline", utc_s=NOW_S) == NOW_S + after_s


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-07-01T09:59", "is past: it is 2026-07-01 10:00:00 UTC now"),
        ("0s", "is not in the range above 0s"),
        ("-2h", "is not a length of time"),
        ("tomorrow", "is not a length of time"),
        ("2026-13-01", "not a time"),
    ],
)
def test_a_moment_that_is_past_or_none_is_refused(text, words):
    with pytest.raises(click.BadParameter, match=words):
        ahead(text, option="--deadline", utc_s=NOW_S)
