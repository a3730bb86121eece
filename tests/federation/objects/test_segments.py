"""Files without a name that hold objects (federation.objects.segments)."""

import mmap
import os
import subprocess
import sys
import tempfile

import pytest

from federation.objects import segments
from federation.objects.segments import SegmentError, adopt, create


def written(data=b"abc", *, seal=True):
    segment = create(len(data))
    segment.write([(0, memoryview(data))])
    if seal:
        segment.seal()
    return segment


def test_what_was_written_is_read_without_a_copy_and_can_not_be_changed():
    segment = written(b"abcdef")
    view = segment.view()
    assert bytes(view) == b"abcdef"
    assert view.readonly
    for change in (
        lambda: os.pwrite(segment.descriptor, b"x", 0),
        lambda: os.ftruncate(segment.descriptor, 3),
        lambda: mmap.mmap(segment.descriptor, 6),
    ):
        with pytest.raises(OSError, match=r"."):
            change()


@pytest.mark.real
def test_a_segment_that_outlives_its_module_is_closed_without_a_word():
    script = "import threading; from federation.objects import segments\n"
    script += "threading.kept = segments.create(3), segments"  # cleared late
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""


def test_a_view_outlives_the_descriptor():
    segment = written()
    view = segment.view()
    segment.close()
    segment.close()
    assert bytes(view) == b"abc"


def test_a_file_that_is_still_mapped_for_writing_is_not_taken():
    segment = written(seal=False)
    writer = mmap.mmap(segment.descriptor, 3)
    with pytest.raises(SegmentError, match="written to"):
        segment.seal()
    with pytest.raises(SegmentError, match="written to"):
        adopt(os.dup(segment.descriptor), 3)
    writer.close()
    adopt(os.dup(segment.descriptor), 3).close()


def test_a_descriptor_of_another_process_is_sealed_when_it_is_taken():
    segment = written(seal=False)
    taken = adopt(os.dup(segment.descriptor), 3)
    with pytest.raises(PermissionError):
        segment.write([(0, memoryview(b"x"))])
    assert bytes(taken.view()) == b"abc"


def test_other_files_are_refused_and_closed(tmp_path):
    reading, writing = os.pipe()
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    wrong = os.memfd_create("other", os.MFD_CLOEXEC)  # it allows no seals
    os.write(wrong, b"abc")
    for descriptor in (reading, os.open(path, os.O_RDWR), wrong):
        with pytest.raises(SegmentError):
            adopt(descriptor, 3)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    os.close(writing)


def test_a_file_of_another_size_is_refused():
    segment = written()
    for size in (2, 4, 0):
        with pytest.raises(SegmentError, match="bytes"):
            adopt(os.dup(segment.descriptor), size)


def test_without_memfds_files_are_copied_and_leave_no_name(monkeypatch, tmp_path):
    monkeypatch.setattr(segments, "HAS_MEMFD", False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    given = written(b"x" * 3_000_000)
    assert os.listdir(tmp_path) == []
    taken = adopt(os.dup(given.descriptor), given.size)
    given.write([(0, memoryview(b"y"))])
    assert bytes(taken.view()) == b"x" * 3_000_000


def test_threads_write_the_same_bytes_and_a_full_host_is_told(monkeypatch):
    monkeypatch.setattr(segments, "SPREAD_BYTES", 100)
    monkeypatch.setattr(segments, "SLICE_BYTES", 7)
    pieces = [(0, memoryview(bytes(range(50)))), (64, memoryview(bytes(range(100, 200))))]
    one, other = create(164), create(164)
    one.write(pieces)
    other.write(pieces, threads=3)
    assert bytes(one.view()) == bytes(other.view())
    other.close()
    with pytest.raises(OSError, match="descriptor"):
        other.write(pieces, threads=3)
