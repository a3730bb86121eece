"""The session with the gateway: lost, resumed, expired, refused, ended."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import cloudpickle
import pytest
from support.processes import written

from federation.errors import SessionRefused
from federation.messages.messages import Bye, Drain, Report
from gateway.worker.agent import NO_GATEWAY, REFUSED
from gateway.worker.winding_up import stopped_text

pytestmark = pytest.mark.real

# The functions of these tests are not installed where the slots look.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def waits_for(mark, path):
    with open(mark, "a") as file:
        file.write(f"{os.getpid()}\n")
    while not path.exists():
        time.sleep(0.005)
    return "waited"


def act(what, *args):
    return what(*args) if callable(what) else what


def test_work_goes_on_while_the_pipe_is_lost(gateway, start_agent, tmp_path):
    start_agent(gateway, 2)
    worker = gateway.worker()
    go = tmp_path / "go"
    calls = [(waits_for, tmp_path / "mark", go)] + [(n,) for n in range(1, 500)]
    work = gateway.assign(worker, act, calls)
    for _ in range(3):
        gateway.wait_for(lambda: worker.pipe is not None)
        gateway.pump(0.02)
        if worker.pipe is not None:
            gateway.hang_up(worker)
    go.touch()
    assert len(work.wait().values()) == 500
    assert len(gateway.workers) == 1


def test_a_gateway_that_restarted_gets_nothing_of_the_old_session(
    gateway, start_agent, tmp_path, ended
):
    agent = start_agent(gateway, 2)
    worker = gateway.worker()
    mark = tmp_path / "mark"
    gateway.assign(worker, act, [(waits_for, mark, tmp_path / "never")] + [(1,)] * 10)
    gateway.wait_for(lambda: written(mark))
    old = int(mark.read_text())
    gateway.close()
    gateway.refuses_resumption = True
    gateway.open()
    new = gateway.worker(1)
    assert new.hello.resume == worker.id
    # The number of the assignment is the one that the old gateway used.
    gateway._assignments = 0
    work = gateway.assign(new, act, [(n,) for n in range(30)]).wait()
    assert work.values() == {n: n for n in range(30)}
    ended(old)
    assert len(new.all(Report)) == len(work.reports)
    assert agent.is_alive


def test_a_worker_with_two_gateways_works_for_the_one_that_answers(open_gateway, start_agent):
    first, second = open_gateway("first"), open_gateway("second")
    second.close()
    start_agent(SimpleNamespace(address=f"{first.address},{second.address}"), 2)
    assert first.assign(first.worker(), act, [(n,) for n in range(9)]).wait().reports
    first.close()
    second.open()
    assert second.assign(second.worker(), act, [(n,) for n in range(9)]).wait().reports
    second.close()
    first.open()
    assert first.assign(first.worker(1), act, [(n,) for n in range(9)]).wait().reports
    second.open()  # to be closed as the other


def test_a_gateway_that_takes_dials_and_says_nothing_is_passed_over(open_gateway, start_agent):
    silent, second = open_gateway("silent"), open_gateway("second")
    start_agent(SimpleNamespace(address=f"{silent.address},{second.address}"))
    assert second.assign(second.worker(), act, [(1,)]).wait().reports


def test_without_a_gateway_the_lease_ends_and_so_do_its_tasks(
    open_gateway, start_agent, tmp_path, ended
):
    gateway = open_gateway(grace_s=2.0, heartbeat_s=0.2)
    start_agent(gateway)
    worker = gateway.worker()
    mark = tmp_path / "mark"
    gateway.assign(worker, act, [(waits_for, mark, tmp_path / "never")])
    gateway.wait_for(lambda: written(mark))
    gateway.close()
    ended(int(mark.read_text()))
    gateway.open()
    new = gateway.worker(1)
    assert new.hello.resume == "", "a session whose lease is over must not be resumed"
    assert gateway.assign(new, act, [(1,)]).wait().values() == {0: 1}


def test_a_gateway_that_falls_silent_ends_the_lease_too(open_gateway, start_agent, tmp_path, ended):
    gateway = open_gateway(grace_s=2.0, heartbeat_s=0.2)
    start_agent(gateway)
    worker = gateway.worker()
    mark = tmp_path / "mark"
    gateway.assign(worker, act, [(waits_for, mark, tmp_path / "never")])
    gateway.wait_for(lambda: written(mark))
    ended(int(mark.read_text()))  # the pipe is up all the time, but nobody says a word
    assert gateway.worker(1).hello.resume == ""


def test_heartbeats_keep_an_idle_worker(open_gateway, start_agent):
    gateway = open_gateway(grace_s=4.0, heartbeat_s=0.1)
    start_agent(gateway)
    worker = gateway.worker()
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        gateway.pump(0.05)
    assert gateway.assign(worker, act, [(1,)]).wait().values() == {0: 1}
    assert len(gateway.workers) == 1


def test_a_goodbye_drops_everything_and_the_worker_comes_again(gateway, start_agent, tmp_path):
    start_agent(gateway)
    worker = gateway.worker()
    mark = tmp_path / "mark"
    gateway.assign(worker, act, [(waits_for, mark, tmp_path / "never")] * 3)
    gateway.wait_for(lambda: written(mark))
    gateway.say(worker, Bye("stopping"))
    new = gateway.worker(1)
    assert gateway.assign(new, act, [(1,)]).wait().values() == {0: 1}
    assert len(mark.read_text().split()) == 1


@pytest.mark.parametrize("secret", ["", "wrong"])
def test_the_wrong_secret_is_a_clear_end(open_gateway, start_agent, secret):
    gateway = open_gateway(secret="right")
    agent = start_agent(gateway, 1, GRIDFED_SECRET=secret)
    gateway.wait_for(lambda: not agent.is_alive)
    assert agent.process.returncode == REFUSED
    assert "GRIDFED_SECRET" in agent.text()


def test_the_right_secret_lets_it_in(open_gateway, start_agent):
    gateway = open_gateway(secret="right")
    start_agent(gateway, 1, GRIDFED_SECRET="right")
    assert gateway.assign(gateway.worker(), act, [(1,)]).wait().values() == {0: 1}


def test_it_gives_up_when_told_to(gateway, start_agent):
    gateway.address += "-not-there"
    agent = start_agent(gateway, 1, "--give-up-s", "0.5")
    assert agent.process.wait(200) == NO_GATEWAY
    assert "no gateway answered" in agent.text()
    gateway.address = gateway.address.removesuffix("-not-there")


def test_it_gives_up_a_gateway_that_never_lets_it_in(gateway, start_agent):
    gateway.refusal = SessionRefused("there is no pool of that name any more", "worker")
    agent = start_agent(gateway, 1, "--give-up-s", "2")
    gateway.wait_for(lambda: not agent.is_alive)
    assert agent.process.returncode == REFUSED
    assert "gives up: there is no pool of that name any more" in agent.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_hands_back_what_waits_and_lets_run_what_runs(
    gateway, start_agent, tmp_path, number
):
    agent = start_agent(gateway)
    worker = gateway.worker()
    mark, go = tmp_path / "mark", tmp_path / "go"
    work = gateway.assign(worker, act, [(waits_for, mark, go)] + [(1,)] * 20)
    gateway.wait_for(lambda: written(mark))
    agent.process.send_signal(number)
    assert work.wait_answer() == [[1, 21]]
    late = gateway.assign(worker, act, [(1,)])
    gateway.pump()
    go.touch()
    gateway.wait_for(lambda: not agent.is_alive)
    assert agent.process.returncode == 0
    assert work.values() == {0: "waited"}
    assert worker.all(Drain) == [Drain(True)]
    assert worker.all(Bye)[0].reason == "stopped"
    assert isinstance(worker.heard[-1], Bye)
    assert not late.settled()


def test_a_signal_ends_it_also_when_its_gateway_is_silent(gateway, start_agent):
    agent = start_agent(gateway)
    gateway.worker()
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(200) == 0  # nobody has taken its goodbye


def test_a_second_signal_ends_it_at_once(gateway, start_agent, tmp_path, ended):
    agent = start_agent(gateway)
    mark = tmp_path / "mark"
    gateway.assign(gateway.worker(), act, [(waits_for, mark, tmp_path / "never")])
    gateway.wait_for(lambda: written(mark))
    agent.process.send_signal(signal.SIGINT)
    gateway.wait_for(lambda: "a second signal stops it at once" in agent.text())
    agent.process.send_signal(signal.SIGINT)
    assert agent.process.wait(200) == 130
    ended(int(mark.read_text()))


@pytest.mark.parametrize(
    ("waiting", "running", "text"),
    [
        (0, 0, "has stopped after SIGTERM: it had no task left"),
        (3, 0, "has stopped after SIGTERM: it gave 3 tasks back to the gateway"),
        (*(3, 1, "has stopped after SIGTERM: it gave 4 tasks back to the gateway, of which 1 "),),
    ],
)
def test_its_last_line_says_why_and_what_became_of_its_tasks(waiting, running, text):
    assert stopped_text("after SIGTERM", waiting, running).startswith(text)


def test_it_dies_with_its_parent(gateway, tmp_path, ended):
    code = """
import os, subprocess, sys, time
command = [sys.executable, "-m", "gateway.worker.agent", *sys.argv[1:], str(os.getpid())]
agent = subprocess.Popen(command)
print(agent.pid, flush=True)
time.sleep(60)
"""
    arguments = ["--gateway", gateway.address, "--slots", "1", "--pool", "local", "--name", "w"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--die-with-parent"], stdout=subprocess.PIPE
    ) as parent:
        agent = int(parent.stdout.readline())
        work = gateway.assign(gateway.worker(), os.getpid, [()]).wait()
        parent.kill()
    ended(agent)
    ended(work.values()[0])


def test_it_ends_at_once_where_its_parent_ended_before(gateway):
    command = [sys.executable, "-m", "gateway.worker.agent", "--gateway", gateway.address]
    command += ["--slots", "1", "--pool", "p", "--name", "w"]
    command += ["--die-with-parent", str(os.getppid())]
    assert subprocess.run(command, timeout=300).returncode == 1
