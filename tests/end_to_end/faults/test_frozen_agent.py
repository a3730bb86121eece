"""A task stops the agent of its local pool: the gateway ends it, starts another, and says so."""

import os
import signal
import time

import pytest
from support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]

CONFIG = "[limits]\nheartbeat_s = 0.3\ngrace_s = 2.0\n"


def freeze_agent(mark):
    """Stop the agent the first time."""
    agent = int(mark.read_text()) if mark.exists() else os.getppid()
    if not mark.exists():
        mark.write_text(str(agent))
        os.kill(agent, signal.SIGSTOP)
        time.sleep(3600)
    return "there"


def status(site):
    with site.client() as client:
        return client.ask("status")


def test_a_stopped_agent_is_killed_and_another_takes_its_tasks(make_site, tmp_path):
    site = make_site(1, config=CONFIG)
    with site.client() as client:
        mark = tmp_path / "frozen"
        future = client.submit(freeze_agent, mark)
        wait_until(lambda: mark.exists() and mark.read_text(), "a stopped agent")
        agent = int(mark.read_text())
        told = f"pool local has no worker: its process {agent} runs and does not answer"
        wait_until(
            lambda: any(each["text"].startswith(told) for each in status(site)["problems"]),
            "the status that tells it",
        )
        assert future.result(timeout=300) == "there"
        assert not status(site)["problems"]
    assert not os.path.exists(f"/proc/{agent}")
    assert f"the worker's process {agent} runs, and has had no session for" in site.text()
