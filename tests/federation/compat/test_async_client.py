"""Clients in event loops: real gateways, under asyncio and trio."""

import asyncio
import time

import anyio
import pytest

from federation import AsyncClient, GatewayUnreachable

pytestmark = [pytest.mark.real, pytest.mark.parametrize("library", ["asyncio", "trio"])]
LIMIT_S = 300.0


def square(x, sleep_s=0.0):
    time.sleep(sleep_s)
    return x * x


def make_files_until(folder, name):
    """Run until a file is there, and leave one beside it."""
    (folder / f"{name}.begun").touch()
    while not (folder / f"{name}.end").exists():
        time.sleep(0.01)


def fail(x):
    raise ValueError(f"no price for {x}")


def run(library, function, *arguments):
    async def limited():
        with anyio.fail_after(LIMIT_S):
            return await function(*arguments)

    return anyio.run(limited, backend=library)


async def until(condition):
    while not condition():  # noqa: ASYNC110 - of files and futures that have no event
        await anyio.sleep(0.01)


def test_futures_of_a_client_can_be_awaited(library, client):
    async def main():
        futures = [client.submit(square, x) for x in range(5)]
        assert [await each for each in futures] == [0, 1, 4, 9, 16]
        assert await futures[0] == 0
        assert await client.submit(square, futures[2]) == 16
        with pytest.raises(ValueError, match="no price for 3"):
            await client.submit(fail, 3)

    run(library, main)


def test_functions_of_asyncio_take_futures(library, client):
    if library == "trio":
        pytest.skip("functions of asyncio")

    async def main():
        def call():
            return client.submit(square, 3, 0.05)

        done, rest = await asyncio.wait({call(), call()})
        assert sorted(each.result() for each in done) == [9, 9]
        assert not rest
        assert await asyncio.gather(call(), call()) == [9, 9]
        assert await asyncio.wait_for(call(), LIMIT_S) == 9
        assert await asyncio.shield(call()) == 9
        assert await asyncio.ensure_future(call()) == 9
        assert await asyncio.wrap_future(call()) == 9
        assert [await each for each in asyncio.as_completed([call()])] == [9]
        with pytest.raises(TypeError, match="a coroutine was expected"):
            asyncio.create_task(call())  # noqa: RUF006 - refused

    run(library, main)


def test_the_loop_goes_on_while_calls_run(library, shared_site, tmp_path):
    async def main():
        async with AsyncClient(shared_site.address) as client:
            future = client.submit(make_files_until, tmp_path, "a")
            async with anyio.create_task_group() as group:

                async def end_it():
                    await until((tmp_path / "a.begun").exists)
                    (tmp_path / "a.end").touch()

                group.start_soon(end_it)
                await future

    run(library, main)


def test_a_cancelled_task_stops_the_call_that_it_awaits(library, shared_site, tmp_path):
    async def main():
        async with AsyncClient(shared_site.address) as client:
            future = client.submit(make_files_until, tmp_path, "b")
            async with anyio.create_task_group() as group:

                async def wait():
                    await future

                group.start_soon(wait)
                await until((tmp_path / "b.begun").exists)
                group.cancel_scope.cancel()
            await until(future.done)
            assert future.cancelled()
            assert await client.submit(square, 3) == 9

    run(library, main)


def test_a_call_that_was_cancelled_does_not_cancel_the_task(library, client, tmp_path):
    """The exception is concurrent.futures', which asyncio does not take for its own."""
    from concurrent.futures import CancelledError

    async def main():
        future = client.submit(make_files_until, tmp_path, "c")
        await until((tmp_path / "c.begun").exists)
        assert future.cancel(stop=True)
        with pytest.raises(CancelledError) as caught:
            await future
        assert not isinstance(caught.value, asyncio.CancelledError)

    run(library, main)


def test_maps_and_futures_are_iterated_over(library, shared_site):
    async def main():
        async with AsyncClient(shared_site.address) as client:
            assert [x async for x in client.map(square, range(3_000))] == [
                x * x for x in range(3_000)
            ]
            assert [x async for x in client.starmap(pow, [(2, 3), (3, 2)])] == [8, 9]
            assert [x async for x in client.client.map(pow, [2, 3], [2, 2])] == [4, 9]
            found = set()
            futures = [client.submit(square, x) for x in range(5)]
            async for future in client.as_completed(futures):
                found.add(await future)
            assert found == {0, 1, 4, 9, 16}
            with pytest.raises(ValueError, match="no price for 0"):
                async for _ in client.map(fail, range(3)):
                    pass

    run(library, main)


def test_a_map_whose_task_is_cancelled_is_stopped(library, shared_site, tmp_path):
    async def main():
        async with AsyncClient(shared_site.address) as client:
            async with anyio.create_task_group() as group:

                async def read():
                    async for _ in client.map(make_files_until, [tmp_path] * 3, "def"):
                        pass

                group.start_soon(read)
                await until((tmp_path / "d.begun").exists)
                group.cancel_scope.cancel()
            assert await client.submit(square, 3) == 9  # the slots are free

    run(library, main)


def test_large_values_jobs_views_and_questions(library, shared_site):
    async def main():
        async with AsyncClient(shared_site.address) as client:
            book = await client.put(list(range(10)), name=f"book/{library}")
            view = client.options(name="valued", project="default")
            assert await view.submit(sum, book) == 45
            found = await client.object(f"book/{library}")
            assert found.digest == book.digest
            job = await view.submit_job(square, [1, 2])
            with anyio.fail_after(LIMIT_S):
                assert await anyio.to_thread.run_sync(lambda: list(job.results())) == [1, 4]
            assert (await client.ask("status"))["state"]
            futures = await client.persist({"x": 1, "y": (square, "x"), "z": (square, "y")}, "z")
            assert await futures["z"] == 1
            assert "AsyncClient" in repr(client)

    run(library, main)


def test_the_end_of_the_block_waits_for_calls_or_drops_them(library, shared_site, tmp_path):
    async def main():
        async with AsyncClient(shared_site.address) as client:
            late = client.submit(square, 3, 0.1)
        assert late.result(0) == 9
        with anyio.CancelScope() as scope:
            async with AsyncClient(shared_site.address) as client:
                dropped = client.submit(make_files_until, tmp_path, "g")
                await until((tmp_path / "g.begun").exists)
                scope.cancel()
                await anyio.sleep(LIMIT_S)
        await until(dropped.done)
        assert dropped.cancelled()

    run(library, main)


def test_a_wait_at_the_end_can_be_cancelled_too(library, shared_site, tmp_path):
    async def main():
        client = await AsyncClient(shared_site.address).connect()
        future = client.submit(make_files_until, tmp_path, "h")
        await until((tmp_path / "h.begun").exists)
        with anyio.move_on_after(0.05):
            await client.aclose()
        await until(future.done)

    run(library, main)


def test_what_needs_a_connection_says_so(library, tmp_path):
    async def main():
        client = AsyncClient(f"ipc://{tmp_path}/none.sock")
        with pytest.raises(RuntimeError, match="not connected"):
            client.submit(square, 1)
        await client.aclose()
        with pytest.raises(GatewayUnreachable):
            await AsyncClient(f"ipc://{tmp_path}/none.sock", connect_timeout_s=0.1).connect()

    run(library, main)
