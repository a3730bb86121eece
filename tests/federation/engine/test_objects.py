"""Objects of a client (federation.engine.objects), at a gateway that only takes notes."""

import gc
from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import federation.engine.futures as futures_module
from federation.engine import objects
from federation.engine.books.jobs import JobTable
from federation.engine.books.streams import Ended, Stream
from federation.engine.futures import TaskFuture, opened
from federation.engine.objects import ClientObjects, LeftResult
from federation.errors import GatewayUnreachable, GridError, ObjectLost, ObjectRefused
from federation.messages.messages import OpenJob
from federation.messages.objects import HostOpen, ObjectKept, ObjectMissing, OpenHost
from federation.objects.bodies import load, make_body
from federation.objects.left import WHOLE, left_value, read_left
from federation.objects.manifests import SHA256, digest_text
from federation.payload import SealedFunction, seal_call

OPENING = OpenJob(
    "j", "n", b"d" * 32, False, "p", 0.0, {}, None, 0, None, "", "3.11", False, False, {}
)


class Engine:
    session_number = 1
    site = "london"
    lost = ()  # of what is asked for again
    refusal = None

    def ask(self, verb, details, *, late=False):
        if verb == "hold_objects":
            if self.refusal is not None:
                raise self.refusal
            return {"lost": [each for each in details["digests"] if each in self.lost]}
        assert verb == "object_host"
        return {"address": "@x", "pid": 7, "ticket": b"t", "host": "h1", "site": "london"}


class Host:
    """An object host: each file is an object of its own; it may be deaf, or full."""

    puts = 0
    room = 1 << 20
    is_gone = False
    spills = False
    refuses = ""

    def __init__(self, address, timeout_s):
        self.peer_pid = 7

    def ask(self, message, file=-1):
        if isinstance(message, OpenHost):
            return HostOpen(Host.room, spills=Host.spills), -1
        if Host.is_gone:
            Host.is_gone = False
            raise ConnectionResetError("gone")
        if Host.refuses:
            return ObjectMissing(1, Host.refuses), -1
        Host.puts += 1
        return ObjectKept(1, bytes([SHA256]) + bytes([Host.puts]) * 32), -1

    def close(self):
        pass


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(objects, "BlockingObjectSocket", Host)
    monkeypatch.setattr(Host, "puts", 0)
    let_go = []
    engine = Engine()
    found = ClientObjects(engine, lambda project, digest: let_go.append((project, digest[1])))
    return engine, found, let_go


def test_a_lease_lasts_as_long_as_the_reference_or_a_call_with_it(world):
    _, found, let_go = world
    ref = found.put([1], "p", "", None)
    call = seal_call(([ref],), {})
    stream = Stream(OPENING, [])
    stream.submit(call, None, found.leases_for([call], OPENING))
    del ref
    gc.collect()
    assert (let_go, found.is_idle) == ([], False)
    stream.place(0, [b"v"], failed=False)
    assert let_go == [("p", 1)]
    assert found.is_idle


def test_each_reference_is_let_go_of_once(world):
    _, found, let_go = world
    one, other = found.put([1], "p", "", None), found.put([2], "p", "", None)
    one.release()
    one.release()
    assert let_go == [("p", 1)]
    with pytest.raises(ObjectLost, match="released"):
        seal_call((one,), {})
    assert other.result() == [2]


def test_in_a_new_session_a_call_puts_its_object_again_and_the_old_hold_is_not_let_go_of(world):
    engine, found, let_go = world
    ref = found.put([1], "p", "", None)
    engine.session_number = 2
    call = seal_call((ref,), {})
    assert Host.puts == 2
    assert list(found.leases_for([call], OPENING)) == [call[3:36]]
    seal_call((ref,), {})
    assert Host.puts == 2
    del ref
    gc.collect()
    assert let_go == [("p", 2)]


def test_in_a_new_session_what_the_gateway_still_has_is_held_and_let_go_of_there(world):
    engine, found, let_go = world
    one, other = found.put([1], "p", "", None), found.put([2], "q", "", None)
    engine.session_number = 2
    assert found.come_back(2, []) == {}
    seal_call((one, other), {})
    assert Host.puts == 2  # as before
    del one, other
    gc.collect()
    assert sorted(let_go) == [("p", 1), ("q", 2)]


