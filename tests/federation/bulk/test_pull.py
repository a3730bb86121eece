"""Objects on their way, block by block (federation.bulk.pull)."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.bulk import pull
from federation.bulk.pull import BadManifest, BlockMap, BlockPull
from federation.objects import manifests
from federation.objects.manifests import SHA256, make_manifest, place

BLOCK = 8


@pytest.fixture(autouse=True, scope="module")
def _small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "BLOCK_BYTES", BLOCK)
        patch.setattr(pull, "BLOCK_BYTES", BLOCK)
        yield


class Holding:
    """An object as a holder has it: its manifest, its digest, and its bytes."""

    def __init__(self, parts):
        self.manifest = make_manifest([memoryview(each) for each in parts], SHA256)
        offsets, self.size = place(len(parts[0]), [len(each) for each in parts[1:]])
        self.data = bytearray(self.size)
        for at, each in zip((0, *offsets), parts, strict=True):
            self.data[at : at + len(each)] = each
        self.map = BlockMap(self.manifest, self.size)

    @property
    def raw(self):
        return self.manifest.to_bytes()

    def block(self, number):
        at, length = self.map.where(number)
        return bytes(self.data[at : at + length])


def begin(held, *holders):
    found = BlockPull(held.manifest.digest, held.size)
    for each in holders:
        found.meet(each, held.raw)
    return found


def take(found, held, into, holder, number):
    """A block comes as it is there: it is checked, written and copied to its equals."""
    block = held.block(number)
    assert found.is_asked(holder, number, len(block))
    assert found.is_good(number, block)
    for each in [number, *found.arrived(holder, number)]:
        at, length = found.where(each)
        into[at : at + length] = block


parts = st.lists(st.binary(max_size=60), min_size=1, max_size=5).filter(lambda each: each[0])


@given(parts, st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 40))
def test_any_object_arrives_whole_whatever_its_holders_do(given_parts, seed, holders, owed):
    """Holders leave, lie, and come back to a transfer that was cut off; one is honest."""
    dice = random.Random(seed)
    held = Holding(given_parts)
    names = [f"holder {number}" for number in range(holders)]
    found = begin(held, *names)
    into = bytearray(held.size)
    while not found.is_done:
        holder = dice.choice(names)
        chance = dice.random()
        if chance < 0.05 and holder != names[0]:
            found.lost(holder, "it is gone")
        for first, stop in found.want(holder, owed):
            for number in range(first, stop):
                if not found.is_asked(holder, number, len(held.block(number))):
                    continue
                if chance > 0.9 and holder != names[0]:
                    assert not found.is_good(number, b"\xff" + held.block(number))
                    assert holder in found.bad(holder, number)
                    assert found.want(holder, owed) == []
                else:
                    take(found, held, into, holder, number)
        if dice.random() < 0.1:  # this process ends, and the next one goes on
            here = [
                n for n in range(len(held.map)) if into_has(into, held, n) and dice.random() < 0.9
            ]
            found = begin(held, *names)
            for one, other in found.have(here):
                (at, length), (to, _) = found.where(one), found.where(other)
                into[to : to + length] = into[at : at + length]
    assert into == held.data
    assert found.left_bytes == 0
    assert found.why_stuck() == ""


def into_has(into, held, number):
    at, length = held.map.where(number)
    return into[at : at + length] == held.data[at : at + length]


def test_blocks_are_asked_of_one_holder_at_a_time_and_only_so_many():
    held = Holding([bytes(range(64))])
    found = begin(held, "one", "two")
    assert found.want("one", 3 * BLOCK) == [(0, 3)]
    assert found.want("one", 3 * BLOCK) == []
    assert found.want("two", 1) == [(3, 4)]  # at least one, so that it goes on
    assert not found.is_asked("two", 0, BLOCK)
    assert not found.is_asked("one", 0, BLOCK - 1)
    found.lost("one", "it is gone")
    assert found.want("one", 3 * BLOCK) == []
    assert found.want("two", 100 * BLOCK) == [(0, 3), (4, 8)]


def test_equal_blocks_move_once():
    held = Holding([b"head", bytes(10 * BLOCK), b"other"])
    found = begin(held, "one")
    into = bytearray(held.size)
    asked = found.want("one", 1 << 20)
    assert sum(stop - first for first, stop in asked) == 3
    for first, stop in asked:
        for number in range(first, stop):
            take(found, held, into, "one", number)
    assert found.is_done
    assert into == held.data
    assert found.sent_bytes("one") == len(b"head") + BLOCK + len(b"other")


def test_a_bad_block_names_its_sender_and_is_asked_of_another():
    held = Holding([bytes(range(16))])
    found = begin(held, "honest", "liar")
    assert found.want("liar", 1) == [(0, 1)]
    assert not found.is_good(0, b"x" * BLOCK)
    assert "liar: block 0" in found.bad("liar", 0)
    assert found.sent_bytes("liar") == 0
    assert found.want("honest", 100) == [(0, 2)]
    found.lost("honest", "it is gone")
    assert "liar: block 0" in found.why_stuck()
    assert "honest: it is gone" in found.why_stuck()


def test_a_lost_holder_may_come_back_and_a_liar_may_not():
    held = Holding([bytes(range(16))])
    found = begin(held, "slow", "liar")
    assert found.want("slow", 1) == [(0, 1)]
    assert found.want("liar", 1) == [(1, 2)]
    found.lost("slow", "silence")
    found.bad("liar", 1)
    found.meet("slow", held.raw)
    with pytest.raises(BadManifest, match="bad block before"):
        found.meet("liar", held.raw)
    assert found.want("slow", 100) == [(0, 2)]
    assert found.why_stuck() == ""


def test_a_manifest_proves_itself_by_the_digest():
    held, other = Holding([b"one"]), Holding([b"other"])
    found = BlockPull(held.manifest.digest, held.size)
    with pytest.raises(BadManifest, match=r"s2:.* from liar: the manifest is not that"):
        found.meet("liar", other.raw)
    assert "liar" in found.why_stuck()
    found.meet("honest", held.raw)
    with pytest.raises(BadManifest, match="not that of the object"):
        found.meet("later", other.raw)
    assert found.want("later", 100) == []
    assert found.want("honest", 100) == [(0, 1)]


def test_an_object_of_another_size_than_was_said_is_refused():
    held = Holding([b"one"])
    found = BlockPull(held.manifest.digest, held.size + 1)
    with pytest.raises(BadManifest, match="have 3 bytes and not 4"):
        found.meet("one", held.raw)


@given(st.binary(max_size=100))
def test_a_manifest_of_any_bytes_that_hash_well_is_checked(data):
    digest = bytes([SHA256]) + manifests._hash(SHA256, data)
    with pytest.raises(ValueError, match=r"cut short|agree with itself"):
        manifests.read_manifest(data, digest)


def test_too_many_holders_are_refused():
    held = Holding([b"one"])
    found = begin(held, *map(str, range(pull.HOLDERS_MAX)))
    with pytest.raises(BadManifest, match="more than 16 holders"):
        found.meet("one more", held.raw)
