"""Taking tasks back: from the agent's queue, from slots that are at work, and by force."""

import ctypes
import os
import random
import sys
import time

import cloudpickle
import pytest

from federation.messages.messages import Recall, Returned
from gateway.worker.agent import Agent
from gateway.worker.isolation.host_environments import HostEnvironments
from gateway.worker.pieces import AssignmentTerms
from gateway.worker.settings import AgentSettings
from gateway.worker.slot.cells import NO_LIMIT

pytestmark = pytest.mark.real

# The functions of these tests are not installed where the slots look.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def holds_interpreter(mark, fifo):
    """In C, with the interpreter's lock: nothing else runs in this process until it opens."""
    open(mark, "w").close()
    os.close(ctypes.PyDLL(None).open(os.fsencode(fifo), os.O_RDONLY))
    return "held"


def waits_for(mark, path):
    open(mark, "w").close()
    while not path.exists():
        time.sleep(0.005)
    return "waited"


def act(what, *args):
    return what(*args) if callable(what) else what


def test_recalled_tasks_never_run(gateway, start_agent, tmp_path):
    start_agent(gateway)
    worker = gateway.worker()
    gateway.assign(worker, act, [(1,)] * 200).wait()
    mark, fifo, ran = tmp_path / "held", tmp_path / "fifo", tmp_path / "ran"
    os.mkfifo(fifo)
    calls = [(holds_interpreter, mark, fifo)] + [(ran.touch,)] * 50
    work = gateway.assign(worker, act, calls)
    gateway.wait_for(mark.exists)
    work.recall(0, 1000)
    assert work.wait_answer() == [[1, 51]]
    assert not work.reports
    fifo.open("w").close()
    assert work.wait().values() == {0: "held"}
    assert gateway.assign(worker, act, [(2,)]).wait().values() == {0: 2}
    assert not ran.exists()


def test_part_of_an_assignment(gateway, start_agent, tmp_path):
    start_agent(gateway)
    worker = gateway.worker()
    mark, go = tmp_path / "mark", tmp_path / "go"
    work = gateway.assign(worker, act, [(waits_for, mark, go)] + [(n,) for n in range(1, 40)])
    gateway.wait_for(mark.exists)
    work.recall(10, 20)
    assert work.wait_answer() == [[10, 20]]
    go.touch()
    assert sorted(work.wait().values()) == [*range(10), *range(20, 40)]


@pytest.mark.parametrize("kill", [False, True])
def test_an_answer_always_comes(gateway, start_agent, kill):
    start_agent(gateway)
    worker = gateway.worker()
    work = gateway.assign(worker, act, [(1,)]).wait()
    work.recall(0, 1, kill=kill)
    assert work.wait_answer() == []
    gateway.say(worker, Recall(999, 0, 5, kill))
    answer = gateway.wait_for(lambda: [m for m in worker.all(Returned) if m.assignment == 999])
    assert answer[0].ranges == []


def test_with_force_what_runs_is_killed_and_reported(gateway, start_agent, tmp_path):
    agent = start_agent(gateway, 2)
    worker = gateway.worker()
    marks, go = [tmp_path / "a", tmp_path / "b"], tmp_path / "go"
    other = gateway.assign(worker, act, [(waits_for, marks[0], go)])
    gateway.wait_for(marks[0].exists)
    work = gateway.assign(worker, act, [(waits_for, marks[1], tmp_path / "never")] + [(1,)] * 20)
    gateway.wait_for(marks[1].exists)
    work.recall(0, 1000, kill=True)
    work.wait()
    assert work.wait_answer() == [[1, 21]]
    assert {task: fail[0] for task, fail in work.failures().items()} == {0: "cancelled"}
    go.touch()
    assert other.wait().values() == {0: "waited"}
    assert gateway.assign(worker, act, [(1,)] * 3).wait().failures() == {}
    assert agent.is_alive


