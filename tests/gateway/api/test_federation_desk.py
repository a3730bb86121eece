"""What is answered about the federation."""

from types import SimpleNamespace

import pytest

from gateway.api import federation_desk
from gateway.api.context import BadQuestion
from gateway.trust.rights import Asker
from policies.parties import Owner


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (None, "no job 'j-7' found here"),
        (SimpleNamespace(state="done", user="ada", project="risk"), "job 'j-7' has ended .done."),
    ],
)
async def test_a_job_that_ended_is_told_apart_from_one_that_never_was(row, told):
    async def read(query, *arguments):
        return query(*arguments)

    site = SimpleNamespace(
        runtime=SimpleNamespace(utc_s=lambda: 1.0, read=read),
        store=SimpleNamespace(jobs=SimpleNamespace(get=lambda name: row)),
        broker=SimpleNamespace(jobs={}),
        exchange=SimpleNamespace(refresh=lambda utc_s, without: None),
    )
    with pytest.raises(BadQuestion, match=told):
        await federation_desk.explain(site, {"job": "j-7"}, Asker(1, "ada"))


async def test_another_users_job_is_as_if_it_never_was():
    async def read(query, *arguments):
        return query(*arguments)

    row = SimpleNamespace(state="done", user="ada", project="risk")
    live = SimpleNamespace(whose=Owner("ada", project="risk"))
    site = SimpleNamespace(
        runtime=SimpleNamespace(utc_s=lambda: 1.0, read=read),
        store=SimpleNamespace(jobs=SimpleNamespace(get=lambda name: row)),
        broker=SimpleNamespace(jobs={"j-8": live}),
        exchange=SimpleNamespace(refresh=lambda utc_s, without: None),
    )
    for name in ("j-7", "j-8"):
        with pytest.raises(BadQuestion, match="no job"):
            await federation_desk.explain(site, {"job": name}, Asker(1, "bob"))
