"""The requests of a client that await an answer, when its session is lost."""

from federation.engine.books.requests import RequestTable
from federation.messages.messages import Ask, Cancel


class Posted(list):
    """A dialogue that keeps what is posted."""

    post = list.append


def test_a_cancel_that_was_answered_here_is_told_to_the_gateway_all_the_same():
    posted = Posted()
    table = RequestTable(posted)
    stop = Cancel(0, "a", [[0, 1]], True)
    _, answers = table.post(stop)
    _, others = table.post(Cancel(0, "b", [], False))
    posted.clear()
    table.restart("tcp://here:1", lambda cancel: [(0, 1)] if cancel.job == "a" else [])
    assert [each.value for each in answers] == [{"taken": [(0, 1)]}]
    assert others == []
    assert posted == [stop, Cancel(2, "b", [], False)]  # it may have begun for the last session
    assert [each.job for each in table.questions] == ["b"]


def test_a_request_for_a_gateway_that_was_left_is_not_sent_to_the_next():
    posted = Posted()
    table = RequestTable(posted)
    _, answers = table.post(Cancel(0, "a", [[0, 1]], True), at="tcp://there:1")
    _, others = table.post(Ask(0, "jobs", {}), at="tcp://there:1")
    posted.clear()
    table.restart("tcp://here:1", lambda cancel: [(0, 1)])
    assert posted == []
    assert [each.code for each in (*answers, *others)] == ["", "elsewhere"]
