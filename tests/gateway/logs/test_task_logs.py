"""The queue before the file: added output is read, and trouble is told and ends nothing."""

import threading

import pytest
import trio

from gateway.config.site import SiteConfig
from gateway.logs import task_logs
from gateway.logs.limits import LogLimits
from gateway.logs.task_logs import TaskLogs
from gateway.runtime.environment import open_task_logs


@pytest.fixture
def said():
    return []


@pytest.fixture
def logs(tmp_path, said):
    made = TaskLogs(tmp_path, LogLimits(), said.append)
    yield made
    made.close()


def texts(logs, job="j"):
    return [each.text for each in logs.read(job, None, 0, 1 << 20).pieces]


def test_what_was_added_is_read(logs):
    for number in range(100):
        logs.add("j", 5.0, [(0, 1, f"{number}\n")])
    assert texts(logs) == [f"{number}\n" for number in range(100)]
    logs.forget(["j"])
    assert texts(logs) == []


def test_what_was_added_is_written_before_the_end(tmp_path, said):
    logs = TaskLogs(tmp_path, LogLimits(), said.append)
    logs.add("j", 5.0, [(0, 1, "a")])
    logs.close()
    after = TaskLogs(tmp_path, LogLimits(), said.append)
    assert texts(after) == ["a"]
    after.close()
    assert said == []


def test_old_output_goes_except_of_jobs_that_are_kept(logs):
    for job in ("old", "live"):
        logs.add(job, 5.0, [(0, 1, "a")])
    logs.forget_silent(9.0, {"live"})
    assert (texts(logs, "old"), texts(logs, "live")) == ([], ["a"])


def test_output_that_comes_too_fast_is_dropped_and_told_of_once(logs, said, monkeypatch):
    """The memory that waits is bounded: the writer is held up while output comes."""
    monkeypatch.setattr(task_logs, "QUEUE_BYTES_MAX", 1_000)
    going, add = threading.Event(), logs._file.add

    def held_up(batch):
        going.wait(60)
        add(batch)

    monkeypatch.setattr(logs._file, "add", held_up)
    for number in range(100):
        logs.add("j", 5.0, [(0, 1, f"{number:036}")])
    assert logs._bytes <= 1_000
    going.set()
    assert 10 <= len(texts(logs)) <= 21
    logs.add("j", 5.0, [(0, 1, "later")])
    assert texts(logs)[-1] == "later"
    (line,) = said
    assert "output of tasks is lost" in line


def test_a_disk_that_is_full_is_told_of_and_ends_nothing(logs, said, monkeypatch):
    add = logs._file.add

    def fails(_batch):
        raise OSError("no space left on device")

    monkeypatch.setattr(logs._file, "add", fails)
    logs.add("j", 5.0, [(0, 1, "lost")])
    assert texts(logs) == []
    assert said == ["logs: output of tasks is lost: OSError: no space left on device"]
    monkeypatch.setattr(logs._file, "add", add)
    logs.add("j", 5.0, [(0, 1, "kept")])
    assert texts(logs) == ["kept"]


def test_the_thread_of_a_gateway_s_loop_survives_trouble(tmp_path, said, monkeypatch):
    """The clock of the loop can't be read in the thread, as the gateway once gave it."""

    async def main():
        logs = open_task_logs(SiteConfig(state=str(tmp_path)), said.append)
        assert logs is not None
        add = logs._file.add

        def fails(_batch):
            raise ValueError("of a kind that nobody foresaw")

        monkeypatch.setattr(logs._file, "add", fails)
        logs.add("j", 5.0, [(0, 1, "lost")])
        assert texts(logs) == []
        monkeypatch.setattr(logs._file, "add", add)
        logs.add("j", 5.0, [(0, 1, "kept")])
        assert texts(logs) == ["kept"]
        logs.close()

    trio.run(main)
    assert said == ["logs: output of tasks is lost: ValueError: of a kind that nobody foresaw"]