def test_in_a_new_session_calls_get_what_is_lost_put_again_and_references_when_used(world):
    engine, found, let_go = world
    used, unused = found.put([1], "p", "", None), found.put([2], "p", "", None)
    engine.session_number, engine.lost = 2, {used.digest, unused.digest}
    assert found.come_back(2, [used.lease]) == {}
    assert Host.puts == 3
    seal_call((unused,), {})
    assert Host.puts == 4
    used.release()
    assert let_go == [("p", 3)]


def test_what_is_lost_and_not_here_either_ends_the_calls_with_it(world):
    engine, found, _ = world
    ref = found.put([1], "p", "", None)
    ref.lease.view = None  # it was found by its name
    engine.session_number, engine.lost = 2, {ref.digest}
    (text,) = found.come_back(2, [ref.lease]).values()
    assert "london" in text
    assert ref.digest in text


def test_a_large_argument_that_can_not_be_put_again_goes_along_with_its_call(world):
    engine, found, let_go = world
    argument = found.put_argument(b"large", "p")
    as_object = argument.as_input()
    assert read_left(as_object.data) == (argument.lease.digest, argument.lease.size)
    assert as_object.lease is argument.lease
    engine.session_number, engine.lost = 2, {digest_text(argument.lease.digest)}
    Host.refuses = "no room"
    try:
        assert found.come_back(2, [argument.lease]) == {}  # its calls are not ended
    finally:
        Host.refuses = ""
    given = argument.as_input()
    assert given.lease is None
    assert load(memoryview(given.data)[1:]) == b"large"
    del argument, as_object
    gc.collect()
    assert let_go == []  # the session that held it is over


def test_large_arguments_are_mapped_also_where_objects_go_to_disk(world, monkeypatch):
    _, found, let_go = world
    monkeypatch.setattr(Host, "spills", True)
    ref, argument = found.put([1], "p", "", None), found.put_argument([2], "p")
    assert ref.lease.view is None
    assert argument.lease.view is not None
    monkeypatch.setattr(objects, "has_room", lambda: False)
    assert found.put_argument([3], "p") is None
    del argument
    gc.collect()
    assert let_go == [("p", 2)]


def test_an_older_gateway_takes_no_large_arguments_as_objects(world, monkeypatch):
    engine, found, _ = world
    for answer, taken in ((True, True), (False, False), ({"odd": 1}, False)):
        monkeypatch.setattr(engine, "ask", lambda *_, answer=answer: answer)
        assert found.takes_arguments() is taken
    monkeypatch.setattr(engine, "ask", Mock(side_effect=GridError("unknown verb")))
    assert not found.takes_arguments()


def test_a_gateway_that_keeps_no_objects_or_is_older_has_none(world):
    engine, found, _ = world
    ref = found.put([1], "p", "", None)
    engine.session_number, engine.refusal = 2, GridError("unknown verb")
    assert found.come_back(2, [ref.lease]) == {}
    assert Host.puts == 2
    engine.session_number, engine.refusal = 3, GatewayUnreachable("gone")
    with pytest.raises(GatewayUnreachable):
        found.come_back(3, [ref.lease])


def test_what_can_never_fit_is_refused_before_it_is_written(world, monkeypatch):
    _, found, _ = world
    monkeypatch.setattr(objects, "create", Mock(side_effect=AssertionError))
    with pytest.raises(ObjectRefused, match="room for 1,048,576 bytes of objects, and this one"):
        found.put(bytes(Host.room), "p", "", None)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), ValueError("odd")])
def test_a_strange_answer_and_a_full_host_leave_no_call_waiting(world, monkeypatch, error):
    engine, found, _ = world
    ref = found.put([1], "p", "", None)
    engine.session_number = 2
    monkeypatch.setattr(engine, "ask", lambda *_: {"odd": True})
    monkeypatch.setattr(found, "_put_again", Mock(side_effect=error))
    (text,) = found.come_back(2, [ref.lease]).values()
    assert str(error) in text


