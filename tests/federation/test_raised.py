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


class OwnGroup(ExceptionGroup):
    def __new__(cls, errors):
        return super().__new__(cls, "of its own", errors)

    def __init__(self, errors):
        self.number = len(errors)


def test_a_group_arrives_with_each_of_its_members():
    odd, locked = NeedsThree(1, 2, three=3), ValueError("locked")
    locked.lock = threading.Lock()
    inner = ExceptionGroup("inner", [odd, KeyError("k")])
    copy = travelled(ExceptionGroup("several", [ValueError(1), inner, locked]))
    assert type(copy) is ExceptionGroup
    assert copy.message == "several"
    plain, nested, rest = copy.exceptions
    assert plain.args == (1,)
    assert [type(each) for each in nested.exceptions] == [NeedsThree, KeyError]
    assert nested.exceptions[0].three == 3
    assert isinstance(rest, ValueError)
    assert isinstance(rest, RemoteError)


def test_a_group_of_a_class_of_its_own_keeps_class_and_attributes():
    copy = travelled(OwnGroup([ValueError(1), NeedsThree(1, 2, three=3)]))
    assert type(copy) is OwnGroup
    assert (copy.message, copy.number, len(copy.exceptions)) == ("of its own", 2, 2)
    with pytest.raises(OwnGroup) as caught:
        raise copy
    assert caught.value.subgroup(NeedsThree) is not None


def test_a_member_that_can_not_travel_is_its_text():
    class Stubborn(Exception):
        lock = threading.Lock()

    copy = travelled(ExceptionGroup("several", [Stubborn("no"), ValueError(2)]))
    text, plain = copy.exceptions
    assert type(text) is RemoteError
    assert "Stubborn" in str(text)
    assert plain.args == (2,)


def test_what_cannot_travel_is_left_out_and_the_class_stays():
    error = NeedsThree(1, 2, three=3)
    error.lock = threading.Lock()
    copy = travelled(error)
    assert isinstance(copy, NeedsThree)
    assert isinstance(copy, RemoteError)
    assert (str(copy), copy.three, hasattr(copy, "lock")) == ("1 and 2", 3, False)


def test_an_exception_that_is_too_large_travels_as_text_alone():
    assert seal_exception(ValueError("x" * LIMIT), "its traceback", LIMIT) == b""
