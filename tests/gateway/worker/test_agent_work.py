"""An agent's handling of work that goes well, or fails in an ordinary way."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import cloudpickle
import pytest

from federation.messages.messages import Drain, Pulse, PutFunction, Returned
from federation.payload import Call

pytestmark = pytest.mark.real

# The functions of these tests are not installed where the slots look.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_it_says_who_it_is_and_what_it_carries(gateway, start_agent):
    agent = start_agent(gateway, 2, "--tags", "linux,gpu=2,ram=1.5", "--memory", "1000000000")
    about = gateway.worker().hello.about
    assert about["slots"] == 2
    assert about["tags"] == {"linux": True, "gpu": 2, "ram": 1.5}
    assert about["pool"] == "local"
    assert about["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert about["pid"] == agent.process.pid
    assert about["memory_bytes"] == 1_000_000_000


def test_results_come_back_in_their_places(gateway, start_agent):
    start_agent(gateway, 2)
    work = gateway.assign(gateway.worker(), lambda x: x * 2, [(x,) for x in range(2500)], first=100)
    work.wait()
    assert work.values() == {100 + x: 2 * x for x in range(2500)}
    assert all(report.wall_ns > 0 for report in work.reports)
    assert all(report.peak_memory_bytes > 1 << 20 for report in work.reports)


def test_keyword_arguments(gateway, start_agent):
    start_agent(gateway)
    call = Call((1,), {"b": 2})
    work = gateway.assign(gateway.worker(), lambda a, b: (a, b), [call]).wait()
    assert work.values() == {0: (1, 2)}


def test_a_function_is_asked_for_once(gateway, start_agent):
    start_agent(gateway, 2)
    worker = gateway.worker()
    works = [gateway.assign(worker, abs, [(-1,)] * 3) for _ in range(3)]
    for work in works:
        work.wait()
    needs = [message for message in worker.heard if type(message).kind == "need"]
    assert len(needs) == 1


def test_work_without_its_function_holds_up_nobody(gateway, start_agent):
    start_agent(gateway)
    worker = gateway.worker()
    gateway.withheld.add(gateway.put(lambda: 4))
    waits = gateway.assign(worker, gateway.functions[next(iter(gateway.withheld))], [()] * 3)
    assert gateway.assign(worker, lambda: 5, [()]).wait().values() == {0: 5}
    waits.recall(1, 2)
    assert waits.wait_answer() == [[1, 2]]
    for digest in gateway.withheld:
        gateway.say(worker, PutFunction(digest, gateway.functions[digest]))
    assert waits.wait().values() == {0: 4, 2: 4}


def test_more_functions_than_a_slot_keeps(gateway, start_agent):
    start_agent(gateway)
    worker = gateway.worker()
    functions = [partial(int, n) for n in range(80)]
    for _ in range(2):
        works = [gateway.assign(worker, function, [()]) for function in functions]
        assert [work.wait().values()[0] for work in works] == list(range(80))


def test_an_exception_travels_with_its_traceback(gateway, start_agent):
    start_agent(gateway)

    def fails(x):
        if x == 1:
            raise LookupError("no such thing \ud800")
        return x

    work = gateway.assign(gateway.worker(), fails, [(0,), (1,), (2,)]).wait()
    assert work.values() == {0: 0, 2: 2}
    kind, text, payload = work.failures()[1]
    assert kind == "error"
    assert "LookupError: no such thing" in text
    assert "in fails" in text
    assert "slot.py" not in text
    assert isinstance(cloudpickle.loads(payload), LookupError)


class Fussy(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def test_an_exception_that_does_not_survive_pickling_travels_as_text(gateway, start_agent):
    start_agent(gateway)

    def fails():
        import threading

        class Local(Fussy):
            lock = threading.Lock()  # no class with one can be pickled by value

        raise Local(1, 2)

    [[kind, text, payload]] = (
        gateway.assign(gateway.worker(), fails, [()]).wait().failures().values()
    )
    assert (kind, payload) == ("error", b"")
    assert "Local: 1 and 2" in text


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError])
def test_what_would_end_a_program_fails_only_the_task(gateway, start_agent, error):
    agent = start_agent(gateway)

    def fails():
        raise error(3)

    worker = gateway.worker()
    work = gateway.assign(worker, lambda f: f(), [(fails,), (lambda: 1,)]).wait()
    pid = agent.slots()[0].pid
    assert work.failures()[0][0] == "error"
    assert error.__name__ in work.failures()[0][1]
    assert work.values() == {1: 1}
    assert agent.slots()[0].pid == pid


def test_huge_messages_of_exceptions_are_cut_and_take_nobody_down(gateway, start_agent):
    start_agent(gateway)

    def fails():
        raise ValueError("\N{GRINNING FACE}" * 1_000_000)

    work = gateway.assign(gateway.worker(), fails, [()] * 50).wait()
    assert len(work.failures()) == 50
    assert all(len(text.encode()) < 70_000 for _, text, _ in work.failures().values())


def test_arguments_that_cannot_be_unpickled(gateway, start_agent):
    start_agent(gateway)
    work = gateway.assign(gateway.worker(), abs, [(-1,), b"cno_such_module\nthing\n.", (-3,)])
    work.wait()
    assert work.values() == {0: 1, 2: 3}
    kind, text, _ = work.failures()[1]
    assert kind == "error"
    assert "arguments" in text
    assert "job" in text
    assert "no_such_module" in text
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in text


def test_a_function_that_cannot_be_unpickled(gateway, start_agent):
    start_agent(gateway)
    worker = gateway.worker()
    work = gateway.assign(worker, b"cno_such_module\nthing\n.", [()] * 3).wait()
    assert [kind for kind, _, _ in work.failures().values()] == ["error"] * 3
    assert "function" in work.failures()[0][1]
    assert "no_such_module" in work.failures()[0][1]
    assert gateway.assign(worker, abs, [(-1,)]).wait().values() == {0: 1}


def test_a_result_that_cannot_be_pickled(gateway, start_agent):
    start_agent(gateway)
    work = gateway.assign(
        gateway.worker(), lambda x: (y for y in []) if x else 1, [(0,), (1,), (0,)]
    ).wait()
    assert work.values() == {0: 1, 2: 1}
    kind, text, _ = work.failures()[1]
    assert kind == "result"
    assert "generator" in text


@pytest.mark.parametrize("make", [lambda n: "x" * n, lambda n: bytearray(n)], ids=["str", "other"])
def test_a_result_that_is_too_large(open_gateway, start_agent, make):
    gateway = open_gateway(message_bytes_max=2 << 20)
    start_agent(gateway)
    work = gateway.assign(gateway.worker(), make, [(n,) for n in (10, 3 << 20, 10)]).wait()
    assert sorted(work.values()) == [0, 2]
    kind, text, _ = work.failures()[1]
    assert kind == "result"
    assert "3,145,7" in text


def test_many_results_that_fit_one_by_one(open_gateway, start_agent):
    gateway = open_gateway(message_bytes_max=2 << 20)
    start_agent(gateway)
    work = gateway.assign(gateway.worker(), bytes, [(700_000,)] * 40).wait()
    assert {len(value) for value in work.values().values()} == {700_000}


def test_prints_come_back_when_asked_for(gateway, start_agent):
    start_agent(gateway)

    def speaks(x):
        print("hello", x)
        print("oops", x, file=sys.stderr)
        sys.stdout.buffer.write(b"raw\n")
        return sys.stdout.isatty()

    worker = gateway.worker()
    work = gateway.assign(worker, speaks, [(1,), (2,)], prints=True).wait()
    assert work.prints() == {0: "hello 1\noops 1\nraw\n", 1: "hello 2\noops 2\nraw\n"}
    assert [stream for report in work.reports for stream in report.streams] == [1, 2, 1] * 2
    silent = gateway.assign(worker, speaks, [(1,)]).wait()
    assert silent.prints() == {}
    assert silent.values() == {0: False}


def test_output_is_sent_while_a_task_runs(gateway, start_agent, tmp_path):
    start_agent(gateway)
    go = str(tmp_path / "go")

    def waits():
        print("first")
        print("oops", file=sys.stderr)
        while not os.path.exists(go):
            time.sleep(0.01)
        subprocess.run(["echo", "a child"], check=True)
        print("no end", end="")

    work = gateway.assign(gateway.worker(), waits, [()], logs=True)
    gateway.wait_for(lambda: work.said() == [(0, 1, "first\n"), (0, 2, "oops\n")])
    assert not work.reports
    (tmp_path / "go").touch()
    work.wait()
    assert sorted(work.said()[2:]) == [(0, 1, "a child\n"), (0, 1, "no end")]
    assert work.prints() == {}


def test_output_before_a_crash_is_sent(gateway, start_agent):
    start_agent(gateway)

    def crashes():
        print("before")
        os.write(2, b"raw\n")
        os.kill(os.getpid(), signal.SIGKILL)

    work = gateway.assign(gateway.worker(), crashes, [()], logs=True).wait()
    assert sorted(work.said()) == [(0, 1, "before\n"), (0, 2, "raw\n")]
    assert work.failures()[0][0] == "crash"


def test_output_of_many_quick_tasks_is_told_apart(gateway, start_agent):
    start_agent(gateway)
    work = gateway.assign(gateway.worker(), print, [(number,) for number in range(500)], logs=True)
    work.wait()
    assert sorted(work.said()) == [(number, 1, f"{number}\n") for number in range(500)]


def test_prints_are_cut(gateway, start_agent):
    start_agent(gateway)

    def shouts():
        print("\N{GRINNING FACE}" * 100_000)
        print("the end")

    text = gateway.assign(gateway.worker(), shouts, [()], prints=True).wait().prints()[0]
    assert 60_000 < len(text.encode()) < 70_000
    assert text.startswith("[gridfed: ")
    assert "earlier characters were cut" in text
    assert text.endswith("\N{GRINNING FACE}\nthe end\n")


def test_a_hundred_megabytes_of_prints_hurt_nobody(gateway, start_agent):
    start_agent(gateway)

    def chatters():
        import os

        for _ in range(100):
            print("x" * (1 << 20))
        for _ in range(100):
            os.write(2, b"y" * (1 << 16))

    work = gateway.assign(gateway.worker(), chatters, [()]).wait()
    assert work.values() == {0: None}
    assert work.reports[0].peak_memory_bytes < 200 << 20


def test_streams_that_a_task_has_closed_are_open_for_the_next(gateway, start_agent):
    start_agent(gateway)
    worker = gateway.worker()
    gateway.assign(worker, lambda: sys.stdout.close(), [()]).wait()
    work = gateway.assign(worker, lambda: print("still here"), [()], prints=True).wait()
    assert work.prints() == {0: "still here\n"}


def test_a_task_finds_its_gateway(gateway, start_agent):
    start_agent(gateway, 1, GRIDFED_SECRET="")

    def where():
        import os

        return os.environ["GRIDFED_GATEWAY"]

    work = gateway.assign(gateway.worker(), where, [()]).wait()
    assert work.values() == {0: gateway.address}


def test_a_worker_shows_the_token_of_its_environment_and_a_task_finds_none(gateway, start_agent):
    start_agent(gateway, 1, GRIDFED_TOKEN="of who started the worker")
    assert gateway.worker().hello.about["token"] == "of who started the worker"

    def token():
        import os

        return os.environ.get("GRIDFED_TOKEN")

    work = gateway.assign(gateway.worker(), token, [()]).wait()
    assert work.values() == {0: None}


def test_drain_takes_nothing_new_and_undrain_does(gateway, start_agent):
    start_agent(gateway)
    worker = gateway.worker()
    gateway.say(worker, Drain(True))
    assert gateway.assign(worker, abs, [(-1,)] * 3).wait_answer() == [[0, 3]]
    gateway.say(worker, Drain(False))
    assert gateway.assign(worker, abs, [(-1,)]).wait().values() == {0: 1}
    assert len(worker.all(Returned)) == 1


@pytest.mark.slow
def test_pulses_say_what_the_slots_do(gateway, start_agent):
    start_agent(gateway, 2)
    worker = gateway.worker()

    def naps():
        import time

        time.sleep(3)

    gateway.assign(worker, naps, [()], first=7)

    def running():
        states = [slot for pulse in worker.all(Pulse) for slot in pulse.slots]
        return [slot for slot in states if slot["state"] == "running"]

    slot = gateway.wait_for(running)[0]
    assert (slot["job"], slot["task"]) == ("job", 7)
    assert slot["pid"] > 0
    assert slot["rss_bytes"] > 1 << 20
    assert 0 < slot["since_s"] < 3.5