def test_results_that_were_left_are_let_go_of_with_their_futures(world):
    _, found, let_go = world
    digest = bytes([SHA256]) + b"\x09" * 32
    outcomes = [b"\x80x", left_value(digest, 100), left_value(digest, 100), Ended("error", "")]
    found.arrived(outcomes, "p")
    assert outcomes[0] == b"\x80x"
    assert outcomes[1].reference().size == 100
    seal_call((outcomes[2].reference(),), {})
    assert not found.is_idle
    del outcomes
    gc.collect()
    assert let_go == [("p", 9), ("p", 9)]  # once for each


def test_a_result_for_which_the_site_had_no_room_is_opened_as_it_came(world):
    _, found, _ = world
    body = make_body({"a": [1, 2]})
    data = bytearray(body.size)
    for offset, piece in body.pieces():
        data[offset : offset + len(piece)] = piece
    outcomes = [WHOLE + bytes(data)]
    found.arrived(outcomes, "p")
    assert opened(outcomes[0], "auto") == {"a": [1, 2]}
    with pytest.raises(ObjectLost, match="no room"):
        opened(outcomes[0], "ref")


def test_a_host_that_has_ended_since_is_dialled_again(world):
    _, found, _ = world
    found.put([1], "p", "", None)
    Host.is_gone = True
    assert found.put([1], "p", "", None).result() == [1]


def test_a_refusal_has_its_reason(world, monkeypatch):
    _, found, _ = world
    monkeypatch.setattr(Host, "refuses", "the site has room for 10 bytes")
    with pytest.raises(ObjectRefused, match="room for 10"):
        found.put([1], "p", "", None)


def test_another_process_at_the_address_is_shown_no_ticket(world, monkeypatch):
    _, found, _ = world
    monkeypatch.setattr(Host, "ask", lambda *_: pytest.fail("it was asked"))
    monkeypatch.setattr(Host, "__init__", lambda self, *_: setattr(self, "peer_pid", 8))
    with pytest.raises(ObjectRefused, match="on host h1"):
        found.put([1], "p", "", None)


def test_calls_of_another_project_are_refused(world):
    _, found, _ = world
    ref = found.put([1], "q", "", None)
    with pytest.raises(ObjectRefused, match="for project p"):
        found.leases_for([seal_call((ref,), {})], OPENING)


def test_calls_that_move_to_another_job_keep_what_they_refer_to(world):
    """A gateway may end the job of calls that were never sent: they are submitted to another."""
    _, found, let_go = world
    one, other = found.put([1], "p", "", None), found.put([2], "p", "", None)
    calls = [seal_call((one,), {}), seal_call((other, one), {}), seal_call((3,), {})]
    stream, target = Stream(OPENING, []), Stream(replace(OPENING, job="k"), [])
    futures = [SimpleNamespace(placed=lambda *_: None) for _ in calls]
    for call, future in zip(calls, futures, strict=True):
        stream.submit(call, future, found.leases_for([call], OPENING))
    del one, other
    jobs = JobTable(None, None, deque(), str)
    jobs._functions.use(SealedFunction(OPENING.function, b"f", "f"))
    jobs.fill = lambda *_: target
    jobs.move(stream, 0, 3)
    del stream
    gc.collect()
    assert let_go == []
    _, messages = target.next_to_send()
    assert [each.arguments for each in messages] == [calls]
    assert messages[0].objects == sorted(found.leases_for(calls, OPENING))
    target.place(0, [b"v"] * 3, failed=False)
    gc.collect()
    assert sorted(let_go) == [("p", 1), ("p", 2)]


def test_a_result_that_another_thread_opens_meanwhile_is_not_opened_again(monkeypatch):
    """A task may return bytes: they must never be taken for a pickle."""
    left = object.__new__(LeftResult)

    class Raced(TaskFuture):
        """Another thread puts the value in place after the first look."""

        looks = 0

        @property
        def _result(self):
            self.looks += 1
            return left if self.looks == 1 else b"the value"

        @_result.setter
        def _result(self, value):
            pass

    opening = []
    monkeypatch.setattr(futures_module, "opened", lambda found, _: opening.append(found) or "value")
    stream = SimpleNamespace(opening=SimpleNamespace(results="auto"))
    future = Raced(SimpleNamespace(), stream)
    future.looks, future._state = 0, "FINISHED"
    assert future.result() == "value"
    assert opening == [left]
