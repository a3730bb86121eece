"""The contract suite for engines of delegating grids, for ours and for third parties'.

    from gateway.grids.engine_checks import ENGINE_CHECKS, SLOT_CHECKS, Stage

    @pytest.mark.parametrize("check", [*ENGINE_CHECKS, *SLOT_CHECKS])
    async def test_my_engine(check):
        with trio.fail_after(30):
            await check(Stage(MyEngine(...), seal=cloudpickle.dumps, unseal=cloudpickle.loads))

Each begins with an engine that does not run yet, needs two slots of it, and leaves it ended. It
fails with an assertion that states the promise. SLOT_CHECKS are for engines whose hosts run calls
as slots do, in processes; KEEPING_CHECKS for those that can leave their parcels at work and find
them again (`why_nothing_is_kept` explains why they are not for one); those of ENGINE_CHECKS hold
for all.
"""

import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from gateway.grids.delegating import (
    Broken,
    Cancelled,
    Done,
    Ended,
    Engine,
    Found,
    Keeping,
    News,
    Parcel,
    Room,
)


def double(value: Any) -> Any:
    """A function for parcels: returns twice its argument."""
    print("doubles", value if isinstance(value, int) else "it")  # noqa: T201 - prints travel
    return value * 2


def fail(text: str) -> None:
    """A function that fails."""
    raise ValueError(text)


def nap(wait_s: float) -> float:
    """A function that takes a given time."""
    time.sleep(wait_s)
    return wait_s


def leave(code: int) -> None:
    """A function that takes its slot down."""
    os._exit(code)


@dataclass
class Stage:
    """An engine under test.

    Attributes:
        seal: pickles, by value where needed.
        unseal: unpickles a result.
        next_life: opens the engine of a later process, in the same Home; only for those that are
            Keeping.
    """

    engine: Engine
    seal: Callable[[Any], bytes]
    unseal: Callable[[bytes], Any]
    next_life: Callable[[], Engine] | None = None
    told: list[News] = field(default_factory=list)
    _more: trio.Event = field(default_factory=trio.Event)
    _parcels: int = 0
    _put: set[bytes] = field(default_factory=set)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the engine; enter the block once it has slots, and end it afterwards."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.engine.run, self._hear)
            await self.until(
                lambda: any(isinstance(each, Room) and each.slots for each in self.told)
            )
            yield
            nursery.cancel_scope.cancel()

    def _hear(self, news: News) -> None:
        self.told.append(news)
        self._more.set()

    async def until(self, found: Callable[[], bool]) -> None:
        """Wait until the news make a condition true."""
        while not found():
            await self._more.wait()
            self._more = trio.Event()

    def send(self, function: Callable[..., Any], *calls: Any, **terms: Any) -> str:
        """Send a parcel of calls with one argument each; return its name."""
        body = self.seal(function)
        digest = hashlib.sha256(body).digest()
        if digest not in self._put:
            self._put.add(digest)
            self.engine.put(digest, body)
        self._parcels += 1
        name = f"check-1-{self._parcels}"
        arguments = [self.seal((each,)) for each in calls]
        terms.setdefault("first", self._parcels)
        self.engine.send(Parcel(name, "job", digest, arguments, **terms))
        return name

    def forget_functions(self) -> None:
        """Forget sent functions, for a new engine without any."""
        self._put.clear()

    def ends(self, name: str) -> list[Ended]:
        """Return the reported ends of a parcel; only the first counts."""
        return [each for each in self.told if isinstance(each, Ended) and each.parcel == name]

    async def end(self, name: str) -> Ended:
        """Wait for a parcel's end."""
        await self.until(lambda: bool(self.ends(name)))
        assert not self.engine.holds(name), "the engine holds a parcel whose end it has reported"
        return self.ends(name)[0]

    async def done(self, name: str) -> Done:
        """Wait for a parcel to be done."""
        end = await self.end(name)
        assert isinstance(end, Done), f"{name} did not run: {end}"
        return end

    def values(self, done: Done) -> list[Any]:
        """Return the results; None where a call failed."""
        failed = {failure[0] for failure in done.failures}
        return [None if at in failed else self.unseal(v) for at, v in enumerate(done.values)]


Check = Callable[[Stage], Awaitable[None]]


async def calls_run_in_order(stage: Stage) -> None:
    """Results are in order; a failing call fails alone, with its text; time is counted."""
    async with stage.opened():
        done = await stage.done(stage.send(double, *range(5)))
        assert stage.values(done) == [0, 2, 4, 6, 8]
        assert done.wall_ns > 0, "the reported time of work must be above zero"
        done = await stage.done(stage.send(fail, "no bread"))
        ((at, kind, text, _),) = done.failures
        assert (at, kind) == (0, "error")
        assert "no bread" in text


async def each_parcel_ends_once(stage: Stage) -> None:
    """Each of many parcels of two functions is done, even if news are repeated."""
    async with stage.opened():
        names = [stage.send(double, n) for n in range(15)]
        names += [stage.send(nap, 0.001 * n) for n in range(15)]
        ends = [await stage.done(name) for name in names]
        assert [stage.values(end)[0] for end in ends[:15]] == [2 * n for n in range(15)]
        told = [each for each in stage.told if not isinstance(each, Room)]
        assert {each.parcel for each in told} == set(names), "the engine reported an unknown parcel"


