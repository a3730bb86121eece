"""The order of readers of output."""

import trio
import trio.testing

from gateway.logs.reading_turns import ReadingTurns


async def read(turns, user, began, may_end):
    async with turns.of(user):
        began.append(user)
        await may_end.wait()


async def test_a_user_with_many_readers_keeps_nobody_waiting(autojump_clock):
    turns, began, go = ReadingTurns(2, 1), [], trio.Event()

    async def busy():
        while not go.is_set():
            async with turns.of("ann"):
                began.append("ann")
                await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(busy)
        await trio.sleep(10.5)
        began.clear()
        async with turns.of("bob"):
            assert began.count("ann") <= 1
        go.set()
        nursery.cancel_scope.cancel()


async def test_users_are_served_in_turn_and_each_in_its_order():
    turns, began = ReadingTurns(1, 1), []
    ends = [trio.Event() for _ in range(5)]
    async with trio.open_nursery() as nursery:
        for at, user in enumerate(("ann", "ann", "ann", "bob", "eve")):
            nursery.start_soon(read, turns, user, began, ends[at])
            await trio.testing.wait_all_tasks_blocked()
        for end in ends:
            end.set()
    assert began == ["ann", "ann", "bob", "eve", "ann"]


async def test_one_that_leaves_while_it_waits_takes_no_turn():
    turns, began, end = ReadingTurns(1, 1), [], trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, turns, "ann", began, end)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0) as gone:
            await read(turns, "bob", began, end)
        assert gone.cancelled_caught
        end.set()
    async with turns.of("bob"), trio.open_nursery():
        pass
    assert began == ["ann"]
