"""Objects on one host: put, use by tasks, results that stay; beside plain copies and messages."""

import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import ours
from benchmarks.data.object_peers import RAY, earlier, peer_contestant
from benchmarks.harness import alternate, machine, ratio_notes, save
from federation import Client
from federation.objects.segments import Segment, create
from gateway.objects.spilling import spill

NUMBERS = 12_500_000  # of 8 bytes: 100 MB
QUICK = NUMBERS // 10
IN_MESSAGE = 5_000_000  # 40 MB: messages take 64 MiB
MB = 1_000_000
READY_S = 60.0


class LocalPoolSite:
    """A gateway with a local pool, whose slots read objects; a context manager."""

    def __init__(self, slots: int = 1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gridfed-bench-")
        self.address = f"ipc://{self._folder.name}/gateway.sock"
        command = [sys.executable, "-m", "gateway", "up", "--slots", str(slots)]
        state = ["--state", f"{self._folder.name}/state"]
        self._gateway = ours.start([*command, "--listen", self.address, *state])

    def __enter__(self) -> "LocalPoolSite":
        until_s = time.monotonic() + READY_S
        while not os.path.exists(self.address.removeprefix("ipc://")):
            assert time.monotonic() < until_s, "the gateway did not start in time"
            time.sleep(0.02)
        return self

    def used_s(self) -> float:
        """Return the processor time of this process, the gateway and all that it has started."""
        found = 0.0
        gateway = psutil.Process(self._gateway.pid)
        for each in (psutil.Process(), gateway, *gateway.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                found += sum(each.cpu_times()[:2])
        return found

    def __exit__(self, *_: object) -> None:
        self._gateway.terminate()
        self._gateway.wait(READY_S)
        self._folder.cleanup()


def loaded(array: Any) -> float:
    """Return how long this process takes to load its argument again: seconds, the best of five."""
    from federation.objects import references

    (digest,) = _digests_here()
    times = []
    for _ in range(5):
        started_s = time.perf_counter()
        references.fill(digest)
        times.append(time.perf_counter() - started_s)
    return min(times)


def _digests_here() -> list[bytes]:
    """Return the digests of the objects of the slot that this is."""
    from federation.objects import references

    slot: Any = references._source.__self__  # type: ignore[attr-defined]
    largest = max(slot._objects, key=lambda each: len(slot._objects[each]))
    return [largest]


def total(array: Any) -> float:
    """Return one number of an array: reading all would measure the memory and not the way."""
    return float(array[0])


def made(count: int, value: float) -> Any:
    """Return an array that is new at each call."""
    return np.full(count, value)


def objects(repeats: int, quick: bool) -> None:
    """Time a put of 100 MB, tasks on it, and a result of 100 MB, beside copies and messages."""
    facts = machine()
    count = QUICK if quick else NUMBERS
    large, small = np.random.default_rng(1).random(count), np.arange(IN_MESSAGE, dtype=float)
    mb = large.nbytes // MB
    kinds = multiprocessing.get_context("spawn")
    counts = [count, IN_MESSAGE]
    folder = os.environ.get("GRIDFED_BENCH_BEFORE")
    with (
        peer_contestant("Ray", RAY, counts) as ray,
        earlier(Path(folder) if folder else None, counts) as before,
        LocalPoolSite() as site,
        Client(site.address) as client,
    ):
        whole = client.options(results="value")
        kept = client.options(results="auto")
        client.submit(total, client.put(small)).result()
        with ProcessPoolExecutor(1, mp_context=kinds) as pool:
            pool.submit(total, small[:1]).result()

            def floor() -> list[ours.Row]:
                return [
                    ("floor", f"put of {mb} MB", "s", _timed(large.copy)),
                    ("floor", f"result of {mb} MB", "s", _timed(_call(pool, made, count, 1.0))),
                    ("floor", "argument of 40 MB", "s", _timed(_call(pool, total, small))),
                ]

            def by_reference() -> list[ours.Row]:
                large[0] = time.perf_counter()  # another object each time
                small[0] = large[0]
                rows: list[ours.Row] = []
                refs: list[Any] = []
                used_s = site.used_s()
                taken_s = _timed(lambda: refs.append(client.put(large)))
                used_s = site.used_s() - used_s
                rows.append(("gridfed", f"put of {mb} MB", "s", taken_s))
                rows.append(("gridfed", f"put of {mb} MB, processor time", "s", used_s))
                for which in ("first task on it", "next task on it"):
                    rows.append(("gridfed", which, "s", _timed(_call(client, total, refs[0]))))
                rows.append(("gridfed", "lone task", "s", _timed(_call(client, abs, -1))))
                left_s = _timed(_call(kept, made, count, large[0]))
                rows.append(("gridfed", f"result of {mb} MB", "s", left_s))
                argument_s = _timed(_call(client, total, small))
                rows.append(("gridfed", "argument of 40 MB", "s", argument_s))
                small[1] = large[0]
                put_s = _timed(lambda: client.submit(total, client.put(small)).result())
                rows.append(("gridfed", "argument of 40 MB, by put", "s", put_s))
                load_s = client.submit(loaded, refs[0]).result()
                rows.append(("gridfed", f"{mb} MB loaded in a slot", "s", load_s))
                return rows

            def by_message() -> list[ours.Row]:
                taken_s = _timed(_call(whole, total, small))
                back_s = _timed(_call(whole, made, IN_MESSAGE, large[0]))
                return [
                    ("in messages", "argument of 40 MB", "s", taken_s),
                    ("in messages", "result of 40 MB", "s", back_s),
                ]

            with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:

                def by_disk() -> list[ours.Row]:
                    return list(_disk_rows(large, Path(folder)))

                others = [each.rows for each in (ray, before) if each is not None]
                runs = [floor, by_reference, *others, by_message, by_disk]
                series = alternate(runs, repeats)
    notes = [
        "The floor of a put is a plain copy of the array in this process; of arguments and results "
        "it is ProcessPoolExecutor. `in messages` is gridfed without objects. The floor of a spill "
        "to disk is a plain write of the array to a file of the same folder; `mapped from disk` is "
        "the time until a spilled object can be read. `before` is the checkout that "
        "GRIDFED_BENCH_BEFORE names: commit af22feb, from before objects. Processor time is that "
        "of its processes together, in steps of 10 ms. Ray puts without a hash, and into "
        "memory that earlier objects have had, which costs no new pages.",
        "",
        *(ratio_notes(series, "gridfed", "Ray") if ray else ()),
        "",
        *(ratio_notes(series, "gridfed", "before") if before else ()),
    ]
    save("objects", facts, series, notes)


def _disk_rows(array: Any, folder: Path) -> Iterator[ours.Row]:
    """Time a spill of an array and its mapping, beside a plain write."""
    size = array.nbytes
    segment = create(size)
    segment.write([(0, memoryview(array).cast("B"))])

    def write() -> None:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(memoryview(array))

    yield "floor", f"spill of {size // MB} MB", "s", _timed(write)
    files: list[Segment] = []

    def spilled() -> None:
        files.append(Segment(spill(segment.descriptor, size, folder), size))

    yield "gridfed", f"spill of {size // MB} MB", "s", _timed(spilled)
    yield "gridfed", "mapped from disk", "s", _timed(lambda: total(files[0].view()[:8]))
    files[0].close()
    segment.close()


def _call(executor: Any, *call: Any) -> Callable[[], Any]:
    return lambda: executor.submit(*call).result()


def _timed(work: Callable[[], Any]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s
