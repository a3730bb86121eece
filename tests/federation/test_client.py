"""The parts of the client that work without a gateway."""

import contextlib
import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Future, InvalidStateError
from datetime import timedelta
from types import SimpleNamespace

import pytest

from federation.address import NoToken
from federation.client import Client, Options, TaskFuture, _revive, _Where, as_completed
from federation.engine.books.jobs import JobTable
from federation.engine.books.streams import Ended, Placed, Stream
from federation.engine.engine import ClientEngine
from federation.engine.futures import resolve
from federation.engine.jobs import Cost
from federation.engine.mapping import MapResults
from federation.engine.requests import Requests
from federation.errors import GatewayUnreachable, GridError
from federation.messages.messages import Cancel, Kept, OpenJob, RejectJob, Results
from federation.payload import SealedFunction
from federation.words import read_timeout

ADDRESS = "ipc:///tmp/nobody"


class EngineWithNothing:
    """As much of an engine as a new future needs."""

    futures_lock = threading.Lock()
    is_of_task = False


def test_a_task_future_begins_as_every_other_future_does():
    # It does without Future.__init__; a Python that adds an attribute must fail here.
    future = TaskFuture(EngineWithNothing(), None)
    ours, theirs = vars(future), vars(Future())
    assert type(future._condition) is type(theirs.pop("_condition"))
    assert set(theirs) <= set(ours)
    assert {name: ours[name] for name in theirs} == theirs


def test_each_future_has_a_lock_of_its_own():
    # concurrent.futures.wait takes the locks of many futures, also of other executors', in one
    # order for all: two futures that share one would break that order.
    engine = EngineWithNothing()
    one, other = TaskFuture(engine, None), TaskFuture(engine, None)
    assert one._condition is not other._condition
    assert one._condition is one._condition


@pytest.mark.parametrize("wait", [TaskFuture.result, TaskFuture.exception])
def test_a_cancelled_future_says_by_whom_in_one_short_line(wait):
    future = TaskFuture(EngineWithNothing(), SimpleNamespace(id="01abc"))
    future.placed(SimpleNamespace(id="01abc"), 7)
    resolve(future, Ended("cancelled", "cancelled by \x1b[2Jbob\n" + 900 * "x"))
    with pytest.raises(CancelledError) as caught:
        wait(future)
    text = str(caught.value)
    assert text.startswith("task 7 of job 01abc: cancelled by \\x1b[2Jbob\\nxxx")
    assert len(text) < 400


@pytest.mark.parametrize("wait", [TaskFuture.result, TaskFuture.exception])
def test_a_wait_that_ends_too_soon_says_which_task_it_waited_for(wait):
    engine = SimpleNamespace(
        closed=False,
        drive=lambda _done, _timeout: False,
        futures_lock=threading.Lock(),
        is_of_task=False,
        has_said_why=False,
    )
    future = TaskFuture(engine, SimpleNamespace(id="01abc"))
    future.placed(SimpleNamespace(id="01abc"), 7)
    assert repr(future) == "<TaskFuture: task 7 of job 01abc, pending>"
    with pytest.raises(
        TimeoutError, match=r"task 7 of job 01abc has no result after 0\.5 s; `why_"
    ):
        wait(future, 0.5)


