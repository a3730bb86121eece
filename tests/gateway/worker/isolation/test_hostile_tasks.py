"""Hostile tasks: their actions end their own slot at most."""

import os
import struct
import subprocess
import sys
import time

import cloudpickle
import msgpack
import pytest
import trio

from gateway.worker.agent import START_AGAIN_S, Agent
from gateway.worker.isolation import adoption, limits, strays
from gateway.worker.isolation.homes import BARE
from gateway.worker.isolation.launch import SlotLaunch
from gateway.worker.slot.cells import LIMIT, SINCE_NS, STARTED
from gateway.worker.slot.process import SlotProcess

pytestmark = pytest.mark.real

cloudpickle.register_pickle_by_value(sys.modules[__name__])

DEEP = 1100
# Subshells, each in the other; the innermost says that it is there, and waits for its end.
NESTED = "( " * DEEP + 'echo x > "$0"; read line' + "; : )" * DEEP


def says_to_its_agent(message):
    """As if the slot said it."""
    body = msgpack.packb(message)
    os.write(900, struct.pack("!I", len(body)) + body)


def good():
    return "good"


def pulses(worker):
    return [each for each in worker.heard if type(each).__name__ == "Pulse"]


def test_processes_below_each_other_without_end_are_looked_at(gateway, start_agent, tmp_path):
    agent = start_agent(gateway, 1, "--memory", str(8 << 30))
    worker = gateway.worker()
    there = str(tmp_path / "there")

    def nests():
        command = ["sh", "-c", NESTED, there]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            while not os.path.exists(there + ".seen"):
                time.sleep(0.05)
            process.stdin.close()
        return "good"

    work = gateway.assign(worker, nests, [()])
    gateway.wait_for(lambda: os.path.exists(there))
    seen = len(pulses(worker))
    gateway.wait_for(lambda: len(pulses(worker)) > seen + 1 or not agent.is_alive)
    (tmp_path / "there.seen").touch()
    assert work.wait().values() == {0: "good"}
    assert agent.is_alive


@pytest.mark.parametrize(
    "message",
    [
        lambda: ["ready"],
        lambda: ["part", 0, [b""], [], [], 1 << 62, 0, 0, True],
        lambda: ["part", 0, [b""], [[0, "error", "x" * (1 << 18), b""]], [], 1, 0, 0, True],
        lambda: ["part", 0, [b""], [], [[0, "x" * (1 << 18)]], 1, 0, 0, True],
        lambda: ["part", 0, [bytes(3 << 20)], [], [], 1, 0, 0, True],
    ],
    ids=["ready", "figure", "failure", "print", "value"],
)
def test_what_is_said_in_a_slots_name_ends_that_slot(open_gateway, start_agent, message):
    gateway = open_gateway(message_bytes_max=2 << 20)
    agent = start_agent(gateway)
    worker = gateway.worker()

    def forges():
        says_to_its_agent(message())
        time.sleep(600)

    work = gateway.assign(worker, forges, [()])
    assert {kind for kind, *_ in work.wait().failures().values()} == {"crash"}
    assert gateway.assign(worker, good, [()]).wait().values() == {0: "good"}
    assert agent.is_alive
    assert len(gateway.workers) == 1


def test_what_got_away_from_a_slot_and_writes_without_end_holds_up_nobody(gateway, start_agent):
    agent = start_agent(gateway)
    worker = gateway.worker()

    def leaves_a_flood():
        subprocess.Popen(["sh", "-c", "exec yes >&2"], start_new_session=True)
        os._exit(3)

    work = gateway.assign(worker, leaves_a_flood, [()])
    assert work.wait().failures()[0][0] == "crash"
    assert gateway.assign(worker, good, [()]).wait().values() == {0: "good"}
    assert agent.is_alive


async def test_what_a_task_writes_into_its_cells_is_within_bounds():
    slot = SlotProcess(
        SlotLaunch((sys.executable, "-c", "import time; time.sleep(600)"), os.environ)
    )
    try:
        for said in (-(1 << 63), (1 << 63) - 1):
            slot._cells.view[STARTED] = slot._cells.view[SINCE_NS] = said
            slot.limit(slot.started + 1)
            assert slot._cells.view[LIMIT] == slot.started + 1
            assert 0.0 <= slot.busy_s(time.monotonic_ns()) < 600.0
    finally:
        await slot.close()


