"""The imports of an agent's process: it starts on each host, and for each pilot."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.real


HEAVY = {"alembic", "apscheduler", "cryptography", "httpx2", "sqlalchemy"}
OF_GATEWAYS = {"gateway.scheduler.broker", "gateway.scheduler.model.events", "gateway.site"}


def _loaded(code):
    code += "; import sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_an_agent_is_light():
    assert (
        _loaded("import gateway.worker.agent") & (HEAVY | OF_GATEWAYS | {"click", "rich"}) == set()
    )


def test_the_command_of_a_worker_is_light():
    code = (
        "from gateway.cli.main import cli; assert cli.get_command(None, 'worker').name == 'worker'"
    )
    assert _loaded(code) & (HEAVY | OF_GATEWAYS) == set()
