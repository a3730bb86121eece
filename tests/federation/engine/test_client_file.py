"""The client configuration file: what it may hold, and mistakes in it."""

import pytest

from federation.engine.client_file import ClientFileError, client_file_path, read_client_file
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
        ("gateways = [", "client.toml: "),
        ("\xff", "client.toml: "),
    ],
)
def test_a_mistake_names_the_file_and_the_key(write, text, why):
    write(text)
    with pytest.raises(ClientFileError, match=r"client\.toml") as caught:
        read_client_file()
    assert why in str(caught.value)


def test_a_token_that_others_can_read_is_refused(write):
    write('gateways = "tcp://a:1"\ntoken_file = "token"', token="gft1.abc", mode=0o640)
    with pytest.raises(ClientFileError, match="chmod 600"):
        read_client_file()
