"""What the drop-ins share: the client of a task's process, and the failures that users see."""

import pytest

from federation.compat.task_clients import ClientOfTask, cause_of
from federation.errors import DependencyFailed, RemoteTraceback


def test_a_process_has_one_client_for_a_job_and_ends_it_before_the_next():
    said = []

    def make(name):
        said.append(f"made {name}")
        return name

    clients = ClientOfTask(lambda name: said.append(f"ended {name}"))
    assert [clients.get("a pass", lambda: make("first")) for _ in range(2)] == ["first"] * 2
    assert clients.get("another", lambda: make("second")) == "second"
    assert said == ["made first", "ended first", "made second"]


def test_a_client_that_can_not_be_made_is_tried_again():
    def fail():
        raise OSError("no gateway")

    clients = ClientOfTask(str)
    with pytest.raises(OSError, match="no gateway"):
        clients.get("a pass", fail)
    assert clients.get("a pass", lambda: "a client") == "a client"


def test_an_input_without_an_exception_of_its_own_stays_named():
    error = DependencyFailed("task 3 was cancelled")
    assert cause_of(error) is error
    error.__cause__ = RemoteTraceback("")
    assert cause_of(error) is error
    error.__cause__ = LookupError("no price")
    assert cause_of(error) is error.__cause__
    assert cause_of(error.__cause__) is error.__cause__
