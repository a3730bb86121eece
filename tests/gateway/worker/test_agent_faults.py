"""After any harm of a task to its slot: the task is named, the others run, the agent lives."""

import os
import signal
import sys
import time

import cloudpickle
import pytest
from support.processes import written

pytestmark = pytest.mark.real

# The functions of these tests are not installed where the slots look.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

GOOD = "good"


def act(what, *args):
    """One function for good and bad tasks, so that they share bundles."""
    return what(*args) if callable(what) else what


def exits():
    os._exit(7)


def segfaults():
    import ctypes

    ctypes.string_at(8)


def closes_descriptors():
    os.closerange(0, 4096)


def hangs_deaf():
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    time.sleep(60)


def holds_interpreter(seconds):
    import ctypes

    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def writes_to_every_descriptor():
    for descriptor in range(3, 1024):
        try:
            os.write(descriptor, b"\xff" * 64)
        except OSError:
            continue


def promises_more_than_comes():
    """As if it began a message of a kilobyte."""
    for descriptor in range(3, 1024):
        try:
            os.write(descriptor, b"\0\0\4\0")
        except OSError:
            continue


def outcomes(work):
    """Kind of failure, or the value, by task."""
    return {**work.values(), **{task: fail[0] for task, fail in work.failures().items()}}


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        (exits, "crash", "exit code 7"),
        (segfaults, "crash", "SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "crash", "SIGKILL"),
        (lambda: os.kill(os.getpid(), 40), "crash", "40"),
        (closes_descriptors, "crash", "channel"),
        (writes_to_every_descriptor, "crash", "channel"),
        (hangs_deaf, "timeout", "time limit of 2 s"),
        (lambda: holds_interpreter(60), "timeout", "time limit of 2 s"),
    ],
    ids=["exit", "segfault", "kill", "realtime", "close", "garble", "hang", "interpreter"],
)
def test_the_task_at_fault_is_named_and_the_others_run(gateway, start_agent, bad, kind, words):
    agent = start_agent(gateway, 2)
    worker = gateway.worker()
    gateway.assign(worker, act, [(GOOD,)] * 200).wait()  # so that bundles are large
    calls = [(GOOD,)] * 1000
    calls[300] = (bad,)
    work = gateway.assign(worker, act, calls, timeout_s=2.0).wait()
    expected = dict.fromkeys(range(1000), GOOD)
    expected[300] = kind
    assert outcomes(work) == expected
    assert words in work.failures()[300][1]
    assert agent.is_alive


def test_a_crash_shows_the_last_words(gateway, start_agent):
    start_agent(gateway)

    def dies():
        os.write(2, b"x" * 100_000 + b"so long\n")
        os._exit(1)

    text = gateway.assign(gateway.worker(), dies, [()]).wait().failures()[0][1]
    assert "so long" in text
    assert len(text) < 6000


def test_a_function_that_kills_when_it_is_unpickled(gateway, start_agent):
    start_agent(gateway)
    worker = gateway.worker()
    work = gateway.assign(worker, b"cos\n_exit\n(I3\ntR.", [(1,)] * 3).wait()
    assert outcomes(work) == dict.fromkeys(range(3), "crash")
    assert "exit code 3" in work.failures()[0][1]
    assert gateway.assign(worker, abs, [(-1,)]).wait().values() == {0: 1}


@pytest.mark.thorough
def test_a_report_that_is_swallowed(gateway, start_agent):
    start_agent(gateway)
    calls = [(promises_more_than_comes,), (GOOD,)]
    work = gateway.assign(gateway.worker(), act, calls).wait(300)
    assert outcomes(work) == {0: "crash", 1: GOOD}


def test_an_idle_slot_that_is_killed_fails_nobody(gateway, start_agent, ended):
    agent = start_agent(gateway)
    worker = gateway.worker()
    gateway.assign(worker, abs, [(-1,)]).wait()
    before = agent.slots()[0].pid
    os.kill(before, signal.SIGKILL)
    ended(before)
    assert gateway.assign(worker, abs, [(-1,)] * 5).wait().values() == dict.fromkeys(range(5), 1)
    assert agent.slots()[0].pid != before


def test_a_busy_slot_that_is_killed_from_outside(gateway, start_agent, tmp_path):
    start_agent(gateway)
    mark = tmp_path / "pid"

    def waits():
        mark.write_text(str(os.getpid()))
        time.sleep(60)

    work = gateway.assign(gateway.worker(), act, [(waits,), (GOOD,)])
    pid = gateway.wait_for(lambda: written(mark))
    os.kill(int(pid), signal.SIGKILL)
    assert outcomes(work.wait()) == {0: "crash", 1: GOOD}


def test_time_limits_are_for_each_task(gateway, start_agent):
    start_agent(gateway)
    calls = [(time.sleep, 0.4)] * 6 + [(time.sleep, 30)] + [(GOOD,)]
    work = gateway.assign(gateway.worker(), act, calls, timeout_s=2.0).wait()
    assert outcomes(work) == {**dict.fromkeys(range(6)), 6: "timeout", 7: GOOD}
    report = next(each for each in work.reports if each.failures)
    assert 2e9 <= report.wall_ns < 10e9


