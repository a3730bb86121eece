"""Output of tasks, read later: by a command, by a handle, after a restart."""

import json
import sys
import time

import pytest
from click.testing import CliRunner, Result
from support.processes import wait_until

from federation import Client
from federation.errors import JobNotFound
from gateway.cli.main import cli

pytestmark = pytest.mark.real


def speak(number):
    print(f"out {number}")
    print(f"err\x1b[2J {number}", file=sys.stderr)
    return number


def texts(job, task=None):
    return {(each.task, each.stream, each.text) for each in job.logs(task)}


def gridfed(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


BOTH = {(0, "stdout", "out 7"), (0, "stderr", "err\x1b[2J 7")}


def test_the_output_of_a_task_is_read_by_its_job(client, capsys):
    future = client.submit(speak, 7)
    assert future.result() == 7
    assert texts(client.job(future.job)) == BOTH
    assert capsys.readouterr() == ("", "")  # it was not asked for


def test_the_output_of_a_detached_job_is_read_task_by_task(client):
    job = client.submit_job(speak, range(3))
    job.wait(60)
    assert {each[0] for each in texts(job)} == {0, 1, 2}
    assert texts(job, 2) == {(2, "stdout", "out 2"), (2, "stderr", "err\x1b[2J 2")}
    job.forget()
    assert texts(job) == set()


def test_a_failed_task_has_its_output(client):
    def fails():
        print("before")
        raise ValueError

    future = client.submit(fails)
    future.exception()
    assert texts(client.job(future.job)) == {(0, "stdout", "before")}


def test_a_job_that_is_not_there_has_none(client):
    with pytest.raises(JobNotFound):
        list(client.job("none").logs())


def test_logs_at_the_command_line(client, shared_site):
    job = client.submit_job(speak, [7, 8])
    job.wait(60)
    where = ("--gateway", shared_site.address)
    done = gridfed("logs", job.id, *where)
    assert sorted(done.stdout.splitlines()) == ["[task 0] out 7", "[task 1] out 8"]
    assert sorted(done.stderr.splitlines()) == [
        "[task 0] err\\x1b[2J 7",
        "[task 1] err\\x1b[2J 8",
    ]
    done = gridfed("logs", job.id, "1", *where)
    assert (done.stdout, done.stderr) == ("out 8\n", "err\\x1b[2J 8\n")
    done = gridfed("logs", job.id, "1", "--json", *where)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(each["task"], each["stream"], each["text"]) for each in found} == {
        (1, "stdout", "out 8"),
        (1, "stderr", "err\x1b[2J 8"),
    }


def test_a_job_is_followed_until_it_ends(client, tmp_path):
    def waits(_number, path=str(tmp_path / "go")):
        from pathlib import Path

        print("first")
        while not Path(path).exists():
            time.sleep(0.02)

    def quick(_number):
        print("first")

    job = client.submit_job(waits, range(1))
    found = job.logs(follow=True)
    quick_job = client.submit_job(quick, range(1))
    assert [each.text for each in quick_job.logs(follow=True)] == ["first"]
    (tmp_path / "go").touch()
    assert [each.text for each in found] == ["first"]
    assert job.state == "done"


def test_output_outlives_the_gateway(make_site):
    site = make_site(1)
    with site.client() as client:
        future = client.submit(speak, 7)
        future.result()
        job_id = future.job
    site.kill()
    site.start()
    with site.client() as client:
        wait_until(lambda: texts(client.job(job_id)) == BOTH)


def test_only_the_last_output_is_kept(make_site):
    site = make_site(1, config="[limits]\ntask_log_bytes = 1024\n")

    def chatters():
        for number in range(1000):
            print(f"line {number}")

    with site.client() as client:
        future = client.submit(chatters)
        future.result()
        found = [each.text for each in client.job(future.job).logs()]
        assert found[-1] == "line 999"
        assert 100 < len(found) < 120
        done = gridfed("logs", future.job, "--gateway", site.address)
        assert "bytes of older output were dropped" in done.stderr


def test_a_site_may_keep_none(make_site):
    site = make_site(1, config="[limits]\nsite_log_bytes = 0\n")
    with Client(site.address) as client:
        future = client.submit(speak, 7)
        future.result()
        done = gridfed("logs", future.job, "--gateway", site.address)
    assert done.exit_code == 1
    assert "keeps no output" in done.stderr


def test_a_line_without_an_end_is_shown_while_its_task_runs(client, tmp_path):
    def asks(_number, path=str(tmp_path / "go")):
        from pathlib import Path

        print("ready? ", end="", flush=True)
        while not Path(path).exists():
            time.sleep(0.02)
        print("yes")

    job = client.submit_job(asks, range(1))
    found = job.logs(follow=True)
    assert next(found).text == "ready? "
    assert job.state == "running"
    (tmp_path / "go").touch()
    assert [each.text for each in found] == ["yes"]


def test_the_command_says_why_there_is_no_output(client, shared_site):
    job = client.submit_job(abs, [7, 8])
    job.wait(60)
    where = ("--gateway", shared_site.address)
    done = gridfed("logs", job.id, *where)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "[gridfed: this job has printed nothing]\n"
    done = gridfed("logs", job.id, "1", *where)
    assert done.stderr == "[gridfed: task 1 has printed nothing]\n"
    done = gridfed("logs", job.id, "2", "--json", *where)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"job {job.id} has 2 tasks, numbers 0 to 1: there is no task 2" in done.stderr
    job.forget()
    done = gridfed("logs", job.id, *where)
    assert done.exit_code == 0
    assert "was forgotten with the results of the job" in done.stderr


def test_a_map_that_has_ended_has_no_task_beyond_its_calls(client, shared_site):
    """The books have no total of it, and the command said that the task had printed nothing."""
    results = client.map(abs, [1, 2])
    assert list(results) == [1, 2]
    assert client.job(results.job).wait(200) == "done"
    where = ("--gateway", shared_site.address)
    said = gridfed("logs", results.job, "2", *where).stderr
    assert f"job {results.job} has 2 tasks, numbers 0 to 1: there is no task 2" in said
