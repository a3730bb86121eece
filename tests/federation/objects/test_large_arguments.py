"""Large arguments of calls, which travel as objects (federation.objects.large_arguments)."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from federation.errors import SerializationError
from federation.objects import inputs, references
from federation.objects.bodies import load, make_body
from federation.objects.inputs import read_head
from federation.objects.labels import UNLABELLED, read_label
from federation.objects.large_arguments import LARGE_BYTES, LargeArgument
from federation.objects.left import WHOLE, read_left
from federation.objects.manifests import SHA256
from federation.objects.open_calls import OpenCall
from federation.payload import seal_large, seal_small

LARGE = np.arange(LARGE_BYTES // 8 + 1, dtype=float)


class Puts:
    """Puts values: each is an object of the first session, in this process."""

    def __init__(self):
        self.session = 1
        self.made = []

    def __call__(self, value):
        body = make_body(value)
        data = bytearray(body.size)
        for at, piece in body.pieces():
            data[at : at + len(piece)] = piece
        view = memoryview(bytes(data))
        digest = bytes([SHA256]) + bytes([len(self.made)]) * 32
        lease = SimpleNamespace(digest=digest, size=body.size, session=1, view=view)
        self.made.append(lease)
        return LargeArgument(lease, lambda: self.session)


def opened(call, made, monkeypatch):
    """Return the arguments as a slot opens them."""
    sent = call.as_sent()
    head = read_head(sent)
    objects = {lease.digest: lease.view for lease in made}

    def give(number):
        value = head.inputs[number]
        left = read_left(value)
        return load(memoryview(value)[1:] if left is None else objects[left[0]])

    monkeypatch.setattr(inputs, "_source", give)
    return head, pickle.loads(memoryview(sent)[head.start :])


@pytest.mark.parametrize("session", [1, 2])
def test_a_task_gets_what_it_would_get_in_a_message(monkeypatch, session):
    put = Puts()
    table = {"a": [LARGE, LARGE], "f": np.ones((2, 70_000), order="F")}
    raw, more = bytes(LARGE_BYTES + 1), bytearray(LARGE_BYTES + 2)
    call = seal_large((LARGE, table, raw, 3), {"more": more}, put)
    assert type(call) is OpenCall
    assert len(call) < 10_000
    assert {lease.digest for lease in put.made} == set(call.leases)
    put.session = session  # in another one its bytes go along
    head, found = opened(call, put.made, monkeypatch)
    assert len(put.made) == len(head.inputs) == 4  # the same array once
    assert all((each[:1] == WHOLE) == (session == 2) for each in head.inputs)
    assert len(head.digests) == (4 if session == 1 else 0)
    array, same, got, three = found.args
    array[0] = 7.0  # it is the task's own
    assert array is same["a"][0] is same["a"][1]
    assert LARGE[0] == 0.0
    assert same["f"].flags.f_contiguous
    assert (got, type(got), three) == (raw, bytes, 3)
    assert (found.kwargs["more"], type(found.kwargs["more"])) == (more, bytearray)


def test_what_is_refused_goes_in_the_message():
    call = seal_large((LARGE, b"x" * (LARGE_BYTES + 1)), {}, lambda _: None)
    assert isinstance(call, bytes)
    array, raw = pickle.loads(call)
    assert (array == LARGE).all()
    assert len(raw) == LARGE_BYTES + 1


def test_arrays_of_python_objects_and_small_ones_are_not_put():
    def refuse(_value):
        raise AssertionError

    odd = np.array([None] * (LARGE_BYTES // 8 + 1))
    assert isinstance(seal_large((odd, LARGE[:100]), {}, refuse), bytes)


def test_calls_are_told_to_be_large_before_they_are_pickled_in_vain():
    assert seal_small((LARGE,), {}) is None
    assert seal_small((1,), {"x": LARGE}) is None
    assert seal_small((LARGE[:10], 2), {}) is not None
    assert seal_small((LARGE[:10],), {"x": 1}) is not None


def test_what_can_not_be_pickled_is_named():
    with pytest.raises(SerializationError, match="argument 1"):
        seal_large((LARGE, (each for each in ())), {}, Puts())
    assert references._now.inputs is None


def test_an_argument_has_the_label_of_the_object_that_has_its_bytes():
    """Equal bytes were put with a label before: calls with the plain value ran anywhere."""
    lease = SimpleNamespace(digest=b"d", size=1, session=1, view=None, label=read_label(["EU"]))
    argument = LargeArgument(lease, lambda: 1)
    assert argument.label.words == ("EU",)
    lease.label = UNLABELLED
    assert not argument.label
