"""Limits of a task towards its own gateway, and its right to be a client as its user.

Real processes, as an attacker's task would meet them.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

import cloudpickle
import psutil
import pytest
from support.processes import wait_until

from federation import Client
from federation.address import NoToken
from federation.errors import GridError, SessionRefused

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SECRET = "a-secret-of-the-site-" + "0123456789abcdef" * 3
PRIVATE = ("GRIDFED_SECRET", "GRIDFED_CONFIG_DIR")


def nested(base):
    """Work of a task's own, at its own gateway."""
    with Client() as client:
        mine = list(client.options(name="nested").map(pow, [base] * 3, range(3)))
        jobs = [each for each in client.ask("jobs") if each["name"] == "nested"]
        return mine, {(each["user"], each["project"]) for each in jobs}


def wait_inside():
    """A task that needs a slot while it keeps the only one: the error that it gets."""
    with Client() as client:
        inner = client.options(name="inner").submit(pow, 2, 3)
        try:
            while not (why := inner.why_waiting()):
                time.sleep(0.02)
            return why, client.job(inner.job).why_waiting(), inner.done()
        finally:
            inner.cancel()


def overstep():
    """A task's requests beyond its rights, and their refusals."""
    refused = {}
    with Client(user="another writer") as client:
        for verb, details in (
            ("token", {"user": "root", "scopes": ["admin"]}),
            ("report", {"kind": "cost"}),
            ("drain", {}),
            ("reload", {}),
        ):
            try:
                client.ask(verb, **details)
                refused[verb] = "no"
            except GridError as error:
                refused[verb] = type(error).__name__ + ": " + str(error)
        try:
            client.options(project="another").submit(pow, 2, 2).result()
            refused["project"] = "no"
        except GridError as error:
            refused["project"] = str(error)
    return refused


def come_in(**how):
    """How a task comes in by something else than its pass."""
    try:
        with Client(connect_timeout_s=20.0, **how) as client:
            return client.ask("status")["site"]
    except GridError as error:
        return f"{type(error).__name__}: {error}"


def come_in_from_afar(**how):
    """The same, by a process that has left its session, and whose parents are gone."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while os.getppid() == os.getpgrp():  # until our parent is gone
                time.sleep(0.01)
            code = "import sys, cloudpickle; print(cloudpickle.loads(sys.stdin.buffer.read())())"
            # nng does not live in a fork: a program of its own.
            import subprocess

            done = subprocess.run(
                [sys.executable, "-c", code],
                input=cloudpickle.dumps(lambda: come_in(**how)),
                capture_output=True,
                check=False,
            )
            os.write(writing, done.stdout + done.stderr)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        return answer.read()


def shown_in(pids, word):
    """The processes in whose environment the kernel shows a word; those that have ended do not."""
    found = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if word in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def variables():
    return {name: os.environ[name] for name in PRIVATE if name in os.environ}


@pytest.fixture(params=["ipc", "tcp with a secret"])
def site(request, make_site, monkeypatch):
    if request.param == "ipc":
        return make_site(2)
    monkeypatch.setenv("GRIDFED_SECRET", SECRET)
    return make_site(2, "--listen", "tcp://127.0.0.1:0")


def test_a_task_is_a_client_as_the_user_of_its_job(site):
    with site.client(user="ada") as client:
        view = client.options(project="risk")
        assert view.submit(nested, 3).result() == ([1, 3, 9], {("ada", "risk")})
        refused = view.submit(overstep).result()
    for verb in ("token", "report", "drain", "reload"):
        assert "lacks the scope" in refused[verb], refused
    assert "risk" in refused["project"]


def test_a_task_that_waits_for_work_of_its_own_is_told_that_it_may_wait_for_ever(make_site):
    site = make_site(1)
    with site.client() as client:
        why, of_job, is_done = client.submit(wait_inside).result(60)
    assert not is_done
    for text in (why, of_job):
        assert text.startswith("the only slot is busy. Its client is a task, which keeps a slot")
        assert text.endswith("none proceeds until one ends at its timeout_s")


def test_a_pass_is_of_no_use_when_its_job_has_ended(site):
    with site.client(user="ada") as client:
        (text,) = client.submit_job(os.getenv, ["GRIDFED_TOKEN"]).results()
    assert text.startswith("gfp1_")

    def is_refused():
        try:
            Client(site.address, token=text).shutdown()
        except SessionRefused as error:
            return error.code == "pass"
        return False

    wait_until(is_refused, "the pass is refused")


def test_a_task_holds_nothing_of_the_site(site):
    with site.client() as client:
        assert client.submit(variables).result() == {}
        below = psutil.Process(site.gateway.pid).children(recursive=True)
        pids = [site.gateway.pid, *(each.pid for each in below)]
        assert len(pids) >= 3  # the gateway, its worker, a slot
        assert client.submit(shown_in, pids, SECRET.encode()).result() == []


def test_a_slot_is_not_its_owner_at_the_gateways_socket(site):
    """Neither without a pass, nor from a process that has left its session and its parents."""
    with site.client() as client:
        assert client.ask("status")["site"] == "local"  # we are
        for attempt in (come_in, come_in_from_afar):
            refusal = client.submit(attempt, token=NoToken()).result()
            assert "SessionRefused" in refusal, refusal


def test_a_pass_makes_no_worker(site):
    """The credentials of a task are good for clients alone."""
    with site.client() as client:
        text = client.submit(os.getenv, "GRIDFED_TOKEN").result()
        worker = site.add_worker(1, "--token-file", str(_write(site.folder / "pass", text)))
        assert worker.process.wait(300) != 0
        assert "this pass is" in worker.text()


def _write(path, text):
    path.write_text(text)
    return path


def test_work_of_a_task_is_taken_by_a_worker_of_another_kind(make_site):
    """A worker that dials in by itself hands passes on, too."""
    site = make_site(0)
    site.add_worker(2)
    with site.client(user="ada") as client:
        assert client.submit(nested, 2).result() == ([1, 2, 4], {("ada", "default")})


def test_a_pass_of_nobody_is_refused(site):
    for text in (f"gfp1_{'00' * 32}_job:none", f"gfp1_{'00' * 32}_worker"):
        with pytest.raises(SessionRefused):
            Client(site.address, token=text)
