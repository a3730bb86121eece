"""What an agent's process pulls in: it starts on each host, and for each pilot."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.real


def test_an_agent_is_light():
    code = "import gateway.worker.agent, sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded & {"sqlalchemy", "apscheduler", "click", "rich", "httpx2"} == set()
    assert (
        loaded & {"gateway.scheduler.broker", "gateway.scheduler.model.events", "gateway.site"}
        == set()
    )