async def large_calls_travel(stage: Stage) -> None:
    """Eight megabytes travel there, and sixteen back."""
    async with stage.opened():
        large = os.urandom(8 << 20)
        done = await stage.done(stage.send(double, large))
        assert stage.values(done) == [large * 2], "bytes were changed in transit"


async def what_is_cancelled_ends(stage: Stage) -> None:
    """Queued and running parcels end when cancelled, and their slots are free again."""
    async with stage.opened():
        names = [stage.send(nap, 600.0) for _ in range(8)]
        assert all(map(stage.engine.holds, names))
        stage.engine.cancel(["check-1-999"], running=True)
        stage.engine.cancel(names, running=True)
        for name in names:
            assert isinstance(await stage.end(name), Cancelled), "the parcel was not cancelled"
        assert stage.values(await stage.done(stage.send(double, 4))) == [8]


async def what_has_begun_is_left(stage: Stage) -> None:
    """Cancelling only unstarted parcels either takes them back, or lets them run to their end."""
    async with stage.opened():
        names = [stage.send(nap, 0.2) for _ in range(6)]
        stage.engine.cancel(names, running=False)
        for name in names:
            assert isinstance(await stage.end(name), Done | Cancelled)


async def it_runs_again(stage: Stage) -> None:
    """An engine that has ended holds nothing, and can be run again with its old functions."""
    async with stage.opened():
        name = stage.send(nap, 600.0)
        await stage.done(stage.send(double, 1))
    assert not stage.engine.holds(name), "the engine holds a parcel that no longer runs"
    stage.told.clear()
    async with stage.opened():
        assert stage.values(await stage.done(stage.send(double, 2))) == [4]


def why_nothing_is_kept(engine: Engine) -> str:
    """Return why KEEPING_CHECKS are not for an engine, to skip them; empty if they are."""
    if not isinstance(engine, Keeping):
        return "the engine is not Keeping: its parcels start again after a restart"
    if not (engine.take_up_s and engine.detaches):
        return "the engine's settings keep nothing when its process is stopped"
    return ""


async def what_was_left_is_found(stage: Stage) -> None:
    """Parcels left at work by a stopped process are Found by the next, run on, and are reported."""
    assert stage.next_life is not None, "a Stage for a Keeping engine needs next_life"
    async with stage.opened():
        wait_s, long = 0.35, ""
        while not long or stage.ends(long):  # a slot may take its time to start
            wait_s *= 2
            long = stage.send(nap, wait_s, first=7)
            await stage.done(stage.send(nap, 0.0))  # sent after it
    assert not stage.ends(long), "the engine was told to stop, and continues"
    stage.told.clear()
    stage.engine = stage.next_life()
    stage.forget_functions()
    async with stage.opened():
        found = [each for each in stage.told if isinstance(each, Found)]
        assert [each.parcel for each in found] == [long], "the parcel was not found again"
        assert found[0].label.first == 7, "the parcel was found with another label"
        assert stage.values(await stage.done(long)) == [wait_s]
        assert stage.values(await stage.done(stage.send(nap, 0.0))) == [0.0]


async def limits_and_prints_are_a_slots(stage: Stage) -> None:
    """Time limits, oversized results, and prints behave as with a slot of our own."""
    async with stage.opened():
        done = await stage.done(stage.send(nap, 0.0, 600.0, 0.0, timeout_s=2.0))
        assert stage.values(done) == [0.0, None, 0.0]
        assert [failure[:2] for failure in done.failures] == [[1, "timeout"]]
        done = await stage.done(stage.send(double, "x" * 5000, result_bytes_max=4096))
        assert [failure[:2] for failure in done.failures] == [[0, "result"]]
        done = await stage.done(stage.send(double, 3, prints=True))
        assert [row[:2] for row in done.prints] == [[0, "doubles 3\n"]]


async def what_takes_a_slot_down_is_named(stage: Stage) -> None:
    """A call that ends its process fails as such; its neighbours run."""
    async with stage.opened():
        end = await stage.end(stage.send(leave, 3))
        if isinstance(end, Done):
            assert end.failures[0][1] == "crash"
            assert "3" in end.failures[0][2]
        else:
            assert isinstance(end, Broken)
        assert stage.values(await stage.done(stage.send(double, 4))) == [8]


ENGINE_CHECKS: Final[tuple[Check, ...]] = (
    calls_run_in_order,
    each_parcel_ends_once,
    large_calls_travel,
    what_is_cancelled_ends,
    what_has_begun_is_left,
    it_runs_again,
)
KEEPING_CHECKS: Final[tuple[Check, ...]] = (what_was_left_is_found,)
SLOT_CHECKS: Final[tuple[Check, ...]] = (
    limits_and_prints_are_a_slots,
    what_takes_a_slot_down_is_named,
)
