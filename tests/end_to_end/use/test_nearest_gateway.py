"""The nearest of several gateways, over links with different delays; the client file."""

import hashlib
import os
import ssl
import subprocess
import sys
from contextlib import ExitStack

import pytest
from support.command import quick
from support.processes import Process, Relay, make_certificate, wait_until

from federation import Client
from federation.engine.engine import ClientEngine

pytestmark = pytest.mark.real


@pytest.fixture
def site(tmp_path):
    """The address of a gateway on a TCP port of the loopback."""
    state = str(tmp_path / "state")
    listen = ("--listen", "tcp://127.0.0.1:0")
    made = Process(["up", "--slots", "1", *listen, "--state", state, "--json"], tmp_path, "gateway")
    (address,) = made.wait_ready()["addresses"]
    yield address
    made.stop()


@pytest.fixture
def link(site):
    """Make ways to the gateway, each with its delay in seconds."""
    with ExitStack() as made:
        yield lambda delay_s: made.enter_context(Relay(site, delay_s))


def test_the_gateway_with_the_shortest_way_is_taken_whatever_the_order(link):
    far, near = link(0.4), link(0.0)
    with Client([far.address, near.address]) as made:
        assert made.submit(abs, -1).result(200) == 1
        found = made.gateway
    assert found["address"] == near.address
    assert found["addresses"] == [near.address, far.address]
    assert found["why"].startswith("nearest of 2 gateways (given): ")
    text = quick("status", "--client", GRIDFED_GATEWAY=f"{far.address},{near.address}")
    assert text.startswith(f"{near.address}: nearest of 2 gateways (from $GRIDFED_GATEWAY)")


def test_a_client_at_the_best_gateway_does_not_look_through_its_jobs_at_each_submit(
    site, monkeypatch
):
    """It did so after half a minute: a client with many jobs became slow, and could fail."""
    monkeypatch.setattr("federation.engine.engines.NEARER_S", 0.0)
    with Client(site) as made:
        with monkeypatch.context() as looking:
            looking.setattr(ClientEngine, "is_idle", property(lambda _: pytest.fail("it looked")))
            assert made.submit(abs, -1).result(200) == 1
        made.shutdown()


def test_a_client_goes_back_to_the_nearer_gateway_once_it_answers_and_nothing_is_under_way(
    link, site, monkeypatch
):
    monkeypatch.setattr("federation.engine.engines.NEARER_S", 0.0)
    far, near = link(0.2), Relay(site)
    with Client([far.address, near.address], failover_s=0.2) as made:
        with near:
            assert made.submit(abs, -1).result(200) == 1
            assert made.address == near.address
        assert made.submit(abs, -2).result(200) == 2
        assert made.address == far.address
        with Relay(site, at_port=int(near.address.rpartition(":")[2])):
            wait_until(lambda: made.submit(abs, -3).result(200) and made.address == near.address)
            assert list(made.map(abs, [-1, -2])) == [1, 2]
            assert made.address == near.address
            made.shutdown()


def test_a_client_file_made_by_a_command_is_all_that_a_program_needs(tmp_path):
    both, alone = make_certificate(tmp_path)
    config = tmp_path / "site.toml"
    config.write_text(f'[site]\ntls_certificate_file = "{both}"\n')
    listen = ("--listen", "tls+tcp://127.0.0.1:0", "--state", str(tmp_path / "state"))
    arguments = ["up", "--slots", "1", *listen, "--config", str(config), "--json"]
    gateway = Process(arguments, tmp_path, "gateway")
    try:
        (address,) = gateway.wait_ready()["addresses"]
        with open(alone) as file:
            digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).hexdigest()
        home = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "GRIDFED_GATEWAY": ""}
        wrong = ("init", "--client", address, "--yes", "--fingerprint", "00" * 32)
        assert "no given --fingerprint is that one" in quick(*wrong, code=1, **home)
        assert not (tmp_path / "config").exists()
        text = quick("init", "--client", address, "--yes", "--fingerprint", digest, **home)
        assert "the only gateway" in text
        assert "exists already" in quick(*wrong, code=1, **home)
        folder = tmp_path / "config" / "gridfed"
        assert (folder / "client.toml").stat().st_mode & 0o777 == 0o600
        script = "from federation import Client\nwith Client() as c: print(list(c.map(abs, [-7])))"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.stdout == "[7]\n", done.stderr
    finally:
        gateway.stop()
