"""When a gateway looks at all objects for garbage in cycles."""

import gc

import trio
import trio.testing

from gateway.runtime.garbage import (
    GROWN_LOOKS,
    GROWTH,
    GROWTH_BYTES,
    IDLE_EVENTS,
    NEVER,
    Garbage,
    collect_when_idle,
)

RESIDENT = 100 << 20
LARGE = int(GROWTH * RESIDENT) + GROWTH_BYTES


def test_it_is_due_once_nothing_happens_and_there_may_be_some():
    garbage = Garbage(RESIDENT)
    busy = 1_000
    assert not garbage.is_due(GROWN_LOOKS, busy, RESIDENT)
    assert not garbage.is_due(GROWN_LOOKS - 1, busy + IDLE_EVENTS, RESIDENT)
    assert garbage.is_due(GROWN_LOOKS, busy + 2 * IDLE_EVENTS, RESIDENT)
    assert not garbage.is_due(GROWN_LOOKS, busy + 3 * IDLE_EVENTS + 1, RESIDENT)


def test_under_load_it_is_due_when_memory_has_grown_much_since_the_last_look():
    garbage = Garbage(RESIDENT)
    assert not garbage.is_due(GROWN_LOOKS, 1_000, LARGE)
    assert garbage.is_due(GROWN_LOOKS, 2_000, LARGE + 1)
    garbage.looked(LARGE)
    assert not garbage.is_due(GROWN_LOOKS, 3_000, LARGE + 1)


class Cycle:
    """Garbage that only a look finds."""

    def __init__(self, freed):
        self.itself = self
        self.freed = freed

    def __del__(self):
        self.freed.append(self)


def test_old_garbage_is_collected_when_nothing_happens_and_python_does_it_no_more(monkeypatch):
    before, freed = gc.get_threshold(), []
    monkeypatch.setattr(gc, "freeze", lambda: None)  # it would hold for the tests to come
    looks = iter([GROWN_LOOKS])
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, next(looks, 0)))

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect_when_idle, lambda: 0)
            await trio.testing.wait_all_tasks_blocked()
            assert gc.get_threshold()[2] == NEVER
            Cycle(freed)
            await trio.sleep(1.5)
            assert freed
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert gc.get_threshold() == before
