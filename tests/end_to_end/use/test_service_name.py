"""Gateways behind a service name: real DNS, real TLS."""

import hashlib
import os
import ssl
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from support.command import quick
from support.dns_server import DnsServer
from support.processes import Process, Relay, make_certificate, wait_until

from federation import Client
from federation.errors import GatewayUnreachable
from federation.transport import TlsSettings

pytestmark = pytest.mark.real
NAME = "grid.example.com"
ASKED = f"_gridfed._tcp.{NAME}"
SERVICE = f"srv://{NAME}"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A gateway whose certificate has the service name, and a DNS server."""
    both, alone = make_certificate(tmp_path, dns_name=NAME)
    config = tmp_path / "site.toml"
    config.write_text(f'[site]\ntls_certificate_file = "{both}"\n')
    listen = ("--listen", "tls+tcp://127.0.0.1:0", "--state", str(tmp_path / "state"))
    arguments = ["up", "--slots", "1", *listen, "--config", str(config), "--json"]
    gateway = Process(arguments, tmp_path, "gateway")
    with ExitStack() as open_now:
        open_now.callback(gateway.stop)
        (address,) = gateway.wait_ready()["addresses"]
        dns = open_now.enter_context(DnsServer())
        monkeypatch.setenv("GRIDFED_DNS_SERVER", dns.address)
        yield SimpleNamespace(
            address=address,
            dns=dns,
            certificate=str(alone),
        )


def record(priority, address, weight=0):
    return f"{priority} {weight} {address.rpartition(':')[2]} localhost."


def at_localhost(address):
    return address.replace("127.0.0.1", "localhost")


def test_the_nearest_of_the_best_priority_is_taken_then_the_next_priority(site, monkeypatch):
    monkeypatch.setattr("federation.engine.engines.NEARER_S", 0.0)
    tls = TlsSettings(ca_file=site.certificate)
    with ExitStack() as relays:
        far = relays.enter_context(Relay(site.address, 0.4))
        near = relays.enter_context(Relay(site.address))
        port = int(near.address.rpartition(":")[2])
        site.dns.records[ASKED] = [
            record(10, far.address, 100),
            record(10, near.address),
            record(20, site.address),
        ]
        made = Client(SERVICE, tls=tls, failover_s=0.2, connect_timeout_s=100.0)
        found = made.gateway
        assert found["address"] == at_localhost(near.address)
        assert found["addresses"][-1] == at_localhost(site.address)
        assert f"of 3 gateways ({SERVICE}, given)" in found["why"]
        assert made.submit(abs, -1).result(200) == 1
        text = quick("status", "--client", "--tls-ca-file", site.certificate, "--gateway", SERVICE)
        assert at_localhost(near.address) in text
        assert f"{at_localhost(site.address)}  not asked: a worse priority" in text
    assert made.submit(abs, -2).result(200) == 2
    assert made.address == at_localhost(site.address)

    def is_back():
        assert made.submit(abs, -3).result(200) == 3
        return made.address == at_localhost(near.address)

    with Relay(site.address, at_port=port):
        wait_until(is_back)
        made.shutdown()


def test_a_certificate_with_the_name_that_dns_gave_is_refused(site, tmp_path):
    site.dns.records["_gridfed._tcp.other.example.com"] = [record(1, site.address)]
    tls = TlsSettings(ca_file=site.certificate)
    other = "srv://other.example.com"
    with pytest.raises(GatewayUnreachable, match=r"must have the name other\.example\.com"):
        Client(other, tls=tls, connect_timeout_s=2.0)
    named = TlsSettings(ca_file=site.certificate, server_name=NAME)
    with Client(other, tls=named, connect_timeout_s=100.0) as made:
        assert made.submit(abs, -1).result(200) == 1


def test_a_client_file_keeps_the_service_name(site, tmp_path):
    with Relay(site.address) as gone:
        pass
    site.dns.records[ASKED] = [record(1, site.address), record(1, gone.address)]
    with open(site.certificate) as file:
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).hexdigest()
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "GRIDFED_GATEWAY": ""}
    quick("init", "--client", SERVICE, "--yes", "--fingerprint", digest, **home)
    text = (tmp_path / "config" / "gridfed" / "client.toml").read_text()
    assert f'gateways = ["{SERVICE}"]' in text
    assert "tls_server_name" not in text
    script = "from federation import Client\nwith Client() as c: print(list(c.map(abs, [-7])))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "[7]\n", done.stderr


def test_commands_say_what_is_wrong_with_a_service_name(site):
    said = quick("status", "--gateway", SERVICE, code=5)
    assert f"{SERVICE}: DNS has no name {ASKED} (NXDOMAIN)" in said
    assert "has no port" in quick("status", "--gateway", f"{SERVICE}:7461", code=2)
    from_environment = {"GRIDFED_GATEWAY": f"{SERVICE},{site.address}"}
    with_file = ("--tls-ca-file", site.certificate)
    assert site.address in quick("status", "--client", *with_file, **from_environment)
