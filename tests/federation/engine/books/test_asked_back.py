"""The books of calls that a waiting task asks back, to run them itself."""

from collections import deque
from dataclasses import replace

import pytest

from federation.engine.books.asked_back import AskedBack, may_run_in_task
from federation.engine.books.jobs import CANCELLED, JobTable
from federation.engine.books.streams import Ended
from federation.messages.messages import Answer, Cancel, HoldChanged, OpenJob
from federation.objects.open_calls import OpenCall
from federation.payload import SealedFunction

CALL = b"\x80call"
OPENING = OpenJob(
    *("j", "f", b"f", False, "risk", 0.0, {}, None, 0, None, "", "3.11", False, False, {})
)


class Line:
    """As much of a dialogue and its gateway as opening a job needs."""

    session = None
    address = "here"
    welcome = type("Welcome", (), {"message_bytes_max": 1 << 20})

    def post(self, message):
        pass


def job(calls=3, *, sent=True, opening=OPENING):
    """A table with a job of plain calls; its futures are their numbers."""
    resolved = deque()
    jobs = JobTable(Line(), Line(), resolved, str)
    stream = jobs.open(opening, SealedFunction(b"f", b"body", "f"))
    for number in range(calls):
        stream.submit(CALL, number)
    if sent:
        stream.next_to_send()
    return jobs, stream, resolved


def answer(taken, code=""):
    return Answer(1, code, "", {"taken": taken})


def sent_again(stream):
    """The calls of the next message, by number."""
    _, messages = stream.next_to_send()
    return [
        task for each in messages for task in range(each.first, each.first + len(each.arguments))
    ]


def test_a_call_that_was_asked_back_is_run_here_and_no_other():
    jobs, stream, resolved = job()
    question = jobs.ask_back(stream, 1)
    assert (question.ranges, question.stop) == ([[1, 2]], False)
    assert not stream.back.is_to_run(1)  # the gateway may run it
    jobs.hear_cancelled(question, answer([[1, 2]]))
    assert stream.back.is_to_run(1)
    assert not resolved  # it has not ended
    assert jobs.begin_here(stream, 1) == (b"body", CALL)
    assert jobs.begin_here(stream, 1) is None  # another thread waits for it, too
    stream.place(1, [b"value"], failed=False)
    assert list(resolved) == [(1, b"value")]


def test_a_call_that_has_begun_elsewhere_is_not_run_here_and_may_be_asked_for_again():
    jobs, stream, resolved = job()
    question = jobs.ask_back(stream, 1)
    assert jobs.ask_back(stream, 1) is None  # one question at a time
    jobs.hear_cancelled(question, answer([]))
    assert not stream.back.is_to_run(1)
    assert jobs.ask_back(stream, 1) is not None
    assert not resolved


def test_a_call_that_was_not_sent_comes_back_at_once_and_is_never_sent():
    jobs, stream, _ = job(sent=False)
    assert jobs.ask_back(stream, 1) is not None  # the gateway must not wait for it
    assert stream.back.is_to_run(1)
    assert sent_again(stream) == [0, 2]


def test_a_result_that_crosses_the_question_counts():
    jobs, stream, resolved = job()
    question = jobs.ask_back(stream, 1)
    stream.place(1, [b"theirs"], failed=False)
    jobs.hear_cancelled(question, answer([]))
    assert jobs.begin_here(stream, 1) is None
    assert jobs.ask_back(stream, 1) is None
    assert list(resolved) == [(1, b"theirs")]


def test_a_new_session_has_the_answer_where_the_call_was_not_sent_in_it():
    jobs, stream, resolved = job()
    question = jobs.ask_back(stream, 1)
    jobs.restart(near=False)
    assert jobs.taken_back(question) == [(1, 2)]
    assert stream.back.is_to_run(1)
    assert sent_again(stream) == [0, 2]
    assert stream.elsewhere() == [[1, 2]]  # the new gateway must not wait for it
    assert not resolved


