"""Huge pages for large objects (federation.objects.huge_pages)."""

import os
import re
from pathlib import Path

import pytest

from federation.objects import huge_pages, mappings, segments
from federation.objects.huge_pages import MADV_COLLAPSE, HugePages
from federation.objects.mappings import HUGE_BYTES, advise, map_range, unmap_range
from federation.objects.segments import create

SIZE = 5 * (2 << 20) + 3


def can_collapse():
    """Whether this kernel makes huge pages of files in memory."""
    if not HUGE_BYTES or HUGE_BYTES > SIZE:
        return False
    segment = create(HUGE_BYTES)
    os.pwrite(segment.descriptor, b"x", 0)
    address = map_range(segment.descriptor, HUGE_BYTES)
    try:
        return advise(address, HUGE_BYTES, MADV_COLLAPSE)
    finally:
        unmap_range(address, HUGE_BYTES)
        segment.close()


def huge_mapped_bytes():
    """Return the bytes of files in memory that this process has mapped by huge pages."""
    text = Path("/proc/self/smaps").read_text(encoding="ascii")
    return sum(int(found) << 10 for found in re.findall(r"(?:Shmem|File)PmdMapped: +(\d+)", text))


def data_of(size=SIZE):
    return memoryview(os.urandom(1 << 16) * (size // (1 << 16) + 1))[:size]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_large_object_is_written_and_read_by_huge_pages(monkeypatch, threads):
    monkeypatch.setattr(huge_pages, "SLOW_S", 60.0)
    if not can_collapse():
        pytest.skip("this kernel makes no huge pages of files in memory")
    monkeypatch.setattr(segments, "SPREAD_BYTES", 1 << 20)
    data, segment = data_of(), create(SIZE)
    before = huge_mapped_bytes()
    segment.write([(0, data[:100]), (128, data[128:])], threads)
    segment.seal()
    view = segment.view()
    assert view[:100] == data[:100]
    assert view[128:] == data[128:]
    assert huge_mapped_bytes() - before >= 4 * HUGE_BYTES  # the last one does not lie in it whole
    segment.close()


def test_a_kernel_without_them_writes_the_same(monkeypatch):
    asked = []
    monkeypatch.setattr(huge_pages, "advise", lambda *args: asked.append(args))
    data, segment = data_of(), create(SIZE)
    segment.write([(0, data)])
    assert segment.view() == data
    assert len(asked) <= 1  # not tried again for this object
    monkeypatch.setattr(huge_pages, "HUGE_BYTES", 0)
    other = create(SIZE)
    other.write([(0, data)])
    assert other.view() == data


def test_where_they_cost_more_than_small_ones_only_two_are_made(monkeypatch):
    clock, asked = [0.0], []

    def advise_slowly(*args):
        asked.append(args)
        clock[0] += 0.004
        return True

    monkeypatch.setattr(huge_pages, "advise", advise_slowly)
    monkeypatch.setattr(huge_pages.time, "thread_time", lambda: clock[0])
    data, segment = data_of(), create(SIZE)
    segment.write([(0, data)])
    assert segment.view() == data
    assert len(asked) in (0, 2)  # none where there are no huge pages


def test_a_file_that_can_not_be_mapped_gets_plain_pages(monkeypatch):
    def refuse(*_):
        raise OSError(12, "no room")

    monkeypatch.setattr(huge_pages, "map_range", refuse)
    data, segment = data_of(), create(SIZE)
    segment.write([(0, data)])
    assert segment.view() == data


def test_what_was_written_before_stays():
    segment = create(SIZE)
    os.pwrite(segment.descriptor, b"here", 0)
    os.pwrite(segment.descriptor, b"there", HUGE_BYTES or 100)
    with HugePages(segment.descriptor, SIZE) as pages:
        pages.make(0, SIZE)
        pages.make(0, SIZE)
    view = segment.view()
    assert view[:5] == b"here\0"
    assert view[HUGE_BYTES or 100 :][:5] == b"there"


def test_large_mappings_are_aligned_and_leave_nothing_around_them():
    if not HUGE_BYTES:
        pytest.skip("this system has no huge pages")
    segment = create(HUGE_BYTES + 5000)
    address = map_range(segment.descriptor, segment.size)
    assert not address % HUGE_BYTES
    text = Path("/proc/self/maps").read_text(encoding="utf-8")
    around = [line.split()[0] for line in text.splitlines()]
    stop = address + HUGE_BYTES + 8192
    assert f"{address:x}-{stop:x}" in around
    assert not any(each.startswith(f"{stop:x}-{stop + HUGE_BYTES:x}") for each in around)
    unmap_range(address, segment.size)


def test_a_mapping_that_fails_gives_its_addresses_back():
    if not HUGE_BYTES:
        pytest.skip("this system has no huge pages")
    reading, writing = os.pipe()
    before = len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())
    for _ in range(20):
        with pytest.raises(OSError, match="can't be mapped"):
            mappings.map_range(reading, HUGE_BYTES)
    after = len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())
    assert after - before < 10
    os.close(reading)
    os.close(writing)
