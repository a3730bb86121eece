"""Functions are kept while they are needed, and no sender's grow without end."""

import hashlib

import pytest

from federation.errors import ProtocolError
from gateway.runtime.functions import FunctionStore


def put(functions: FunctionStore, letter: bytes, sender: int, size: int = 100) -> bytes:
    body = letter * size
    digest = hashlib.sha256(body).digest()
    functions.put(digest, body, sender)
    return digest


def test_what_no_job_needs_makes_place_for_what_comes() -> None:
    used: set[bytes] = set()
    functions = FunctionStore(250, lambda: used)
    used.add(needed := put(functions, b"a", 1))
    unneeded = put(functions, b"b", 1)
    new = put(functions, b"c", 1)
    assert functions.body(unneeded) is None
    assert functions.body(needed) is not None
    assert functions.body(new) is not None


def test_a_sender_whose_functions_in_use_are_too_large_is_refused() -> None:
    used: set[bytes] = set()
    functions = FunctionStore(250, lambda: used)
    used |= {put(functions, b"a", 1), put(functions, b"b", 1)}
    with pytest.raises(ProtocolError, match="250 bytes"):
        put(functions, b"c", 1)


def test_what_another_sender_has_sent_as_well_stays() -> None:
    functions = FunctionStore(250, set)
    shared = put(functions, b"a", 1)
    put(functions, b"a", 2)
    put(functions, b"b", 1)
    put(functions, b"c", 1)
    assert functions.body(shared) is not None


def test_what_no_job_needs_goes_with_its_sender() -> None:
    used: set[bytes] = set()
    functions = FunctionStore(1000, lambda: used)
    used.add(needed := put(functions, b"a", 1))
    unneeded = put(functions, b"b", 1)
    functions.sweep({1})
    assert functions.body(unneeded) is not None
    functions.sweep(set())
    assert functions.body(unneeded) is None
    assert functions.body(needed) is not None
    used.clear()
    functions.sweep(set())
    assert functions.body(needed) is None


def test_nothing_is_kept_of_a_worker_that_left_while_it_waited() -> None:
    functions = FunctionStore(1000, set)
    body = b"body"
    digest = hashlib.sha256(body).digest()
    for worker in (1, 2):
        assert functions.want(worker, digest) is None
    functions.forget(1)
    assert functions.put(digest, body, sender=9) == {2}
    for worker in range(3, 100):
        functions.want(worker, bytes([worker]) * 32)
        functions.forget(worker)
    assert not functions._wanted


def test_who_asks_again_and_again_is_sent_it_once_more_in_a_while() -> None:
    functions = FunctionStore(1000, set)
    digest = put(functions, b"f", 1, size=1)
    assert functions.to_send(7, digest) == b"f"
    assert [functions.want(7, digest) for _ in range(3)] == [b"f", None, None]
    functions.sweep({1})
    assert [functions.want(7, digest) for _ in range(2)] == [b"f", None]


def test_nobody_waits_for_more_functions_than_there_can_be(monkeypatch) -> None:
    monkeypatch.setattr("gateway.runtime.functions.WANTED_MAX", 3)
    functions = FunctionStore(1000, set)
    for number in range(10):
        assert functions.want(7, bytes([number]) * 32) is None
    assert len(functions._wanted) == 3
