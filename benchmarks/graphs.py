"""Graphs: chains, a fan-in, a map-reduce; beside lone tasks and Dask's threads in this process.

Nested calls: each waits for one like it, on fewer slots than calls.
"""

import contextlib
import time
import tracemalloc
from typing import Any

from benchmarks import ours
from benchmarks.data.object_peers import DASK_GRAPHS, RAY_GRAPHS, peer_contestant
from benchmarks.harness import BenchSeries, alternate, machine, ratio_notes, save
from federation import Client
from gateway.scheduler.graphs.core import TaskGraph
from gateway.scheduler.graphs.edges import Inputs, call_ranges

FAN_IN = 10_000
WIDTH = 1_000  # mapped tasks for each reduced one
BATCH = 1_000  # calls of a message
DEPTH = 6  # of nested calls
SLOTS = 2


def step(value: int) -> int:
    """Return the next number."""
    return value + 1


def other_step(value: int) -> int:
    """Return the next number: another function, so a job of its own."""
    return value + 1


def chain_rate(client: Client, length: int, *, fused: bool) -> float:
    """Return steps a second of a chain; calls of two functions in turn are not fused."""
    started_s = time.perf_counter()
    last: Any = 0
    for at in range(length):
        last = client.submit(step if fused or at % 2 else other_step, last)
    assert last.result() == length
    return length / (time.perf_counter() - started_s)


def fan_in_rate(client: Client, width: int) -> float:
    """Return tasks a second of a sum over so many tasks."""
    started_s = time.perf_counter()
    parts: list[Any] = [client.submit(step, at) for at in range(width)]
    assert client.submit(sum, parts).result() == width * (width + 1) // 2
    return width / (time.perf_counter() - started_s)


def descend(depth: int, again_s: float) -> int:
    """Wait for a call like this one, `depth` times in one another.

    `again_s` replaces the time after which a call that has come back itself asks for the next one.
    """
    from federation.engine.nested import helping

    helping.HELP_AGAIN_S = again_s  # type: ignore[misc]
    if not depth:
        return 0
    with Client() as client:
        return 1 + client.submit(descend, depth - 1, again_s).result()


def nested_times(client: Client, again_s: float, runs: int) -> list[float]:
    """Return the times of so many runs of nested calls, in seconds, in order of size."""
    found = []
    for _ in range(runs):
        started_s = time.perf_counter()
        assert client.submit(descend, DEPTH, again_s).result() == DEPTH
        found.append(time.perf_counter() - started_s)
    return sorted(found)


def dask_rates(length: int, width: int) -> list[ours.Row]:
    """Return the same by Dask's threads in this process; nothing where Dask is not installed."""
    with contextlib.suppress(ImportError):
        import dask.threaded  # type: ignore[import-not-found,unused-ignore]

        chain: dict[str, Any] = {"k0": (step, 0)}
        chain |= {f"k{at}": (step, f"k{at - 1}") for at in range(1, length)}
        started_s = time.perf_counter()
        assert dask.threaded.get(chain, f"k{length - 1}") == length
        chain_s = time.perf_counter() - started_s
        wide: dict[str, Any] = {f"p{at}": (step, at) for at in range(width)}
        wide["sum"] = (sum, list(wide))
        started_s = time.perf_counter()
        dask.threaded.get(wide, "sum")
        wide_s = time.perf_counter() - started_s
        return [
            ("floor", "chain", "steps/s", length / chain_s),
            ("floor", f"fan-in of {width:,}", "tasks/s", width / wide_s),
        ]
    return []


def submit_figures(client: Client, calls: int) -> list[ours.Row]:
    """Return what it costs a client to submit calls: processor time of this process."""
    began_s = time.process_time()
    first = [client.submit(step, at) for at in range(calls)]
    plain_s = time.process_time() - began_s
    began_s = time.process_time()
    second = [client.submit(step, each) for each in first]
    behind_s = time.process_time() - began_s
    for each in second:
        each.result()
    return [
        ("client", "submits", "calls/s", calls / plain_s),
        ("client", "submits of calls that wait for others", "calls/s", calls / behind_s),
    ]


def map_reduce(nodes: int) -> tuple[TaskGraph, list[tuple[str, int]]]:
    """Return the graph of a map-reduce, and the tasks of its layers.

    The reduced tasks wait for WIDTH mapped ones each, and one last task for all of these.
    """
    mapped = nodes * WIDTH // (WIDTH + 1)
    reduced = mapped // WIDTH
    graph = TaskGraph()
    second: list[Inputs] = [(("root", at, at + 1),) for at in range(BATCH)]
    for first in range(0, mapped, BATCH):
        rows = [((name, low + first, high + first),) for ((name, low, high),) in second]
        for part in call_ranges(first, rows[: mapped - first]):
            graph.add("map", part)
    for part in call_ranges(
        0, [(("map", at * WIDTH, at * WIDTH + WIDTH),) for at in range(reduced)]
    ):
        graph.add("reduce", part)
    for part in call_ranges(0, [(("reduce", 0, reduced),)]):
        graph.add("last", part)
    return graph, [("root", mapped), ("map", mapped), ("reduce", reduced)]


