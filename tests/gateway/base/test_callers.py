"""Orders at a gateway's socket: commands of our own user may give them, tasks of slots may not."""

import os

import pytest

from gateway.base.callers import AGENT_NAME, Callers

OWN = os.geteuid()


class Processes:
    """A pretended /proc: what each process is called, and its parent."""

    def __init__(self, folder, **processes):
        self.folder = folder
        for pid, (name, parent) in processes.items():
            self.add(int(pid.removeprefix("p")), name, parent)

    def add(self, pid, name, parent):
        here = self.folder / str(pid)
        here.mkdir(exist_ok=True)
        (here / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")
        (here / "comm").write_text(f"{name}\n")

    def callers(self, own=10):
        return Callers(self.folder, own)


@pytest.fixture
def processes(tmp_path):
    return Processes(
        tmp_path,
        p1=("init", 0),
        p10=("gridfed", 1),
        p20=(AGENT_NAME, 10),
        p21=("python", 20),  # a slot
        p22=("a) S 1 1 (", 21),  # a task may be called anything
        p23=("sh", 22),
        p30=("bash", 1),
        p31=("gridfed", 30),
    )


def test_a_command_of_our_user_is_its_own(processes):
    callers = processes.callers()
    assert callers.is_owner(OWN, 31)
    assert callers.is_owner(OWN, 20)  # the worker itself
    assert callers.is_owner(OWN, 10)


def test_what_is_below_a_worker_is_a_slots(processes):
    callers = processes.callers()
    for pid in (21, 22, 23):
        assert not callers.is_owner(OWN, pid)


def test_another_user_is_not_the_owner(processes):
    assert not processes.callers().is_owner(OWN + 12345, 31)
    assert processes.callers().is_owner(0, 31)  # root may do anything as it is


def test_who_is_gone_is_not_the_owner(processes):
    assert not processes.callers().is_owner(OWN, 99)
    assert not processes.callers().is_owner(OWN, 0)  # of another namespace


def test_a_gateway_that_is_a_task_itself_has_owners(processes):
    """The worker above it is another grid's."""
    processes.add(40, "gridfed", 21)
    processes.add(41, AGENT_NAME, 40)
    processes.add(42, "python", 41)
    callers = processes.callers(own=40)
    assert callers.is_owner(OWN, 23)
    assert not callers.is_owner(OWN, 42)


def test_an_ancestor_that_is_hidden_from_us_is_no_worker(processes):
    processes.add(50, "bash", 49)  # 49 is another user's, and /proc shows it to him alone
    assert processes.callers().is_owner(OWN, 50)


def test_where_there_is_no_proc_the_user_counts(tmp_path):
    callers = Callers(tmp_path / "none", 10)
    assert callers.is_owner(OWN, 5)
    assert not callers.is_owner(OWN + 1, 5)


def test_a_caller_below_more_processes_than_are_looked_at_is_a_slots(processes):
    parent = 21
    for pid in range(1000, 2000):
        processes.add(pid, "sh", parent)
        parent = pid
    assert not processes.callers().is_owner(OWN, parent)


def test_a_caller_that_is_far_below_a_shell_is_refused_rather_than_guessed(processes):
    parent = 30
    for pid in range(1000, 2100):
        processes.add(pid, "sh", parent)
        parent = pid
    assert processes.callers().is_owner(OWN, 1900)
    assert not processes.callers().is_owner(OWN, parent)


def test_a_number_that_becomes_anothers_while_it_is_looked_at_hides_no_worker(processes):
    """The slot's process 22 ends, and a shell of ours has its number before 23's way up is read."""
    callers = processes.callers()
    parent_of = callers._parent

    def parent(pid):
        if pid == 22:
            processes.add(22, "bash", 1)
            processes.add(23, "sh", 20)  # the kernel has given it to its worker
        return parent_of(pid)

    callers._parent = parent
    assert not callers.is_owner(OWN, 23)


def test_a_worker_with_the_number_of_what_ended_above_the_gateway_is_a_worker(processes):
    processes.add(5, "bash", 1)
    processes.add(10, "gridfed", 5)
    callers = processes.callers()
    processes.add(10, "gridfed", 1)
    processes.add(5, AGENT_NAME, 1)
    processes.add(6, "python", 5)
    assert not callers.is_owner(OWN, 6)
