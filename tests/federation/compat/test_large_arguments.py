"""Large values among the arguments of a loop: found, put once, and kept while a batch has them."""

import weakref

import numpy as np
import pytest

from federation.compat.large_arguments import LargeValues, size_of
from federation.errors import ObjectRefused


class Site:
    """Puts values: a reference to one is its place among them, as a text."""

    def __init__(self, *, has_room=True):
        self.puts = []
        self.has_room = has_room

    def put(self, value):
        self.puts.append(bytes(value))
        return f"reference {len(self.puts)}" if self.has_room else None


@pytest.fixture
def site():
    return Site()


@pytest.fixture
def large(site):
    return LargeValues(site.put, 4)


def test_references_stand_for_large_values_wherever_they_are(large):
    book, small = b"a book", b"1"
    found, _ = large.replaced([("call", (book, small), {"more": [book]})])
    assert found == [("call", ("reference 1", small), {"more": ["reference 1"]})]
    plain = [("call", (small,), {})]
    assert large.replaced(plain) == (plain, set())
    assert large.replaced(plain)[0] is plain


def test_a_value_is_kept_until_its_last_batch_has_ended(large, site):
    book = b"a book"
    _, first = large.replaced([book, book])
    _, second = large.replaced([book])
    large.ended(first)
    _, third = large.replaced([book])
    assert site.puts == [book]
    large.ended(second)
    large.ended(third)
    assert large.replaced([book])[0] == ["reference 2"]


def test_a_value_that_is_not_kept_is_gone(large):
    values = [np.ones(3), np.ones(3)]
    _, uses = large.replaced([values[0]])
    _, other = large.replaced([values[1]])
    dead = [weakref.ref(each) for each in values]
    values.clear()
    assert all(each() is not None for each in dead)
    large.ended(uses)
    assert [each() is None for each in dead] == [True, False]
    large.clear()
    assert all(each() is None for each in dead)
    large.ended(other)  # the loop has ended before its batch


def test_where_there_was_no_room_values_travel_until_their_batches_have_ended():
    site = Site(has_room=False)
    large = LargeValues(site.put, 4)
    found, uses = large.replaced([b"a book"])
    assert found == [b"a book"]
    large.ended(uses)
    site.has_room = True
    assert large.replaced([b"a book"])[0] == ["reference 2"]


def test_a_batch_whose_values_can_not_be_put_keeps_none():
    def put(value):
        if type(value) is bytes:
            raise ObjectRefused("no")
        return "a reference"

    large, value = LargeValues(put, 4), np.ones(3)
    dead = weakref.ref(value)
    with pytest.raises(ObjectRefused):
        large.replaced([value, b"refused"])
    del value
    assert dead() is None


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (b"four", 4),
        (np.ones(4), 32),
        ("a text", 0),
        (np.ndarray, 0),
        ([np.ones(4)], 0),
    ],
)
def test_the_size_of_a_value_is_told_by_its_class(value, size):
    assert size_of(value) == size


def test_the_size_of_tables_and_sparse_matrices():
    import pandas as pd
    import scipy.sparse

    class Strange:
        @property
        def nbytes(self):
            raise LookupError

    assert size_of(pd.DataFrame({"a": [1.0, 2.0]}, index=[1, 2])) == 32
    assert size_of(pd.Series([1.0, 2.0], index=[1, 2])) == 16
    assert size_of(scipy.sparse.eye(4).tocsr()) == 32
    assert size_of(Strange()) == 0
