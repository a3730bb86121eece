"""References among arguments (federation.objects.references, federation.payload)."""

import pickle
import threading
from dataclasses import dataclass

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import ProtocolError, SerializationError
from federation.objects import references
from federation.objects.manifests import SHA256
from federation.objects.references import (
    has_references,
    pickle_of,
    reduced,
    references_of,
    with_head,
)
from federation.payload import Call, seal_call, seal_calls, seal_function, seal_singles


class Reference:
    def __init__(self, number):
        self.digest = bytes([SHA256]) + bytes([number]) * 32

    def __reduce__(self):
        return reduced(self.digest)


@dataclass
class Deal:
    book: object
    size: int


@pytest.fixture(autouse=True)
def slot(monkeypatch):
    """Holes are filled with the number of the object, as a slot fills them with its value."""
    monkeypatch.setattr(references, "_source", lambda digest: ("object", digest[1]))


def opened(call):
    return pickle.loads(pickle_of(call))


leaves = st.integers(0, 5).map(Reference) | st.integers() | st.text(max_size=3)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Deal, inner, st.integers())
    ),
    max_leaves=12,
)


def filled(tree, found):
    """A slot's view, and the digests that the call should list."""
    if isinstance(tree, Reference):
        found.add(tree.digest)
        return ("object", tree.digest[1])
    if isinstance(tree, list):
        return [filled(each, found) for each in tree]
    if isinstance(tree, tuple):
        return tuple(filled(each, found) for each in tree)
    if isinstance(tree, dict):
        return {key: filled(each, found) for key, each in tree.items()}
    return Deal(filled(tree.book, found), tree.size) if isinstance(tree, Deal) else tree


@given(trees, trees)
def test_references_anywhere_among_the_arguments_are_filled(first, second):
    found = set()
    wanted = filled((first, second), found)
    call = seal_call((first, second), {})
    assert opened(call) == wanted
    assert set(references_of(call)) == found
    assert has_references(call) == bool(found)


def test_keyword_arguments_and_maps_have_them_too():
    one, two = Reference(1), Reference(2)
    call = opened(seal_call((one,), {"book": two}))
    assert type(call) is Call
    assert (call.args, call.kwargs) == ((("object", 1),), {"book": ("object", 2)})
    single, plain = seal_singles([one, 7])
    assert opened(single) == (("object", 1),)
    assert not has_references(plain)
    (both,) = seal_calls([(one, two)])
    assert len(references_of(both)) == 2


def test_an_object_used_twice_is_listed_once_and_is_one_value():
    one = Reference(1)
    call = seal_call(([one, one],), {})
    assert len(references_of(call)) == 1
    ((first, second),) = opened(call)
    assert first is second


def test_calls_without_references_are_the_same_bytes_as_ever():
    assert seal_call((1, "a"), {}) == pickle.dumps((1, "a"), 5)
    assert seal_call(([1],), {}) == cloudpickle.dumps(([1],), 5)


def test_a_reference_is_pickled_nowhere_else():
    one = Reference(1)
    with pytest.raises(SerializationError, match="argument"):
        pickle.dumps(one)
    with pytest.raises(SerializationError, match="argument"):
        seal_function(lambda: one)
    seal_call((one,), {})
    with pytest.raises(SerializationError, match="argument"):
        pickle.dumps(one)


def test_a_reduce_that_seals_a_call_of_its_own_keeps_the_lists_apart():
    inner = []

    class Submits:
        def __reduce__(self):
            inner.append(seal_call(([Reference(9)],), {}))
            return int, (5,)

    call = seal_call((Reference(1), Submits(), Reference(2)), {})
    assert [each[1] for each in references_of(call)] == [1, 2]
    assert [each[1] for each in references_of(inner[0])] == [9]


def test_many_threads_seal_at_once():
    wrong = []

    def seal(number):
        for _ in range(200):
            found = references_of(seal_call(([Reference(number)],), {}))
            if [each[1] for each in found] != [number]:
                wrong.append(found)

    threads = [threading.Thread(target=seal, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_what_else_can_not_be_pickled_is_named_and_not_the_reference():
    with pytest.raises(SerializationError, match="argument 1"):
        seal_call((Reference(1), (each for each in [])), {})


@given(st.binary(max_size=80))
def test_a_wrong_head_is_refused(data):
    try:
        found = references_of(b"\0" + data)
    except ProtocolError:
        return
    assert with_head(bytes(pickle_of(b"\0" + data)), found) == b"\0" + data or not found