def test_a_task_that_waits_for_calls_of_its_own_says_why_once(caplog):
    why = "the only slot is busy. Its client is a task, which keeps a slot while it waits"
    driven = []
    engine = SimpleNamespace(
        closed=False,
        error=None,
        drive=lambda _done, timeout_s: driven.append(timeout_s),
        futures_lock=threading.Lock(),
        is_of_task=True,
        background=SimpleNamespace(waiting=lambda _calls: contextlib.nullcontext()),
        has_said_why=False,
        is_foreign=False,
        takes_work=True,
        ask=lambda *_: {"waits_for": why},
    )
    stream = SimpleNamespace(id="01abc", unfinished=1, home="")
    future = TaskFuture(engine, stream)
    future.placed(stream, 7)
    for timeout_s, steps in ((5.0, [5.0]), (60.0, [10.0, 50.0]), (60.0, [60.0])):
        with pytest.raises(TimeoutError):
            future.result(timeout_s)
        assert driven == steps
        driven.clear()
    assert [record.message for record in caplog.records] == [
        f"this task has waited 10 s for calls of its own: {why}"
    ]


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_future_is_finished_once(is_waited_for):
    future = TaskFuture(EngineWithNothing(), SimpleNamespace(id="01abc"))
    called = []
    if is_waited_for:
        future.add_done_callback(called.append)
    future.finish(1, None)
    with contextlib.suppress(InvalidStateError):
        future.finish(2, None)
    assert (future.done(), future._result, called) == (True, 1, [future] * is_waited_for)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_s": 1e20},
        {"timeout_s": float("nan")},
        {"retries": 2**63},
        {"priority": 10**30},
        {"priority": float("inf")},
        {"project": "\ud800"},
        {"name": "a\nb"},
        {"tags": {"gpu": -1}},
        {"tags": "gpu"},
        {"max_cost": 5},
        {"prints": 1},
        {"preemptible": "yes"},
        {"tags": {"gpu": 2**70}},
        {"tags": {"\ud800": True}},
    ],
)
def test_options_that_could_not_travel_are_refused(wrong):
    with pytest.raises((TypeError, ValueError)):
        Options(**wrong)


def test_a_detached_job_that_is_kept_is_not_refused_by_what_was_sent_again():
    # After a reconnection the gateway says Kept to the opening, and refuses the tasks that were
    # on their way: the job had ended by then.
    jobs = JobTable(None, None, deque(), str)
    stream = SimpleNamespace(
        id="j", opening=SimpleNamespace(detached=True), is_over=False, end=lambda *_: Placed()
    )
    jobs._streams["j"] = stream
    jobs.hear_kept(Kept("j", 3, True))
    jobs.hear_rejected(RejectJob("j", "job-not-found", "the job has ended"), moves=True)
    assert jobs.streams == [stream]


@pytest.mark.parametrize("are_wanted", [True, False])
def test_prints_are_shown_only_where_they_were_asked_for(are_wanted):
    opening = OpenJob(
        *("j", "f", b"f", False, "risk", 0.0, {}, None, 0, None, "", "3.11", are_wanted, False, {})
    )
    stream = Stream(opening, deque())
    stream.extend([b"0"])
    stream.next_to_send()
    engine = ClientEngine.__new__(ClientEngine)
    engine._jobs = JobTable(None, None, deque(), str)
    engine._jobs._streams["j"] = stream
    engine._jobs._functions.use(SealedFunction(b"f", b"", "f"))
    engine._leading = SimpleNamespace(printed=[])
    engine._own_sites = set()
    engine.site = ""
    engine.holder = SimpleNamespace(trusted_sites=None)
    engine._hear(Results("j", 0, [b"value"], [], [[0, "hello"]], []))
    assert engine._leading.printed == ([("hello", 1)] if are_wanted else [])


def test_what_was_to_be_cancelled_when_the_session_was_lost_is_not_sent_in_the_next():
    opening = OpenJob(
        *("j", "f", b"f", False, "risk", 0.0, {}, None, 0, None, "", "3.11", False, True, {})
    )
    stream = Stream(opening, deque())
    stream.extend([b"0", b"1", b"2"])
    stream.next_to_send()
    stream.send_again()  # a new session
    jobs = JobTable(None, None, deque(), str)
    jobs._streams["j"] = stream
    assert jobs.taken_back(Cancel(7, "j", [[0, 2]], True)) == [(0, 2)]
    _, messages = stream.next_to_send()
    assert [(each.first, each.arguments) for each in messages] == [(2, [b"2"])]


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([[99_999_999_999_999_999_999_999, 1]], "out of range"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogates not allowed"),
        (nested(300), "must not exceed 32"),
        (nested(100_000), "recursion"),
        ([[[]] * 2, {"a": {"b": [[0]] * 3}}] * 3, None),
    ],
    ids=["number", "NUL", "surrogate", "deep", "deeper", "good"],
)
def test_a_question_that_can_not_be_sent_says_why(value, reason):
    class Sent(Exception):
        pass

    def send(*_):
        raise Sent

    requests = Requests(None, None, None, None)
    requests.answer = send
    if reason is None:
        with pytest.raises(Sent):
            requests.ask("dispute", {"deliveries": value})
    else:
        with pytest.raises(GridError, match=f"dispute: the message can't be sent: .*{reason}"):
            requests.ask("dispute", {"deliveries": value})


