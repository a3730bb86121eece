"""Whose code a job is: that of a foreign user is its site's, which vouches for the user."""

import pytest
from support.pure.broker import spec


@pytest.mark.parametrize(
    ("user", "path", "origin"),
    [
        ("ada", (), ""),
        ("ada@bank.example", (), ""),
        ("eve@paris", (), "paris"),
        ("eve@rome", ("rome", "paris"), "paris"),
    ],
)
def test_a_job_is_the_code_of_the_site_that_it_came_from(user, path, origin):
    job = spec(user=user, path=path)
    assert job.origin == origin
    assert job.need.is_others is bool(origin)
    assert job.whose.site == (origin if path else "")  # a foreign user's is ours to rules and books
