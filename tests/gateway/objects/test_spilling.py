"""Files on disk in place of memory (gateway.objects.spilling)."""

import os
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from federation.objects.segments import create
from gateway.objects.spilling import PREFIX, clear_folder, spill

SIZE = 3_000_000


@pytest.fixture
def segment():
    segment = create(SIZE)
    segment.write([(0, memoryview(os.urandom(SIZE)))])
    segment.seal()
    yield segment
    segment.close()


def test_a_file_on_disk_has_the_bytes_no_name_and_is_for_reading_alone(segment, tmp_path):
    file = spill(segment.descriptor, SIZE, tmp_path)
    try:
        assert os.pread(file, SIZE, 0) == os.pread(segment.descriptor, SIZE, 0)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(file, b"x", 0)
    finally:
        os.close(file)


def test_another_user_of_the_folder_finds_no_name_and_can_not_put_a_file_in_the_place_of_one(
    segment, tmp_path, monkeypatch
):
    wanted = os.pread(segment.descriptor, SIZE, 0)
    made = tempfile.mkstemp
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "mkstemp", Mock(side_effect=AssertionError))
        os.close(spill(segment.descriptor, SIZE, tmp_path))

    def replaced(**given):
        file, name = made(**given)
        os.rename(name, f"{name}-mine")
        Path(name).write_bytes(b"other bytes")
        return file, name

    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # a file system without them
    monkeypatch.setattr(tempfile, "mkstemp", replaced)
    file = spill(segment.descriptor, SIZE, tmp_path)
    assert os.pread(file, SIZE, 0) == wanted
    os.close(file)


def test_a_full_disk_leaves_nothing(segment, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        spill(segment.descriptor, SIZE, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_ends_too_early_is_no_object(segment, tmp_path):
    with pytest.raises(OSError, match="ends after 3,000,000 of 3,000,001 bytes"):
        spill(segment.descriptor, SIZE + 1, tmp_path)


def test_the_next_host_removes_names_that_a_killed_one_has_left(tmp_path):
    folder = tmp_path / "deep" / "spill"
    clear_folder(folder)
    (folder / f"{PREFIX}abc").touch()
    (folder / "other").touch()
    clear_folder(folder)
    assert [each.name for each in folder.iterdir()] == ["other"]
    assert folder.stat().st_mode & 0o777 == 0o700