def test_a_view_shows_the_options_that_are_not_as_usual():
    client = _revive(
        _Where(ADDRESS, None, None, None, None, None, 1.0, False, 1.0, None), Options()
    )
    view = client.options(tags={"gpu": 1}, retries=2)
    assert repr(client) == f"<gridfed Client of {ADDRESS}, not connected yet>"
    assert repr(view) == (
        f"<gridfed Client of {ADDRESS}, not connected yet, tags={{'gpu': 1}}, retries=2>"
    )


def test_the_cost_of_what_has_not_begun_is_nothing_without_a_currency():
    assert str(Cost(0, "", 0, 0, "ann", "risk")) == "0"


def test_times_have_a_unit_or_are_seconds():
    given = Options(timeout_s="10m", task_s="1.5 s")
    assert (given.timeout_s, given.task_s) == (600, 1.5)
    assert given.key() == Options(timeout_s=600.0, task_s=1.5).key()
    now_s = time.time()
    assert 7200 <= Options(deadline_s="2h").deadline_s - now_s <= 7300
    with pytest.raises(ValueError, match=r"timeout_s: 10 has no unit: write 10s for seconds"):
        Options(timeout_s="10")
    with pytest.raises(ValueError, match=r"task_s: 'soon' is not a length of time"):
        Options(task_s="soon")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, None), ("10s", 10.0), ("1m", 60.0), (timedelta(seconds=3), 3.0), (-1, -1.0), (2, 2.0)],
)
def test_a_timeout_is_seconds_or_a_text_with_a_unit(given, seconds):
    assert read_timeout(given) == seconds


@pytest.mark.parametrize("wrong", ["soon", "10", float("nan"), True, b"1s", [1]])
def test_a_wrong_timeout_says_how_it_is_written(wrong):
    with pytest.raises((TypeError, ValueError), match="timeout"):
        read_timeout(wrong)
    with pytest.raises((TypeError, ValueError), match="timeout"):
        as_completed([], wrong)


def test_a_deadline_after_the_end_of_calendars_is_refused():
    for given in (timedelta.max, float("inf"), 1e12):
        with pytest.raises(ValueError, match="after the year 9999"):
            Options(deadline_s=given)


@pytest.mark.real
@pytest.mark.parametrize("key", ["connect_timeout_s", "failover_s", "give_up_s"])
def test_times_of_a_connection_have_a_unit_too(key):
    with pytest.raises(ValueError, match=rf"{key}: 'soon' is not a length of time"):
        Client(ADDRESS, **{key: "soon"})
    with pytest.raises(GatewayUnreachable):
        Client("ipc:///none/at/all", **{"connect_timeout_s": "0.1s", key: "0.2 s"})


@pytest.mark.parametrize("address", [5, b"ipc:///tmp/x", [5], {"a": 1, 2: 3}])
def test_an_address_that_is_no_text_is_refused_in_words(address):
    with pytest.raises(TypeError, match="must be the text of an address, or a list of them"):
        Client(address)


@pytest.mark.parametrize("token", ["", " \n"])
def test_an_empty_token_is_refused_and_not_taken_for_none(token):
    with pytest.raises(ValueError, match="the token is empty"):
        Client(ADDRESS, token=token)


@pytest.mark.real
def test_a_client_may_be_made_without_any_token():
    with pytest.raises(GatewayUnreachable):
        Client(ADDRESS, token=NoToken(), connect_timeout_s=0.1)


def test_as_completed_says_that_it_takes_futures():
    results = MapResults.__new__(MapResults)
    with pytest.raises(TypeError, match="a map yields its results itself"):
        as_completed(results)
    with pytest.raises(TypeError, match="and 5 is none"):
        as_completed([Future(), 5])


@pytest.mark.parametrize("given", ["abc", "-1 USD", "5 DOLLARS", "nan USD"])
def test_a_wrong_cost_limit_is_named_as_that_option(given):
    with pytest.raises(ValueError, match=r"^max_cost: "):
        Options(max_cost=given)
