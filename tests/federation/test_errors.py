"""The tree of errors is drawn whole."""

import federation.client  # noqa: F401 - so that every error there is has been defined
from federation import errors


def descendants(cls):
    for child in cls.__subclasses__():
        yield child
        yield from descendants(child)


def test_every_error_of_the_package_stands_in_the_tree():
    ours = {
        each.__name__
        for each in descendants(errors.GridError)
        if each.__module__.startswith("federation.")
    }
    assert "ForkedProcessError" in ours
    assert {name for name in ours if f" {name} " not in errors.__doc__} == set()


def test_every_kind_of_failure_is_raised_as_an_error_of_its_own():
    assert len(set(errors.FAILURES.values())) == len(errors.FAILURES)
