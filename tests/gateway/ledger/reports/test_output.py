"""A file is there whole or not at all."""

from pathlib import Path

import pytest

from gateway.ledger.db.errors import StoreError
from gateway.ledger.output.files import write_whole


def test_a_file_is_replaced_and_nobody_else_reads_it(tmp_path: Path):
    path = tmp_path / "out.csv"
    path.write_text("old")
    write_whole(path, lambda part: part.write_text("new") and None)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [path]


def test_what_goes_wrong_leaves_what_was_there(tmp_path: Path):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail(part: Path) -> None:
        part.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(path, fail)
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_full_disk_and_a_folder_that_is_not_there_are_told(tmp_path: Path):
    def fill(part: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        write_whole(tmp_path / "out.csv", fill)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(StoreError, match="No such file"):
        write_whole(tmp_path / "nowhere" / "out.csv", fill)
