"""The contract of object stores (gateway.objects.stores.contract)."""

import os
import threading

import pytest

from gateway.objects.stores.contract import NotStored, StoreFull
from gateway.objects.stores.files import UNFINISHED, FileObjectStore
from gateway.objects.stores.memory import MemoryObjectStore

STORES = {
    "memory": lambda folder: MemoryObjectStore(),
    "files": FileObjectStore,
    "durable files": lambda folder: FileObjectStore(folder, durable=True),
}


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    return STORES[request.param](tmp_path / "objects")


def test_bytes_come_back_whole_and_by_range(store):
    assert store.put("b3-0a", [b"abc", memoryview(b"defg")])
    assert store.get("b3-0a") == b"abcdefg"
    assert store.get("b3-0a", 2, 5) == b"cde"
    assert store.get("b3-0a", 5) == b"fg"
    assert store.get("b3-0a", 9, 12) == b""
    assert store.size("b3-0a") == 7


def test_the_first_bytes_under_a_name_stay(store):
    assert store.put("a", [b"one"])
    assert not store.put("a", [b"two"])
    assert store.get("a") == b"one"


def test_an_empty_object_is_one(store):
    assert store.put("empty", [])
    assert store.get("empty") == b""
    assert list(store.list()) == ["empty"]


def test_what_is_deleted_is_gone_and_may_be_put_again(store):
    store.put("a", [b"one"])
    assert store.delete("a")
    assert not store.delete("a")
    assert list(store.list()) == []
    with pytest.raises(NotStored):
        store.get("a")
    with pytest.raises(NotStored):
        store.size("a")
    assert store.put("a", [b"two"])


@pytest.mark.parametrize("name", ["", ".", "../a", "a/b", "A", ".put-1", "a" * 201, "a\n"])
def test_a_name_that_could_lead_elsewhere_is_refused(store, name):
    for use in (store.get, store.size, store.delete, lambda given: store.put(given, [b""])):
        with pytest.raises(ValueError, match="not a name"):
            use(name)


def test_pieces_that_end_in_an_error_leave_nothing(store):
    def pieces():
        yield b"half"
        raise RuntimeError("the sender is gone")

    with pytest.raises(RuntimeError):
        store.put("a", pieces())
    assert list(store.list()) == []
    assert store.put("a", [b"whole"])


def test_of_many_writers_of_a_name_one_succeeds(store):
    start, stored = threading.Barrier(8), []

    def write(number):
        start.wait()
        stored.append(store.put("a", [bytes([number])] * 1000))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert stored.count(True) == 1
    assert len(set(store.get("a"))) == 1


def test_memory_refuses_what_is_over_its_limit_and_takes_it_once_there_is_room():
    store = MemoryObjectStore(bytes_max=10)
    store.put("a", [b"12345678"])
    with pytest.raises(StoreFull):
        store.put("b", [b"123"])
    store.delete("a")
    assert store.put("b", [b"123"])


def test_files_that_a_crash_left_are_no_objects_and_are_cleared(tmp_path):
    (tmp_path / f"{UNFINISHED}x1").write_bytes(b"half")
    store = FileObjectStore(tmp_path)
    assert list(store.list()) == []
    assert store.clear() == 1
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_told_as_such_and_leaves_nothing(tmp_path):
    def pieces():
        yield b"half"
        raise OSError(28, "No space left on device")

    store = FileObjectStore(tmp_path)
    with pytest.raises(StoreFull, match="no room"):
        store.put("a", pieces())
    assert os.listdir(tmp_path) == []
