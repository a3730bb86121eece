"""A worker's description of itself."""

import socket

from gateway.worker.agent import AgentSettings

SETTINGS = AgentSettings("ipc:///nowhere", name="w-1", slots=1, pool="risk")


def test_a_job_of_this_site_learns_the_worker_and_its_host():
    assert SETTINGS.label("01abc") == f"worker w-1 (host {socket.gethostname()}, pool risk)"


def test_a_job_of_another_site_learns_the_pool_alone():
    assert SETTINGS.label("paris:paris-1-2") == "a worker of pool risk"
