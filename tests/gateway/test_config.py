"""What a configuration is checked for beyond its words; see also end_to_end/test_command_line."""

import pytest

from gateway.config import ConfigError, SiteConfig, exposure, read_secret


def test_an_empty_secret_file_is_no_secret_but_a_mistake(tmp_path):
    path = tmp_path / "secret"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="it is empty"):
        read_secret(str(path))


def test_a_secret_that_others_can_read_is_warned_of(tmp_path):
    path = tmp_path / "secret"
    path.write_text("hush")
    path.chmod(0o640)
    assert f"chmod 600 {path}" in exposure(str(path))
    path.chmod(0o600)
    assert not exposure(str(path))


def test_a_home_in_an_address_to_listen_at_is_found(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    config = SiteConfig(listen=("ipc://~/gw.sock", "tcp://127.0.0.1:0"))
    assert config.addresses == ("ipc:///home/ann/gw.sock", "tcp://127.0.0.1:0")
