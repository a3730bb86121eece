"""Many worlds, one after the other or several at a time, until one breaks."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing import get_context

from simulations.bugs import may_show, planted
from simulations.draw import draw_plan
from simulations.world.world import World, WorldRun

BATCH = 8  # worlds that a process takes at a time


@dataclass(frozen=True, slots=True)
class SeedVerdict:
    """The result of one seed; `broken` is empty when all invariants held."""

    seed: int
    broken: str
    events: int
    virtual_s: float


def run_seed(seed: int, bug: str = "") -> WorldRun:
    """Run the random world of a seed, with a planted bug if one is named."""
    with planted(bug):
        return World(draw_plan(seed), seed).run()


def judge(seed: int, bug: str = "") -> SeedVerdict:
    """Run a seed; an exception is as bad as a broken invariant."""
    try:
        run = run_seed(seed, bug)
    except Exception as error:  # noqa: BLE001 - the whole point is to report it with its seed
        return SeedVerdict(seed, f"{type(error).__name__}: {error}", 0, 0.0)
    return SeedVerdict(seed, str(run.broken or ""), run.events, run.seconds)


def _judge_all(seeds: list[int]) -> list[SeedVerdict]:
    return [judge(seed) for seed in seeds]


def swarm(
    seeds: Iterable[int], processes: int, until_s: float | None = None
) -> Iterator[SeedVerdict]:
    """Judge seeds in order, in so many processes, until time.monotonic() is `until_s`."""
    if processes == 1:
        for seed in seeds:
            if until_s is not None and time.monotonic() >= until_s:
                return
            yield judge(seed)
        return
    left = iter(seeds)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        while until_s is None or time.monotonic() < until_s:
            batches = [list(islice(left, BATCH)) for _ in range(processes * 2)]
            if not batches[0]:
                return
            for verdicts in pool.map(_judge_all, filter(None, batches)):
                yield from verdicts


def find(bug: str, seeds_max: int, first: int = 0) -> SeedVerdict | None:
    """Return the first seed that shows a planted bug, or None after so many worlds.

    The search uses only worlds that can show the bug.
    """
    seeds = (seed for seed in count(first) if may_show(bug, draw_plan(seed)))
    found = (judge(seed, bug) for seed in islice(seeds, seeds_max))
    return next((verdict for verdict in found if verdict.broken), None)