def core_figures(nodes: int) -> list[ours.Row]:
    """Return what a map-reduce of so many nodes costs a gateway's core: time, bytes, release."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    small, _ = map_reduce(nodes // 10)  # with tracemalloc it takes several times as long
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert small
    began_s = time.process_time()
    graph, layers = map_reduce(nodes)
    added_s = time.process_time() - began_s
    began_s = time.process_time()
    for name, total in layers:
        for first in range(0, total, BATCH):
            graph.ended(name, first, [b"v"] * min(BATCH, total - first))
    released_s = time.process_time() - began_s
    assert not graph.held_bytes
    return [
        ("core", f"map-reduce of {nodes:,}: taken in", "s", added_s),
        ("core", f"map-reduce of {nodes:,}: held", "bytes a node", held / (nodes // 10)),
        ("core", f"map-reduce of {nodes:,}: released", "nodes/s", nodes / released_s),
    ]


def graph_core(repeats: int, quick: bool) -> None:
    """Measure the core of graphs alone, in processor time of this process."""
    facts = machine()
    nodes = 100_000 if quick else 1_000_000
    notes = ["Processor time of one process: it depends less on what else runs."]
    save("graph_core", facts, alternate([lambda: core_figures(nodes)], repeats), notes)


def graphs(repeats: int, quick: bool) -> None:
    """Time chains with and without a message between their calls, a fan-in, and the core."""
    facts = machine()
    length, plain = (2_000, 200) if quick else (10_000, 1_000)
    nodes = 100_000 if quick else 1_000_000
    counts = [200 if quick else 300, FAN_IN]
    with (
        peer_contestant("Ray", RAY_GRAPHS, counts) as ray,
        peer_contestant("Dask", DASK_GRAPHS, counts) as dask,
        ours.BenchmarkSite(workers=1, slots=2) as site,
        Client(site.address) as client,
    ):

        def ours_run() -> list[ours.Row]:
            lone_s = sorted(ours.lone_times(client, 200))[100]
            unfused = chain_rate(client, plain, fused=False)
            fused = chain_rate(client, length, fused=True)
            return [
                ("gridfed", "lone task", "ms", lone_s * 1e3),
                ("gridfed", "chain of two functions in turn", "steps/s", unfused),
                ("gridfed", "the same, times a lone task", "ratio", unfused * lone_s),
                ("gridfed", "chain", "steps/s", fused),
                ("gridfed", "chain, against two functions in turn", "ratio", fused / unfused),
                ("gridfed", f"fan-in of {FAN_IN:,}", "tasks/s", fan_in_rate(client, FAN_IN)),
            ]

        others = [each.rows for each in (ray, dask) if each is not None]
        series: list[BenchSeries] = alternate(
            [
                lambda: dask_rates(length, FAN_IN),
                ours_run,
                *others,
                lambda: submit_figures(client, FAN_IN),
                lambda: core_figures(nodes),
            ],
            repeats,
        )
    notes = [
        "The floor is `dask.threaded.get`, where Dask is installed: threads of this process, which "
        "send no messages. `core` is the gateway's pure core of graphs alone; "
        "times of the core and of submits are processor time of their process. `Ray` and `Dask` "
        "(distributed) have two workers, and the same function all along their chains.",
        "",
        *(ratio_notes(series, "gridfed", "Ray") if ray else ()),
        "",
        *(ratio_notes(series, "gridfed", "Dask") if dask else ()),
    ]
    save("graphs", facts, series, notes)


def nested(repeats: int, quick: bool) -> None:
    """Time nested calls that run in the tasks which wait for them."""
    from federation.engine.nested.helping import HELP_AGAIN_S, HELP_S

    facts = machine()
    runs = 5 if quick else 20
    with ours.BenchmarkSite(workers=1, slots=SLOTS) as site, Client(site.address) as client:

        def rows(again_s: float) -> list[ours.Row]:
            times_s = nested_times(client, again_s, runs)
            what = f"{DEPTH} calls in one another on {SLOTS} slots, asked back after"
            name = f"{what} {again_s * 1e3:g} ms"
            return [
                ("gridfed", name, "ms", times_s[len(times_s) // 2] * 1e3),
                ("gridfed", f"{name}, quickest", "ms", times_s[0] * 1e3),
            ]

        rows(HELP_AGAIN_S)  # warm: slots have loaded the client
        series = alternate([lambda: rows(HELP_S), lambda: rows(HELP_AGAIN_S)], repeats)
    notes = [
        f"Each call is asked back after {HELP_S * 1e3:g} ms, and one whose waiting task runs in "
        "another already after the time that the row names. Each makes a client of its own."
    ]
    save("nested", facts, series, notes)
