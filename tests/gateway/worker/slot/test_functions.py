"""Which function bodies an agent and a slot keep, and which they let go."""

from gateway.worker.slot.functions import FunctionCache, Lent


def test_what_was_used_longest_ago_goes_first():
    functions = FunctionCache(bytes_max=30)
    for digest in (b"a", b"b", b"c"):
        assert functions.put(digest, b"x" * 10, ()) == []
    assert functions.get(b"a") == b"x" * 10
    assert functions.put(b"d", b"x" * 10, ()) == [b"b"]
    assert b"b" not in functions
    assert b"a" in functions


def test_what_is_in_use_stays_even_without_room():
    functions = FunctionCache(bytes_max=10)
    functions.put(b"a", b"x" * 10, ())
    assert functions.put(b"b", b"x" * 10, {b"a"}) == []
    assert functions.put(b"c", b"x" * 5, {b"c"}) == [b"a", b"b"]


def test_a_function_that_comes_twice_counts_once():
    functions = FunctionCache(bytes_max=10)
    functions.put(b"a", b"x" * 10, ())
    assert functions.put(b"a", b"x" * 10, ()) == []


def test_a_slot_is_sent_a_function_once_until_it_forgets_it():
    lent = Lent(functions_max=2)
    assert lent.lend(b"a") == (True, None)
    assert lent.lend(b"b") == (True, None)
    assert lent.lend(b"a") == (False, None)
    assert lent.lend(b"c") == (True, b"b")
    assert lent.lend(b"b") == (True, b"a")
