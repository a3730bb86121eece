"""The scopes of objects (gateway.base.scopes)."""

import pytest
from support.pure.broker import spec

from gateway.base.scopes import ObjectScope


@pytest.mark.parametrize(
    ("scope", "job"),
    [(ObjectScope("risk"), "held/H"), (ObjectScope("a @b", "paris"), "paris:held/H")],
)
def test_a_scope_reads_as_it_was_written(scope, job):
    assert ObjectScope.read(str(scope)) == scope
    assert scope.record_job("held", "H") == job


def test_the_scope_of_a_job_is_that_of_its_records():
    theirs = spec(project="risk", path=("rome", "paris"))
    assert ObjectScope.read(theirs.scope) == ObjectScope("risk", "paris")
    assert ObjectScope.read(spec(project="risk").scope) == ObjectScope("risk")
