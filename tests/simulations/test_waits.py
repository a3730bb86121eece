"""The waits of a simulated gateway's coroutines, and a world whose users ask too early."""

import pytest

from simulations.scenarios import SCENARIOS
from simulations.world.gateway import Gateway
from simulations.world.waits import Stored
from simulations.world.world import World


def test_who_is_woken_before_the_commit_waits_on() -> None:
    stored, told = Stored(), []

    async def wait() -> None:
        await stored
        told.append("stored")

    waiting = wait()
    for _ in range(3):
        assert waiting.send(None) is None
    stored.done()
    with pytest.raises(StopIteration):
        waiting.send(None)
    assert told == ["stored"]


def test_a_commit_that_is_made_at_once_is_not_waited_for() -> None:
    stored = Stored()
    stored.done()
    assert list(stored.__await__()) == []


def test_results_that_are_asked_for_before_the_store_has_the_job_are_waited_for() -> None:
    world = World(SCENARIOS["early_questions"](7), 7)
    site = world.sites["london"]
    assert isinstance(site, Gateway)
    before: list[int] = []
    record = site.record

    async def watched(*records: object, durable: bool = False) -> None:
        before.append(len(site.disk.tables.jobs))
        await record(*records, durable=durable)  # type: ignore[arg-type]
        assert len(site.disk.tables.jobs) > before[-1]

    site.record = watched  # type: ignore[method-assign, assignment]
    run = world.run()
    assert run.broken is None
    assert before
    assert not [each for each in run.trace.entries if each.what == "can't fetch"]
