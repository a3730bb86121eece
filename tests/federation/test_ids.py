"""Ids tell when they were made."""

import time

import pytest

from federation.ids import id_time_ms, new_id


def test_an_id_tells_its_time_and_is_new():
    before_ms = time.time_ns() // 1_000_000
    ids = [new_id() for _ in range(100)]
    after_ms = time.time_ns() // 1_000_000
    assert len(set(ids)) == 100
    assert all(before_ms <= id_time_ms(each) <= after_ms for each in ids)


@pytest.mark.parametrize("odd", ["", "j", "u" * 26, "\u00e9" * 26, "0" * 25])
def test_other_ids_tell_nothing(odd):
    assert id_time_ms(odd) is None