def test_force_spares_what_was_not_asked_for(gateway, start_agent, tmp_path):
    start_agent(gateway)
    worker = gateway.worker()
    gateway.assign(worker, act, [(1,)] * 200).wait()
    mark, go = tmp_path / "mark", tmp_path / "go"
    # The first ones are done, and wait to be reported with the one that runs.
    work = gateway.assign(worker, act, [(n,) for n in range(5)] + [(waits_for, mark, go), (6,)])
    gateway.wait_for(mark.exists)
    work.recall(0, 5, kill=True)
    assert work.wait_answer() == []
    go.touch()
    work.wait()
    assert work.values()[5] == "waited"
    assert work.values()[6] == 6


def test_what_waits_behind_a_long_task_goes_to_a_slot_that_is_free(gateway, start_agent, tmp_path):
    start_agent(gateway, 2)
    worker = gateway.worker()
    gateway.assign(worker, act, [(1,)] * 400).wait()
    marks, go = [tmp_path / "a", tmp_path / "b"], tmp_path / "go"
    # Were they not moved, tasks behind either of these would wait until both are released.
    calls = [(n,) for n in range(400)]
    calls[3] = (waits_for, marks[0], go)
    work = gateway.assign(worker, act, calls)
    gateway.wait_for(lambda: len(work.reported()) >= 396)
    go.touch()
    assert work.wait().failures() == {}


def test_recalls_at_any_time_lose_and_double_nothing(gateway, start_agent, tmp_path):
    """The worker's promise under fire: each task is reported once or returned once."""
    start_agent(gateway, 2)
    worker = gateway.worker()
    folder = tmp_path / "runs"
    folder.mkdir()

    def runs(n, pause_s):
        with open(folder / str(n), "a") as file:
            file.write("x")
        if pause_s:
            time.sleep(pause_s)
        return n

    chance = random.Random(7)
    works, count = [], 0
    for _ in range(60):
        calls = [(count + n, chance.choice([0, 0, 0, 0.001, 0.01])) for n in range(60)]
        work = gateway.assign(worker, runs, calls, first=count)
        works.append(work)
        count += 60
        if chance.random() < 0.7:
            low = work.first + chance.randrange(60)
            chance.choice(works).recall(0, count) if chance.random() < 0.3 else None
            work.recall(low, low + chance.randrange(1, 60))
        for _ in range(chance.randrange(4)):
            gateway.pump(0.004)
    returned = set()
    for work in works:
        work.wait()
        for first, stop in work.returned:
            returned.update(range(first, stop))
    done = {task: value for work in works for task, value in work.values().items()}
    assert done == {task: task for task in range(count) if task not in returned}
    ran = {int(path.name): path.read_text() for path in folder.iterdir()}
    assert set(ran) == set(done), "a task that was returned had run"
    assert set(ran.values()) == {"x"}, "a task ran twice"


class SlotOnPaper:
    """As much of a slot's process as taking back needs."""

    started = 0
    limited = False

    def limit(self, number: int = NO_LIMIT) -> None:
        self.limited = number != NO_LIMIT


class Later:
    """A nursery whose tasks are started when the test says so."""

    def __init__(self):
        self.tasks = []

    def start_soon(self, function, *args):
        self.tasks.append((function, args))


async def test_a_recall_that_finds_a_slot_through_with_its_work_leaves_it_free():
    agent = Agent(
        AgentSettings("ipc:///nowhere", "w", "local", 1), print, HostEnvironments(None, 0, print)
    )
    agent._nursery, process = Later(), SlotOnPaper()
    agent._processes.append(process)
    task_book = agent._task_book
    (slot,) = task_book.slots
    slot.is_ready = True
    task_book.known.add(b"f")
    task_book._durations.learn(b"f", 1, 1000)
    task_book.assign(AssignmentTerms(1, "job", b"f", None, False), 0, [b"x"] * 3)
    list(task_book.feed())  # all three are at the slot, which is at the first of them
    agent._recalled(Recall(1, 0, 3, False))
    ((recall, args),) = agent._nursery.tasks
    task_book.report(slot, 0, 3, 3000)
    task_book.finish(slot)
    await recall(*args)
    assert slot.has_room
    assert not process.limited
