"""One process that simulates many agents: takes assignments, and reports after the simulated time.

    python -m benchmarks.load.agents ADDRESS AGENTS SLOTS TASK_S

A task takes TASK_S in a slot; 0: every assignment is reported at once, as if it had taken 5 µs a
task. Tasks that begin together and end together are one report.
"""

import sys
from collections import deque
from functools import partial
from heapq import heappop, heappush
from typing import Any

import trio

from benchmarks.load.sessions import LoadSession, play
from federation.messages.messages import Assign, Recall, Report, Returned
from federation.sessions.handshake import Opened
from gateway.sessions.conversation import Lapsed

EMPTY_NS = 5_000
COME_IN_TOGETHER, COME_IN_S = 16, 0.05


class LoadAgent:
    """One agent with so many slots; the contents of tasks do not matter."""

    def __init__(self, crew: "LoadAgents", number: int) -> None:
        self._crew = crew
        self._waiting: deque[list[int]] = deque()  # assignment, first, stop
        self._life = 0
        self._free = crew.slots
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        about = {"slots": crew.slots, "tags": {}, "pool": "", "python": python}
        self.session = LoadSession(crew.address, "worker", f"agent-{number}", about, self._hear)

    def _hear(self, messages: list[Any]) -> None:
        for message in messages:
            match message:
                case Assign():
                    stop = message.first + len(message.arguments)
                    self._waiting.append([message.assignment, message.first, stop])
                    self._crew.assigned += len(message.arguments)
                    self._crew.assignments += 1
                case Recall():
                    self._give_back(message)
                case Lapsed() | Opened(resumed=False):
                    self._crew.lapses += isinstance(message, Lapsed)
                    self._waiting.clear()
                    self._life += 1
                    self._free = self._crew.slots
        self._begin()
        self.session.flush()

    def _give_back(self, recall: Recall) -> None:
        given: list[list[int]] = []
        for each in list(self._waiting):
            low, high = max(each[1], recall.first), min(each[2], recall.stop)
            # From the end alone: a gateway asks for a tail.
            if each[0] == recall.assignment and low < high == each[2]:
                given.append([low, high])
                each[2] = low
                if each[1] == low:
                    self._waiting.remove(each)
        self.session.post(Returned(recall.assignment, given))

    def _begin(self) -> None:
        """Begin tasks that have a slot."""
        crew = self._crew
        while self._waiting and (self._free or not crew.task_s):
            assignment, first, stop = piece = self._waiting[0]
            tasks = stop - first if not crew.task_s else min(self._free, stop - first)
            piece[1] += tasks
            if piece[1] == stop:
                self._waiting.popleft()
            if crew.task_s:
                self._free -= tasks
                crew.end_later(partial(self._end, self._life, assignment, first, tasks))
            else:
                self._report(assignment, first, tasks, EMPTY_NS * tasks)

    def _end(self, life: int, assignment: int, first: int, tasks: int) -> None:
        if life != self._life:
            return  # its lease has ended meanwhile
        self._free += tasks
        self._crew.slot_s += tasks * self._crew.task_s
        self._report(assignment, first, tasks, round(self._crew.task_s * 1e9) * tasks)
        self._begin()
        self.session.flush()

    def _report(self, assignment: int, first: int, tasks: int, wall_ns: int) -> None:
        values = [b"\xc0"] * tasks
        report = Report(assignment, first, values, [], [], wall_ns, wall_ns, 1 << 20)
        self.session.post_report(report)
        self._crew.reported += tasks


class LoadAgents:
    """All agents of the process, and their counts."""

    def __init__(self, address: str, agents: int, slots: int, task_s: float) -> None:
        self.address, self.slots, self.task_s = address, slots, task_s
        self.assigned = self.assignments = self.reported = self.lapses = 0
        self.slot_s = 0.0  # of ended tasks
        self._ends: list[tuple[float, int, Any]] = []
        self._count = 0
        self._more = trio.Event()
        self._agents = [LoadAgent(self, number) for number in range(agents)]

    def end_later(self, end: Any) -> None:
        """Schedule a callback for when its task is done."""
        self._count += 1
        heappush(self._ends, (trio.current_time() + self.task_s, self._count, end))
        self._more.set()

    async def run(self) -> None:
        """Run all agents."""
        async with trio.open_nursery() as nursery:
            for number, each in enumerate(self._agents):
                nursery.start_soon(each.session.run)
                if number % COME_IN_TOGETHER == 0:  # a gateway limits pipes without a session
                    await trio.sleep(COME_IN_S)
            while True:
                while self._ends and self._ends[0][0] <= trio.current_time():
                    heappop(self._ends)[2]()
                if self._ends:
                    await trio.sleep_until(self._ends[0][0])
                else:
                    self._more = trio.Event()
                    await self._more.wait()

    def figures(self) -> dict[str, Any]:
        """Return the counts so far."""
        return {
            "open": sum(each.session.is_open for each in self._agents),
            "assigned": self.assigned,
            "assignments": self.assignments,
            "reported": self.reported,
            "lapses": self.lapses,
            "slot_s": self.slot_s,
        }


if __name__ == "__main__":
    chosen = LoadAgents(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    play(chosen.run, chosen.figures)
