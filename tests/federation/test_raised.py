"""Exceptions arrive as their class, whole where possible."""

import pickle
import threading

import pytest

from federation.errors import RemoteError
from federation.raised import seal_exception

LIMIT = 1 << 16


class NeedsThree(Exception):
    def __init__(self, one, two, *, three):
        super().__init__(f"{one} and {two}")
        self.three = three


class Rewords(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")


class OwnFault(OSError):
    def __init__(self, number, *, path):
        super().__init__(number, "no such market")
        self.path = path


class OwnPickle(Exception):
    def __init__(self, one, two):
        super().__init__(one)
        self.two = two

    def __reduce__(self):
        return OwnPickle, (self.args[0], self.two)


def travelled(error):
    sealed = seal_exception(error, "its traceback", LIMIT)
    return pickle.loads(sealed) if sealed else None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        NeedsThree(1, 2, three=3),
        Rewords(5),
        OwnFault(2, path="here"),
        OwnPickle("a", "b"),
        KeyError(("a", 1)),
        ExceptionGroup("several", [ValueError(1)]),
    ],
)
def test_an_exception_arrives_as_its_class_with_its_arguments_and_attributes(error):
    copy = travelled(error)
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    assert getattr(copy, "errno", None) == getattr(error, "errno", None)


def test_what_cannot_travel_is_left_out_and_the_class_stays():
    error = NeedsThree(1, 2, three=3)
    error.lock = threading.Lock()
    copy = travelled(error)
    assert isinstance(copy, NeedsThree)
    assert isinstance(copy, RemoteError)
    assert (str(copy), copy.three, hasattr(copy, "lock")) == ("1 and 2", 3, False)


def test_an_exception_that_is_too_large_travels_as_text_alone():
    assert seal_exception(ValueError("x" * LIMIT), "its traceback", LIMIT) == b""
