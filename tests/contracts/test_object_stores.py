"""The contract of object stores (gateway.objects.stores.contract)."""

import importlib.util
import os
import threading

import pytest

from federation.errors import GridError
from gateway.objects.stores import s3
from gateway.objects.stores.contract import NotStored, StoreFull
from gateway.objects.stores.files import UNFINISHED, FileObjectStore
from gateway.objects.stores.memory import MemoryObjectStore
from gateway.objects.stores.s3 import S3ObjectStore

STORES = {
    "memory": lambda folder, s3: MemoryObjectStore(),
    "files": lambda folder, s3: FileObjectStore(folder),
    "durable files": lambda folder, s3: FileObjectStore(folder, durable=True),
    "s3": lambda folder, s3: S3ObjectStore(f"s3://objects/{folder.parent.name}/deep", **s3()),
}


@pytest.fixture(scope="session")
def bucket():
    """Serve a bucket, and return the options that lead to it."""
    if not all(map(importlib.util.find_spec, ("boto3", "moto", "flask_cors", "obstore"))):
        pytest.skip("needs obstore, boto3 and moto's server")
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    # One request at a time: moto looks for a name and takes it in two steps.
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    who = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=address, **who).create_bucket(Bucket="objects")
    yield {
        "endpoint": address,
        "region": "us-east-1",
        "access_key_id": "a",
        "secret_access_key": "b",
        "client_options": {"allow_http": True},
    }
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(
    params=["memory", "files", "durable files", pytest.param("s3", marks=pytest.mark.real)]
)
def store(request, tmp_path):
    return STORES[request.param](tmp_path / "objects", lambda: request.getfixturevalue("bucket"))


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


def test_a_bucket_that_cannot_be_is_told():
    pytest.importorskip("obstore")
    for url, said in (("http://x/y", "is not a bucket"), ("s3://", "is not a bucket")):
        with pytest.raises(GridError, match=said):
            S3ObjectStore(url)
    with pytest.raises(GridError, match="can't be used"):
        S3ObjectStore("s3://bucket", nonsense=1)


@pytest.mark.real
def test_a_bucket_takes_no_more_than_a_request(monkeypatch, bucket):
    monkeypatch.setattr(s3, "PUT_MAX", 3)
    store = S3ObjectStore("s3://objects/small", **bucket)
    with pytest.raises(StoreFull, match="at most 3 bytes"):
        store.put("a", [b"1234"])


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
