"""What is answered about the federation."""

from types import SimpleNamespace

import pytest

from gateway import federation_desk


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (None, "there never was a job 'j-7' here"),
        (SimpleNamespace(state="done"), "job 'j-7' has ended .done."),
    ],
)
async def test_a_job_that_ended_is_told_apart_from_one_that_never_was(row, told):
    async def read(query, *arguments):
        return query(*arguments)

    site = SimpleNamespace(
        surroundings=SimpleNamespace(utc_s=lambda: 1.0, read=read),
        store=SimpleNamespace(job=lambda name: row),
        broker=SimpleNamespace(jobs={}),
        exchange=SimpleNamespace(refresh=lambda utc_s, without: None),
    )
    with pytest.raises(federation_desk.BadFederationQuestion, match=told):
        await federation_desk.explain(site, {"job": "j-7"}, "ada")
