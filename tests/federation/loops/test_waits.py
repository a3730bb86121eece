"""Waits in event loops: under asyncio and trio, by the same code."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import anyio
import pytest

from federation.loops.iterating import AsyncResults, CompletedFutures
from federation.loops.waits import WaitedInLoops, in_its_loop, in_thread, until_done

pytestmark = [pytest.mark.real, pytest.mark.parametrize("library", ["asyncio", "trio"])]
LIMIT_S = 60.0


class Numbers:
    """A map whose results come when they are asked for."""

    def __init__(self, values, error=None):
        self.values, self.error, self.stopped = iter(values), error, threading.Event()
        self.reads = 0
        self.is_ready = True

    def __iter__(self):
        return self

    def __next__(self):
        self.reads += 1
        for value in self.values:
            if value is None:
                assert self.stopped.wait(LIMIT_S)
                raise RuntimeError("stopped")
            return value
        raise self.error or StopIteration

    def close(self, *, stop=False):
        assert stop
        self.stopped.set()


def run(library, function):
    async def limited():
        with anyio.fail_after(LIMIT_S):
            return await function()

    return anyio.run(limited, backend=library)


def test_a_future_that_another_thread_ends_wakes_its_task(library):
    future = Future()
    seen = []

    async def main():
        async with anyio.create_task_group() as group:
            group.start_soon(until_done, future)
            await anyio.lowlevel.checkpoint()
            seen.append("the loop goes on")
            threading.Thread(target=future.set_result, args=(1,)).start()
        await until_done(future)  # done: at once

    run(library, main)
    assert seen
    assert future.result() == 1


def test_a_cancelled_task_gives_up_what_it_waits_for(library):
    future, given_up = Future(), []

    async def main():
        with anyio.CancelScope() as scope:
            scope.cancel()
            await until_done(future, lambda: given_up.append(True))
        future.set_result(None)  # late: the task is gone
        await anyio.lowlevel.checkpoint()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await until_done(future, lambda: given_up.append(False))

    run(library, main)
    assert given_up == [True]


def test_a_future_that_ends_after_its_loop_disturbs_nobody(library):
    future = Future()

    async def main():
        with anyio.CancelScope() as scope:
            scope.cancel()
            await until_done(future)

    run(library, main)
    future.set_result(1)


def test_a_call_in_a_thread_raises_in_the_task(library):
    async def main():
        with ThreadPoolExecutor(1) as threads:
            assert await in_thread(threads, lambda: 3) == 3
            with pytest.raises(ZeroDivisionError):
                await in_thread(threads, lambda: 1 / 0)

    run(library, main)


def test_results_come_in_order_with_few_steps_and_then_the_error(library):
    numbers = Numbers(range(600), ValueError("the 600th"))

    async def main():
        found = []

        async def read():
            async for each in AsyncResults(lambda: numbers):
                found.append(each)

        with pytest.raises(ValueError, match="600th"):
            await read()
        return found

    assert run(library, main) == list(range(600))


def test_the_end_of_a_map_stays_the_end(library):
    async def main():
        results = AsyncResults(lambda: Numbers([1]))
        assert [each async for each in results] == [1]
        assert [each async for each in results] == []
        await results.aclose()

    run(library, main)


def test_a_map_is_stopped_when_its_reader_is_cancelled_or_leaves(library):
    cancelled, left = Numbers([1, None]), Numbers([1, None])
    left.is_ready = cancelled.is_ready = False

    async def main():
        with anyio.move_on_after(0.05):
            async for _ in AsyncResults(lambda: cancelled):
                pass
        results = AsyncResults(lambda: left)
        async for _ in results:
            break
        await results.aclose()
        return [each async for each in results]

    assert run(library, main) == []
    assert cancelled.stopped.wait(LIMIT_S)
    assert left.stopped.wait(LIMIT_S)


def test_a_map_that_can_not_start_raises_at_its_first_step(library):
    def start():
        raise LookupError("no gateway")

    async def main():
        with pytest.raises(LookupError, match="no gateway"):
            async for _ in AsyncResults(start):
                pass

    run(library, main)


def test_futures_are_given_once_as_they_are_done(library):
    first, second, third = Future(), Future(), Future()
    first.set_result(1)

    async def main():
        found = []
        async for each in CompletedFutures([second, third, first, second], LIMIT_S):
            found.append(each)
            if each is first:
                threading.Thread(target=third.set_result, args=(3,)).start()
            if each is third:
                second.cancel()
        return found

    assert run(library, main) == [first, third, second]
    assert list(CompletedFutures([first, third], None)) in ([first, third], [third, first])


def test_futures_that_are_late_raise(library):
    async def main():
        with pytest.raises(TimeoutError, match=r"1 \(of 2\) futures unfinished"):
            async for _ in CompletedFutures([Future(), done], 0.05):
                pass

    done = Future()
    done.set_result(None)
    run(library, main)


def test_outside_of_a_loop_there_is_an_error(library):
    if library == "trio":
        pytest.skip("the same")
    waiting = until_done(Future())
    with pytest.raises(RuntimeError, match="no running event loop"):
        waiting.send(None)
    assert asyncio.iscoroutine(waiting)


def test_asyncio_waits_for_a_future_that_another_thread_ends(library):
    if library == "trio":
        pytest.skip("asyncio alone has `wait`")
    one, other = WaitedInLoops(), WaitedInLoops()

    async def main():
        ender = threading.Thread(target=one.set_result, args=(1,))
        asyncio.get_running_loop().call_soon(ender.start)
        done, rest = await asyncio.wait({one, other}, return_when=asyncio.FIRST_COMPLETED)
        assert (done, rest) == ({one}, {other})
        assert not other._done_callbacks  # asyncio has removed its own
        other.set_result(2)
        assert (await asyncio.wait({one, other}))[0] == {one, other}  # done before

    run(library, main)


def test_other_callbacks_are_called_where_the_future_ends(library):
    future, seen = WaitedInLoops(), []

    async def main():
        future.add_done_callback(lambda _: seen.append(threading.current_thread()))
        ender = threading.Thread(target=future.set_result, args=(1,))
        ender.start()
        ender.join(LIMIT_S)
        assert seen == [ender]
        assert in_its_loop(seen.append) == seen.append

    run(library, main)
