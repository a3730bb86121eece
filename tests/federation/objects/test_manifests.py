"""The identity of objects (federation.objects.manifests)."""

import hashlib
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.objects import manifests
from federation.objects.manifests import (
    BLAKE3,
    BLOCK_BYTES,
    SHA256,
    digest_text,
    is_digest,
    make_manifest,
    read_digest,
)

ALGORITHMS = [SHA256, *([BLAKE3] if manifests.HAS_BLAKE3 else [])]
parts = st.lists(st.binary(max_size=50), min_size=1, max_size=5)


def views(given):
    return [memoryview(each) for each in given]


@given(parts, parts)
def test_objects_have_one_digest_exactly_if_their_parts_are_equal(one, other):
    for algorithm in ALGORITHMS:
        digests = [make_manifest(views(each), algorithm).digest for each in (one, other)]
        assert (digests[0] == digests[1]) == (one == other)


def test_a_digest_is_that_of_the_layout_and_the_blocks():
    found = make_manifest(views([b"ab", b""]), SHA256)
    block = hashlib.sha256(b"ab").digest()
    packed = struct.pack("!4sBQQ", b"gfm1", SHA256, 2, 1) + struct.pack("!QQ", 2, 0) + block
    assert found.digest == bytes([SHA256]) + hashlib.sha256(packed).digest()


def test_blocks_do_not_span_parts_and_a_wrong_one_is_found():
    large = bytearray(BLOCK_BYTES + 10)
    manifest = make_manifest([memoryview(b"head"), memoryview(large)])
    assert len(manifest.blocks) == 3
    assert manifest.differing([memoryview(b"head"), memoryview(large)]) == []
    large[-1] = 1
    assert manifest.differing([memoryview(b"head"), memoryview(large)]) == [2]
    with pytest.raises(ValueError, match="sizes"):
        manifest.differing([memoryview(b"head")])


def test_equal_buffers_of_other_objects_have_equal_blocks():
    buffer = memoryview(b"x" * 1000)
    one = make_manifest([memoryview(b"1"), buffer])
    other = make_manifest([memoryview(b"2"), memoryview(b"3"), buffer])
    assert one.blocks[-1] == other.blocks[-1]
    assert one.digest != other.digest


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_text_of_a_digest_is_read_back(algorithm):
    digest = make_manifest(views([b"x"]), algorithm).digest
    assert is_digest(digest)
    assert read_digest(digest_text(digest)) == digest


def test_the_two_hashes_never_compare_equal():
    found = {make_manifest(views([b"x"]), each).digest for each in ALGORITHMS}
    assert len(found) == len(ALGORITHMS)


@pytest.mark.parametrize("text", ["", "b3:", "xx:" + "00" * 32, "b3:" + "zz" * 32, "00" * 33])
def test_other_texts_are_no_digests(text):
    with pytest.raises(ValueError):  # noqa: PT011 - of bytes.fromhex, too
        read_digest(text)


def test_an_unknown_algorithm_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="algorithm 9"):
        make_manifest(views([b"x"]), 9)
    monkeypatch.setattr(manifests, "_blake3", None)
    with pytest.raises(ValueError, match="algorithm 3"):
        make_manifest(views([b"x"]), BLAKE3)


def test_threads_find_the_same_digest(monkeypatch):
    monkeypatch.setattr(manifests, "BLOCK_BYTES", 10)
    given = [memoryview(bytes(range(each))) for each in (95, 0, 10, 33)]
    with ThreadPoolExecutor(3) as pool:
        assert make_manifest(given, spread=pool.map) == make_manifest(given)