def test_a_call_that_runs_here_is_not_sent_in_a_new_session():
    jobs, stream, resolved = job()
    jobs.hear_cancelled(jobs.ask_back(stream, 1), answer([[1, 2]]))
    assert jobs.begin_here(stream, 1) is not None
    jobs.restart(near=False)
    assert sent_again(stream) == [0, 2]
    assert stream.elsewhere() == [[1, 2]]
    stream.place(1, [b"value"], failed=False)
    assert list(resolved) == [(1, b"value")]


def test_an_answer_in_the_new_session_counts_as_well():
    jobs, stream, _ = job()
    question = jobs.ask_back(stream, 1)
    jobs.restart(near=False)
    assert sent_again(stream) == [0, 1, 2]  # before the question is asked again
    assert jobs.taken_back(question) == []
    jobs.hear_cancelled(question, answer([[1, 2]]))
    assert stream.back.is_to_run(1)


@pytest.mark.parametrize("has_come", [False, True])
def test_a_user_who_cancels_a_call_that_is_asked_back_ends_it(has_come):
    jobs, stream, resolved = job()
    question = jobs.ask_back(stream, 1)
    if has_come:
        jobs.hear_cancelled(question, answer([[1, 2]]))
    jobs.take(stream, stream.withdraw([(0, 3)], CANCELLED))
    if not has_come:
        jobs.hear_cancelled(question, answer([[1, 2]]))
    assert jobs.begin_here(stream, 1) is None
    [(future, ended)] = resolved
    assert (future, ended.kind) == (1, "cancelled")


def test_others_calls_that_an_answer_names_are_cancelled():
    jobs, stream, resolved = job()
    jobs.ask_back(stream, 1)
    jobs.hear_cancelled(Cancel(2, "j", [], False), answer([[0, 3]]))
    assert stream.back.is_to_run(1)
    assert [(future, ended.kind) for future, ended in resolved] == [
        (0, "cancelled"),
        (2, "cancelled"),
    ]


def test_a_job_that_is_over_at_the_gateway_keeps_results_that_are_on_their_way():
    jobs, stream, resolved = job()
    jobs.hear_cancelled(jobs.ask_back(stream, 1), answer([], "job-not-found"))
    assert not resolved
    assert not stream.back.is_to_run(1)


def test_calls_of_a_held_job_are_not_asked_back():
    jobs, stream, _ = job()
    jobs.hear_hold(HoldChanged("j", "eve", 0.0, False), "site")
    assert jobs.ask_back(stream, 1) is None
    jobs.hear_hold(HoldChanged("j", "", 0.0, False), "site")
    assert jobs.ask_back(stream, 1) is not None


def test_calls_that_ended_are_not_asked_back():
    jobs, stream, _ = job()
    stream.place(1, [Ended("error", "it failed")], failed=True)
    assert jobs.ask_back(stream, 1) is None


@pytest.mark.parametrize(
    "bound",
    [
        {"tags": {"gpu": 1}},
        {"timeout_s": 5.0},
        {"max_cost_nanos": 1},
        {"detached": True},
        {"results": "ref"},
        {"wishes": {"environment": {"image": "i"}}},
        {"wishes": {"sites": ["west"]}},
        {"wishes": {"deferrable": True}},
    ],
)
def test_calls_whose_job_says_where_or_how_they_run_stay_there(bound):
    assert not may_run_in_task(replace(OPENING, **bound), CALL)


def test_calls_with_references_or_inputs_stay_there():
    assert may_run_in_task(OPENING, CALL)
    assert may_run_in_task(replace(OPENING, wishes={"objective": "fastest"}), CALL)
    assert not may_run_in_task(OPENING, b"\x00head")
    assert not may_run_in_task(OPENING, OpenCall(CALL, (), ()))


def test_an_answer_for_no_call_is_for_none_that_is_asked_back():
    back = AskedBack()
    assert not back.are_asked([])
    assert back.ask(1)
    assert back.are_asked([(1, 2)])
    assert not back.are_asked([(1, 3)])
