"""The part of the written data that a simulated disk keeps."""

from collections.abc import Callable

from gateway.ledger.db.jobs.records import JobOpenedRecord
from simulations.world.clock import Clock
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore


def opened(job: str) -> JobOpenedRecord:
    return JobOpenedRecord(job, "n", "ann", "p", False, b"", 1.0)


def open_store(disk: Disk, clock: Clock, commit_s: float = 1.0) -> MemoryStore:
    def later(wait_s: float, call: Callable[[], None]) -> None:
        clock.after(wait_s, call)

    return MemoryStore(disk, later, lambda _: commit_s)


def pass_s(clock: Clock, seconds: float) -> None:
    clock.run(clock.now_s + seconds, lambda: False)


def test_what_is_queued_when_a_process_dies_is_neither_kept_nor_acknowledged() -> None:
    disk, clock, done = Disk(), Clock(), []
    store = open_store(disk, clock)
    store.write([opened("a")], True, lambda: done.append("a"))
    store.kill()
    pass_s(clock, 5.0)
    assert (done, MemoryStore(disk).jobs.latest(9)) == ([], [])


def test_a_power_cut_takes_what_was_committed_after_the_last_durable_write() -> None:
    disk, clock = Disk(), Clock()
    store = open_store(disk, clock)
    for job, durable in (("a", False), ("b", True), ("c", False)):
        store.write([opened(job)], durable, lambda: None)
        pass_s(clock, 2.0)
    assert len(store.jobs.latest(9)) == 3
    disk.cut_power()
    assert {row.job for row in MemoryStore(disk).jobs.latest(9)} == {"a", "b"}


def test_what_queues_during_a_commit_goes_into_the_next() -> None:
    disk, clock, done = Disk(), Clock(), list[tuple[str, float]]()
    store = open_store(disk, clock)
    for job in "abc":
        store.write([opened(job)], False, lambda job=job: done.append((job, clock.now_s)))
    pass_s(clock, 5.0)
    assert done == [("a", 1.0), ("b", 2.0), ("c", 2.0)]
