"""A site that others reach by TLS alone: its pools, its commands, and clients inside tasks."""

import os
import subprocess
import sys

import pytest
from support.answers import answer
from support.processes import Process, make_certificate

from federation import Client
from federation.transport import TlsSettings

pytestmark = pytest.mark.real

SERVER = "localhost"


@pytest.fixture
def start(tmp_path):
    """Start gridfed processes; ended in the end, last first."""
    started = []

    def start_(*arguments, **environment):
        name = f"{arguments[0]}{len(started)}"
        started.append(Process([*arguments], tmp_path, name, **environment))
        return started[-1]

    yield start_
    for process in reversed(started):
        process.stop()


@pytest.fixture
def start_gateway(tmp_path, start):
    """Start a gateway that listens by TLS alone: its address, and the file to believe it by."""
    both, alone = make_certificate(tmp_path)
    config = tmp_path / "site.toml"
    config.write_text(f'[site]\ntls_certificate_file = "{both}"\n')

    def start_(*verb):
        listen = ("--listen", "tls+tcp://127.0.0.1:0", "--state", str(tmp_path / "state"))
        process = start(*verb, *listen, "--config", str(config), "--json")
        (address,) = process.wait_ready()["addresses"]
        return address, alone

    return start_


def test_a_pool_and_the_commands_need_no_more_than_the_environment(start_gateway):
    address, ca_file = start_gateway("up", "--slots", "1")
    environment = {
        **os.environ,
        "GRIDFED_GATEWAY": address,
        "GRIDFED_TLS_CA_FILE": ca_file,
        "GRIDFED_TLS_SERVER_NAME": SERVER,
    }
    status = [sys.executable, "-m", "gateway", "status", "--json"]
    done = subprocess.run(status, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = answer(done.stdout)
    assert [pool["workers"] for pool in found["pools"]] == [1]
    assert found["addresses"] == [address]


def nested():
    with Client() as inner:
        return inner.address, inner.submit(pow, 2, 5).result(timeout=300)


def test_a_client_inside_a_task_believes_whom_its_worker_believes(start_gateway, start):
    address, ca_file = start_gateway("gateway")
    tls = ("--tls-ca-file", ca_file, "--tls-server-name", SERVER)
    start("worker", "--gateway", address, "--slots", "2", *tls)
    with Client(address, tls=TlsSettings(ca_file=ca_file, server_name=SERVER)) as client:
        assert client.submit(nested).result(timeout=300) == (address, 32)
