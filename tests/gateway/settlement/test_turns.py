"""The order of jobs."""

import trio
import trio.testing

from gateway.settlement.turns import OURS, Turns


async def job():
    pass


async def another():
    pass


def order(turns):
    found = []
    while (taken := turns.take()) is not None:
        found.append(taken[0])
    return found


def test_one_job_of_each_site_is_done_after_the_other_and_ours_before_them():
    turns = Turns(5)
    for _ in range(3):
        turns.add("rome", job)
    turns.add("oslo", job)
    turns.add(OURS, job)
    assert turns.take() == (OURS, job)
    assert turns.take() == ("rome", job)
    turns.add("bern", job)
    turns.add(OURS, job)
    assert order(turns) == [OURS, "oslo", "rome", "bern", "rome"]


def test_too_many_of_one_site_are_not_taken_of_others_and_ours_they_are():
    turns = Turns(2)
    assert [turns.add("rome", job) for _ in range(3)] == [True, True, False]
    assert turns.add("oslo", job)
    assert all(turns.add(OURS, job) for _ in range(3))
    assert len(turns) == 6


def test_a_new_job_takes_the_place_of_what_waits_about_the_same():
    turns = Turns(2)
    turns.add("rome", job, "monday")
    turns.add("rome", job, "tuesday")
    assert turns.add("rome", another, "monday")
    assert turns.add("oslo", job, "monday")
    assert turns.take() == ("rome", another)
    assert order(turns) == ["oslo", "rome"]


async def test_who_waits_for_a_job_gets_it_when_there_is_one():
    turns = Turns(2)
    found = []

    async def wait():
        for _ in range(2):
            found.append(await turns.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for each in (job, another):
            await trio.testing.wait_all_tasks_blocked()
            turns.add("rome", each)
    assert found == [("rome", job), ("rome", another)]
