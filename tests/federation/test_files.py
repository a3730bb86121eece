"""Files that a configuration names are read without waiting, and never without an end."""

import os
import pathlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from federation.files import read_regular, shown_path
from gateway.base.secret_files import read_secret, read_token
from gateway.base.values import ConfigError
from gateway.carbon.series import read_series
from gateway.checking.certificates import BadPem, read_pem
from gateway.config.carbon import SeriesConfig


def test_a_regular_file_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(path, 4)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "it"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path = pathlib.Path("/dev/zero")
        case _:
            path.mkdir()
    why = "it is not a regular file"
    with pytest.raises(OSError, match=why):
        read_regular(path, 100)
    with pytest.raises(ConfigError, match=why):
        read_secret(str(path))
    if kind == "pipe":
        with ThreadPoolExecutor() as pool:  # `--token-file <(command)`
            pool.submit(path.write_text, "gf1.x.y\n")
            assert read_token(str(path), from_pipe=True) == "gf1.x.y"
    with pytest.raises(BadPem, match=why):
        read_pem(path)
    with pytest.raises(Exception, match=why):
        read_series(SeriesConfig(file=str(path)))


def test_a_relative_path_is_shown_with_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown_path(Path("gateway.pem")) == f"gateway.pem (in the folder {tmp_path})"
    assert shown_path(tmp_path / "gateway.pem") == f"{tmp_path}/gateway.pem"
