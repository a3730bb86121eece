"""The client configuration file: its keys, and mistakes in it."""

import os

import pytest

from federation.engine.dialling.client_file import (
    ClientFileError,
    client_file_path,
    read_client_file,
)
from federation.transport import TlsSettings


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("GRIDFED_CLIENT_FILE", str(tmp_path / "client.toml"))

    def write_(text, token=None, mode=0o600):
        (tmp_path / "client.toml").write_text(text)
        if token is not None:
            (tmp_path / "token").write_text(token)
            (tmp_path / "token").chmod(mode)

    return write_


def test_without_a_file_there_is_none(monkeypatch, tmp_path):
    monkeypatch.delenv("GRIDFED_CLIENT_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert client_file_path() == tmp_path / "gridfed" / "client.toml"
    assert read_client_file() is None


def test_a_file_names_gateways_and_credentials_beside_it(write, tmp_path):
    (tmp_path / "ca.pem").touch()
    write(
        'gateways = ["tls+tcp://a:1", "tls+tcp://b:2"]\ntoken_file = "token"\n'
        'tls_ca_file = "ca.pem"\ntls_server_name = "grid"\n',
        token="gft1.abc\n",
    )
    found = read_client_file()
    assert found.gateways == ("tls+tcp://a:1", "tls+tcp://b:2")
    assert found.token == "gft1.abc"
    assert found.tls == TlsSettings(None, str(tmp_path / "ca.pem"), "grid")


def test_one_gateway_may_be_a_text(write):
    write('gateways = "tcp://127.0.0.1:1"')
    assert read_client_file().gateways == ("tcp://127.0.0.1:1",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "gateways must be a list"),
        ("gateways = []", "gateways must be a list"),
        ("gateways = [1]", "gateways must be a list"),
        ('gateways = "tcp://a:1"\ngateway = 1', "unknown key 'gateway'"),
        ('gateways = "tcp://a:1"\ntls_ca_file = 3', "tls_ca_file must be a string"),
        ('gateways = "tcp://a:1"\ntoken_file = "none"', "can't be read: No such file"),
        ("gateways = [", "(at end of document)"),
        ("\xff", "client.toml: "),
        ('# x\n\ngateway = "tcp://a:1"', "client.toml: line 3: unknown key 'gateway'"),
        (
            'gateways = [\n"tcp://a:1",\n"tcp://..:1"]',
            "line 3: address 'tcp://..:1': the",
        ),
        (f'gateways = "tcp://{"a" * 300}:1"', "line 1: address 'tcp://aaa"),
        ('gateways = "tcp://a b:1"', "the host must be a DNS name"),
        ('gateways = "tcp://a\\u2028b:1"', "the host must be a DNS name"),
        ('gateways = "tcp://a:99999"', "must end with a port from 0 to 65535"),
        ('gateways = "tcp://a:1"\ntoken_file = "a\\u0000b"', "its name is not valid"),
        ('gateways = "tcp://a:1"\ntls_ca_file = "fifo"', "line 2: tls_ca_file: "),
        ('gateways = "tcp://a:1"\ntoken_file = "fifo"', "it is not a regular file"),
        (f"{'a.' * 20_000}a = 1", "line 1: it has more than 4,096 characters"),
        (f"# x\n{'a.' * 2_000}a = 1", "line 2: unknown key 'a'"),
        # Deeper than any recursion limit: other tests of the same process may have raised it.
        ("x = " + "[\n" * 30_000, "its values are nested too deeply"),
        ("#\n" * 40_000, "it has more than 65,536 bytes"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(write, text, why, tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    write(text)
    with pytest.raises(ClientFileError, match=r"client\.toml") as caught:
        read_client_file()
    assert why in str(caught.value)


def test_a_token_that_others_can_read_is_refused(write):
    write('gateways = "tcp://a:1"\ntoken_file = "token"', token="gft1.abc", mode=0o640)
    with pytest.raises(ClientFileError, match="chmod 600"):
        read_client_file()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_file_that_is_none_is_refused_and_not_waited_for(make, tmp_path, monkeypatch):
    monkeypatch.setenv("GRIDFED_CLIENT_FILE", str(tmp_path / "client.toml"))
    make(tmp_path / "client.toml")
    with pytest.raises(ClientFileError, match="it can't be read: it is not a regular"):
        read_client_file()