def test_a_task_that_outgrows_its_memory_is_stopped(gateway, start_agent):
    agent = start_agent(gateway, 1, "--memory", str(200 << 20))

    def grows():
        kept = []
        while True:
            kept.append(b"x" * (8 << 20))
            time.sleep(0.005)

    work = gateway.assign(gateway.worker(), act, [(GOOD,), (grows,), (GOOD,)]).wait()
    assert outcomes(work) == {0: GOOD, 1: "memory", 2: GOOD}
    assert "the limit is 200 MiB" in work.failures()[1][1]
    assert agent.is_alive


def test_memory_of_child_processes_counts_and_shared_pages_count_once(gateway, start_agent):
    start_agent(gateway, 1, "--memory", str(300 << 20))

    def forks_with_much_in_hand():
        held = bytearray(200 << 20)
        children = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                time.sleep(0.4)
                os._exit(len(held) and 0)
            children.append(child)
        return [os.waitpid(child, 0)[1] for child in children]

    def child_grows():
        import subprocess

        code = "held = bytearray(b'x' * (400 << 20)); import time; time.sleep(30)"
        subprocess.run([sys.executable, "-c", code], check=False)
        time.sleep(30)  # the kernel may be quicker than the agent, and end the child alone

    worker = gateway.worker()
    work = gateway.assign(worker, act, [(forks_with_much_in_hand,), (child_grows,)]).wait()
    assert outcomes(work) == {0: [0, 0, 0], 1: "memory"}


def test_one_giant_allocation_is_an_ordinary_error(gateway, start_agent):
    agent = start_agent(gateway, 1, "--memory", str(200 << 20))
    worker = gateway.worker()
    gateway.assign(worker, abs, [(-1,)]).wait()
    before = agent.slots()[0].pid
    work = gateway.assign(worker, lambda: bytearray(64 << 30), [()]).wait()
    assert "MemoryError" in work.failures()[0][1]
    assert agent.slots()[0].pid == before


def test_memory_that_a_task_left_behind_is_nobody_elses_fault(gateway, start_agent):
    agent = start_agent(gateway, 1, "--memory", str(200 << 20))
    worker = gateway.worker()
    gateway.assign(worker, abs, [(-1,)]).wait()
    before = agent.slots()[0].pid

    def leaves():
        sys.left_behind = bytearray(b"x" * (190 << 20))

    gateway.assign(worker, leaves, [()]).wait()
    gateway.wait_for(lambda: [slot for slot in agent.slots() if slot.pid != before])
    assert gateway.assign(worker, abs, [(-1,)] * 3).wait().failures() == {}


@pytest.mark.parametrize("raises", [False, True])
def test_a_forked_child_that_comes_back_is_no_slot(gateway, start_agent, raises):
    start_agent(gateway)

    def forks():
        child = os.fork()
        if child == 0:
            if raises:
                raise ValueError("in the child")
            return "child"
        os.waitpid(child, 0)
        return "parent"

    work = gateway.assign(gateway.worker(), forks, [()] * 20).wait()
    assert set(work.values().values()) == {"parent"}
    assert len(work.values()) == 20


def test_a_task_may_use_multiprocessing_and_subprocess(gateway, start_agent):
    start_agent(gateway)

    def works():
        import multiprocessing
        import subprocess

        with multiprocessing.get_context("fork").Pool(2) as pool:
            doubled = pool.map(abs, [-1, -2])
        said = subprocess.run(["echo", "hi"], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["echo", "to stdout"], stdout=sys.stdout, check=True)
        return doubled, said

    work = gateway.assign(gateway.worker(), works, [()]).wait()
    assert work.values() == {0: ([1, 2], b"hi\n")}


def test_what_a_slot_started_ends_with_it(gateway, start_agent, tmp_path, ended):
    start_agent(gateway)
    marks = [tmp_path / name for name in ("child", "grandchild", "group")]

    def leaves_processes():
        for mark in marks:
            child = os.fork()
            if child == 0:
                if mark.name == "grandchild" and os.fork():
                    os._exit(0)
                if mark.name == "group":
                    os.setpgid(0, 0)
                mark.with_suffix(".new").write_text(str(os.getpid()))
                mark.with_suffix(".new").rename(mark)
                time.sleep(60)
        while not all(mark.exists() for mark in marks):
            time.sleep(0.01)
        os._exit(1)

    work = gateway.assign(gateway.worker(), leaves_processes, [()]).wait()
    assert outcomes(work) == {0: "crash"}
    for mark in marks:
        ended(int(mark.read_text()))


def test_slots_die_with_their_agent(gateway, start_agent, ended):
    agent = start_agent(gateway, 2)
    worker = gateway.worker()
    work = gateway.assign(worker, act, [(GOOD,), (GOOD,)]).wait()
    gateway.assign(worker, act, [(lambda: holds_interpreter(60),)])
    assert work.settled()
    pids = [slot.pid for slot in agent.slots()]
    assert len(pids) == 2
    os.kill(agent.process.pid, signal.SIGKILL)
    for pid in pids:
        ended(pid)


def test_an_agent_whose_slots_cannot_start_says_so_and_ends(gateway, start_agent, tmp_path):
    # cloudpickle is what a slot needs and an agent does not.
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('it is broken')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    agent = start_agent(gateway, 1, PYTHONPATH=path)
    assert agent.process.wait(200) == 1
    assert "it is broken" in agent.text()
