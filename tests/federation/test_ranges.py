"""RangeSet against a plain set."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from federation.ranges import RangeSet

SPANS = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1]))


@given(st.lists(st.tuples(st.booleans(), SPANS), max_size=40), SPANS)
def test_it_is_a_set_of_numbers(steps, window):
    ranges, plain = RangeSet(), set()
    for adding, (first, stop) in steps:
        if adding:
            ranges.add(first, stop)
            plain |= set(range(first, stop))
        else:
            ranges.remove(first, stop)
            plain -= set(range(first, stop))
    pairs = list(ranges)
    assert {n for first, stop in pairs for n in range(first, stop)} == plain
    assert all(a[1] < b[0] for a, b in itertools.pairwise(pairs))
    assert len(ranges) == len(plain)
    assert bool(ranges) == bool(plain)
    inside = set(range(*window))
    assert {n for a, b in ranges.within(*window) for n in range(a, b)} == plain & inside
    assert {n for a, b in ranges.missing(*window) for n in range(a, b)} == inside - plain
    assert all((n in ranges) == (n in plain) for n in range(90))
    assert RangeSet(pairs) == ranges
    highest = ranges.last(window[0])
    assert [n for a, b in highest for n in range(a, b)[::-1]] == sorted(plain)[::-1][: window[0]]
    assert all(a < b for a, b in highest)
