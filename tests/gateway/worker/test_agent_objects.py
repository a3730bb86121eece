"""Assignments whose calls refer to objects: an agent with an object host that takes its time."""

import os
import secrets
import socket
import sys
import threading

import cloudpickle
import pytest

from federation.messages.messages import Drain
from federation.messages.objects import (
    GetObject,
    HostOpen,
    ObjectHere,
    ObjectKept,
    ObjectMissing,
    OpenHost,
)
from federation.objects.bodies import load, make_body, parts_of
from federation.objects.left import INLINE_BYTES, WHOLE, left_value
from federation.objects.manifests import make_manifest
from federation.objects.references import Sealing, reduced, with_head
from federation.objects.segments import Segment, create
from federation.payload import dump_apart
from federation.sessions.object_socket import (
    ANCILLARY_BYTES,
    ObjectFrames,
    ancillary_of,
    encode_frame,
    files_of,
)
from gateway.worker.settings import TICKET_VARIABLE
from gateway.worker.slot.channel import encode
from gateway.worker.slot.slot import CHANNEL_DESCRIPTOR

pytestmark = pytest.mark.real
# The functions of these tests are not installed where the slots look.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

TIMEOUT_S = 60.0


class SlowHost:
    """An object host that answers when the test says so."""

    def __init__(self):
        self.address = f"@gridfed-test-{secrets.token_hex(8)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.address.removeprefix("@"))
        self._listener.listen()
        self._listener.settimeout(TIMEOUT_S)
        self._frames = ObjectFrames()
        self._arrived = []

    def open(self):
        self._agent, _ = self._listener.accept()
        self._agent.settimeout(TIMEOUT_S)
        assert self.next() == OpenHost(b"ticket")
        self.send(HostOpen(100))

    def next(self):
        return self.next_with_file()[0]

    def next_with_file(self):
        while not self._arrived:
            data, ancillary, _, _ = self._agent.recvmsg(1 << 16, ANCILLARY_BYTES)
            assert data
            self._arrived += self._frames.feed(data, files_of(ancillary))
        return self._arrived.pop(0)

    def send(self, message, file=-1):
        self._agent.sendmsg([encode_frame(message)], ancillary_of(file))

    def close(self):
        self._listener.close()
        if hasattr(self, "_agent"):
            self._agent.close()


@pytest.fixture
def host():
    found = SlowHost()
    yield found
    found.close()


class Reference:
    def __init__(self, digest):
        self.digest = digest

    def __reduce__(self):
        return reduced(self.digest)


def made(value):
    """A value as an object: its digest, and its file."""
    body = make_body(value)
    segment = create(body.size)
    segment.write(body.pieces())
    segment.seal()
    return make_manifest([memoryview(body.head), *body.parts]).digest, segment


def call(digest, *more):
    with Sealing() as found:
        return with_head(b"".join(dump_apart((Reference(digest), *more), lambda _: True)), found)


def added(value, number):
    return value["base"] + number


def fetching(gateway, start_agent, host, calls):
    """An assignment whose objects the agent has asked for."""
    agent = start_agent(gateway, 1, "--objects", host.address, **{TICKET_VARIABLE: b"ticket".hex()})
    work = gateway.assign(gateway.worker(), added, calls, objects="risk")
    for _ in range(3):
        gateway.pump()
    host.open()
    asked = host.next()
    assert isinstance(asked, GetObject)
    return agent, work, asked


def test_tasks_that_are_recalled_while_their_objects_are_fetched_never_run(
    gateway, start_agent, host
):
    digest, segment = made({"base": 10})
    _, work, asked = fetching(gateway, start_agent, host, [call(digest, at) for at in range(4)])
    assert (asked.scope, asked.digest) == ("risk", digest)
    work.recall(1, 3)
    for _ in range(5):
        gateway.pump()
    assert work.returned == []  # it has none of them yet
    host.send(ObjectHere(asked.request, segment.size), segment.descriptor)
    assert work.wait_answer() == [[1, 3]]
    assert work.wait().values() == {0: 10, 3: 13}


def test_an_agent_that_drains_while_it_fetches_returns_all(gateway, start_agent, host):
    digest, segment = made({"base": 10})
    _, work, asked = fetching(gateway, start_agent, host, [call(digest, 1)] * 2)
    gateway.say(gateway.worker(), Drain(True))
    for _ in range(5):
        gateway.pump()
    host.send(ObjectHere(asked.request, segment.size), segment.descriptor)
    work.wait()
    assert work.returned == [[0, 2]]


