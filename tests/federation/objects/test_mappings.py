"""Files that are mapped without a descriptor (federation.objects.mappings)."""

import gc
import os

import pytest

from federation.objects import mappings
from federation.objects.segments import create


def filled(size):
    segment = create(size)
    segment.write([(0, memoryview(bytes(range(256)) * (size // 256)))])
    segment.seal()
    return segment


def test_a_mapping_keeps_no_descriptor_and_lasts_as_long_as_a_view_of_it():
    segment, before = filled(4096), len(os.listdir("/proc/self/fd"))
    mapped = len(mappings._mapped)
    views = [segment.view()[1:3] for _ in range(10)]
    assert len(os.listdir("/proc/self/fd")) == before
    segment.close()
    gc.collect()
    assert len(mappings._mapped) == mapped + 10
    assert bytes(views[0]) == b"\x01\x02"
    views.clear()
    gc.collect()
    assert len(mappings._mapped) == mapped


def test_shared_bytes_are_read_only_and_private_ones_are_copied_where_they_change():
    segment = filled(4096)
    with pytest.raises(TypeError, match="read-only"):
        segment.view()[0] = 9
    own = segment.view(is_private=True)
    own[0] = 9
    assert (own[0], segment.view()[0]) == (9, 0)


def test_a_file_that_cannot_be_mapped_is_an_error_of_the_system():
    segment = filled(256)
    segment.close()
    with pytest.raises(OSError, match="256 bytes can't be mapped"):
        segment.view()


def test_there_is_room_for_half_of_the_mappings_that_the_kernel_allows(monkeypatch):
    assert mappings.has_room()
    monkeypatch.setattr(mappings, "MAPPED_MAX", 0)
    assert not mappings.has_room()