def test_a_slot_with_too_many_threads_to_watch_is_over_its_memory(monkeypatch):
    code = "import subprocess, time; [subprocess.Popen(['sleep', '600']) for _ in range(8)]; "
    parent = subprocess.Popen(
        [sys.executable, "-c", code + "print(flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert parent.stdout.readline()
        assert len(limits.descendants(parent.pid)) == 8
        assert limits.memory_used_bytes(parent.pid, 1 << 40) < 1 << 40
        monkeypatch.setattr(limits, "THREADS_MAX", 4)
        used = limits.memory_used_bytes(parent.pid, 1 << 40)
        assert "4 threads" in limits.describe_memory(used, 1 << 40)
        assert limits.memory_used_bytes(parent.pid) < 1 << 40  # nothing depends on it
    finally:
        limits.kill_session(parent.pid)
        parent.wait()
        parent.stdout.close()


async def test_a_slot_that_the_host_has_no_process_for_is_started_later(autojump_clock):
    agent, said, tries = Agent.__new__(Agent), [], []

    def start(index, home):
        tries.append(trio.current_time())
        if len(tries) < 4:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return "process"

    agent._start, agent._say = start, said.append
    assert await agent._start_again(0, BARE) == "process"
    assert [at - tries[0] for at in tries] == [n * START_AGAIN_S for n in range(4)]
    assert len(said) == 1


def test_all_that_was_adopted_and_has_ended_is_removed_and_nothing_of_ours():
    ours = subprocess.Popen(["true"])
    theirs = [subprocess.Popen(["true"]) for _ in range(20)]
    try:
        for each in (ours, *theirs):
            os.waitid(os.P_PID, each.pid, os.WEXITED | os.WNOWAIT)
        reaper = adoption.Reaper()
        reaper.look([ours.pid], 0.0)
        assert theirs[0].pid in limits.children(os.getpid())
        reaper.look([ours.pid], adoption.REAP_S)
        left = limits.children(os.getpid())
        assert ours.pid in left
        assert not {each.pid for each in theirs} & set(left)
    finally:
        for each in (ours, *theirs):
            each.wait()


def test_a_folder_of_any_depth_is_removed(tmp_path):
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    strays.remove_folder(top)
    assert not top.exists()


# --- the time that they say they took ------------------------------------------------------------


def burns(seconds):
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass
    return "good"


def says_that_nothing_takes_time(seconds):
    """The change stays for later tasks of the slot."""
    part = sys.modules["__main__"]._Part
    say = part.message
    part.message = lambda self, is_over: [*say(self, is_over=is_over)[:5], 2, 2, 0, is_over]
    return burns(seconds)


class BurnsWhenOpened:
    """A callable whose unpickling takes so long."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self):
        return "good"

    def __reduce__(self):
        return opened, (self.seconds,)


def opened(seconds):
    burns(seconds)
    return good


def test_a_task_that_falsifies_what_its_slot_measures_is_charged_and_so_are_later_ones(
    gateway, start_agent
):
    start_agent(gateway)
    worker = gateway.worker()
    charged_ns = []
    for function in (says_that_nothing_takes_time, burns):
        work = gateway.assign(worker, function, [(2.0,)]).wait()
        assert work.values() == {0: "good"}
        charged_ns.append(sum(report.wall_ns for report in work.reports))
    assert min(charged_ns) > 1.5e9


def test_work_that_is_done_while_a_function_is_unpickled_is_charged(gateway, start_agent):
    start_agent(gateway)
    work = gateway.assign(gateway.worker(), BurnsWhenOpened(2.0), [()]).wait()
    assert work.values() == {0: "good"}
    assert sum(report.wall_ns for report in work.reports) > 1.5e9


def test_a_slot_that_says_it_is_through_with_what_it_has_not_begun_is_ended(gateway, start_agent):
    """Or the task would come again, and run for nothing each time."""
    start_agent(gateway)

    def forges():
        says_to_its_agent(["part", 0, [], [], [], 0, 0, 0, True])
        time.sleep(600)

    work = gateway.assign(gateway.worker(), forges, [()]).wait()
    assert work.failures()[0][0] == "crash"


# --- where they say they are ---------------------------------------------------------------------


def writes_its_cells(started, since_ns):
    """Cells without an argument stay as they are."""
    frame = sys._getframe()
    while frame is not None:
        slot = frame.f_locals.get("self")
        if type(slot).__name__ == "Slot":
            for cell, value in ((STARTED, started), (SINCE_NS, since_ns)):
                if value is not None:
                    slot._cells[cell] = value
        frame = frame.f_back


CELLS = [(None, 0), (-1, None), (-1, 0), (1 << 61, None), (1 << 61, 1 << 62)]


@pytest.mark.parametrize(("started", "since_ns"), CELLS)
def test_a_task_that_says_it_is_idle_and_takes_its_slot_down_is_at_fault_and_charged(
    gateway, start_agent, tmp_path, started, since_ns
):
    """Or it would come again, and run for nothing each time."""
    start_agent(gateway)
    runs = tmp_path / "runs"

    def works():
        with runs.open("a") as file:
            file.write("x")
        time.sleep(1.0)
        writes_its_cells(started, since_ns)
        os._exit(0)

    work = gateway.assign(gateway.worker(), works, [()]).wait()
    assert [kind for kind, *_ in work.failures().values()] == ["crash"]
    assert runs.read_text() == "x"
    assert sum(report.wall_ns for report in work.reports) > 0.5e9


def hides(started, since_ns):
    def works():
        writes_its_cells(started, since_ns)
        time.sleep(600)

    return works


def test_a_task_that_says_it_has_yet_to_begin_is_not_given_to_another_slot(
    gateway, start_agent, tmp_path
):
    start_agent(gateway, 2)
    worker = gateway.worker()
    runs = tmp_path / "runs"

    def works():
        with runs.open("a") as file:
            file.write("x")
        writes_its_cells(-1, None)
        time.sleep(2.0)
        return "good"

    work = gateway.assign(worker, works, [()]).wait()
    assert work.values() == {0: "good"}
    assert runs.read_text() == "x"


@pytest.mark.parametrize(("started", "since_ns"), [(-1, None), (1 << 61, 1 << 62)])
def test_a_task_that_hides_from_a_recall_by_force_is_stopped(
    gateway, start_agent, started, since_ns
):
    start_agent(gateway)
    worker = gateway.worker()
    work = gateway.assign(worker, hides(started, since_ns), [()])
    for _ in range(20):
        gateway.pump(0.1)
    work.recall(0, 1, kill=True)
    assert work.wait().failures()[0][0] == "cancelled"


@pytest.mark.parametrize("since_ns", [0, 1 << 62])
def test_a_task_that_hides_from_its_time_limit_is_stopped(gateway, start_agent, since_ns):
    start_agent(gateway)
    work = gateway.assign(gateway.worker(), hides(None, since_ns), [()], timeout_s=1.0)
    assert work.wait().failures()[0][0] in ("timeout", "crash")
    assert sum(report.wall_ns for report in work.reports) > 1e9