def test_objects_that_the_host_has_not_are_lost_by_name(gateway, start_agent, host):
    digest, _ = made({"base": 10})
    _, work, asked = fetching(gateway, start_agent, host, [call(digest, 1)])
    host.send(ObjectMissing(asked.request, "no such object"))
    ((_, text, _),) = work.wait().failures().values()
    assert "ObjectLost" in text
    assert digest[1:].hex() in text


def test_objects_of_a_host_that_ends_meanwhile_are_lost_too(gateway, start_agent, host):
    digest, _ = made({"base": 10})
    _, work, _ = fetching(gateway, start_agent, host, [call(digest, 1)])
    host.close()
    ((_, text, _),) = work.wait().failures().values()
    assert "ObjectLost" in text


# --- results that are left ---


def grown(size):
    return "x" * size


def forged(_):
    """Say that a result was left, without one."""
    channel = socket.socket(fileno=os.dup(CHANNEL_DESCRIPTOR))
    channel.sendall(encode(["left", 100]))
    return 1


def leaving(gateway, start_agent, host, calls, results="auto", function=grown):
    """An assignment whose first result is on its way to the object host: its offer, and file."""
    agent = start_agent(gateway, 1, "--objects", host.address, **{TICKET_VARIABLE: b"ticket".hex()})
    work = gateway.assign(gateway.worker(), function, calls, results=results)
    until = threading.Event()

    def serve():
        host.open()
        offer.extend(host.next_with_file())
        until.set()

    offer = []
    threading.Thread(target=serve, daemon=True).start()
    gateway.wait_for(until.is_set)
    return agent, work, *offer


def test_a_result_is_reported_once_the_object_host_has_it(gateway, start_agent, host):
    size = INLINE_BYTES + 10
    _, work, offer, file = leaving(gateway, start_agent, host, [(size,), (3,)])
    assert (offer.job, offer.scope, offer.name) == ("job", "risk", "")
    with Segment(file, offer.size).view() as view:
        assert load(view) == "x" * size
        digest = make_manifest(parts_of(view)).digest
    for _ in range(5):
        gateway.pump()
    assert all(each.first > 0 for each in work.reports)
    host.send(ObjectKept(offer.request, digest))
    work.wait()
    (report,) = [each for each in work.reports if each.left]
    assert report.values[0] == left_value(digest, offer.size)


def test_a_result_that_the_host_refuses_comes_in_the_message(gateway, start_agent, host):
    size = INLINE_BYTES + 10
    _, work, offer, file = leaving(gateway, start_agent, host, [(size,)])
    os.close(file)
    host.send(ObjectMissing(offer.request, "no room"))
    (value,) = work.wait().reports[0].values
    assert value[:1] == WHOLE
    assert load(memoryview(value)[1:]) == "x" * size


def test_a_reference_that_the_host_refuses_is_a_failure_with_its_reason(gateway, start_agent, host):
    _, work, offer, file = leaving(gateway, start_agent, host, [(1,)], "ref")
    os.close(file)
    host.send(ObjectMissing(offer.request, "no room for 1"))
    ((kind, text, _),) = work.wait().failures().values()
    assert kind == "result"
    assert "can't be left at the site: no room for 1" in text


@pytest.mark.parametrize("kill", ["host", "slot"])
def test_a_host_or_slot_that_ends_meanwhile_loses_nothing(gateway, start_agent, host, kill):
    agent, work, _, file = leaving(gateway, start_agent, host, [(INLINE_BYTES + 10,)])
    os.close(file)
    if kill == "slot":
        for each in agent.slots():
            each.kill()
    host.close()
    (value,) = work.wait().reports[0].values
    assert value[:1] == WHOLE


def test_a_slot_that_tells_of_a_result_without_its_file_is_ended(gateway, start_agent, host):
    start_agent(gateway, 1, "--objects", host.address, **{TICKET_VARIABLE: b"ticket".hex()})
    work = gateway.assign(gateway.worker(), forged, [(1,)], results="auto")
    ((kind, _, _),) = work.wait().failures().values()
    assert kind == "crash"
