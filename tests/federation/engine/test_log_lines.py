"""Pieces of output put together to lines, page by page."""

from datetime import UTC, datetime

from federation.engine.log_lines import LINE_CHARS_MAX, LineAssembler, read_lines


def lines(*pieces):
    """(task, stream, text) of the lines in (task, stream, text) of pieces."""
    assembler = LineAssembler()
    found = [line for piece in pieces for line in assembler.feed(1.0, *piece)]
    found += assembler.finish(1.0)
    return [(each.task, each.stream, each.text) for each in found]


def test_lines_of_tasks_and_streams_are_kept_apart():
    pieces = [(0, 1, "a"), (1, 1, "b\n"), (0, 2, "err\n"), (0, 1, "c\nd\n")]
    assert lines(*pieces) == [
        (1, "stdout", "b"),
        (0, "stderr", "err"),
        (0, "stdout", "ac"),
        (0, "stdout", "d"),
    ]


def test_a_last_line_needs_no_end():
    assert lines((0, 1, "a\nno end")) == [(0, "stdout", "a"), (0, "stdout", "no end")]


def test_a_bar_is_its_last_state():
    assert lines((0, 2, "\r10%|#  |"), (0, 2, "\r99%|###|\n"), (0, 2, "dos\r\n")) == [
        (0, "stderr", "99%|###|"),
        (0, "stderr", "dos"),
    ]


def test_a_line_without_an_end_is_given_in_parts():
    found = lines(*[(0, 1, "x" * 1000)] * 200)
    assert sum(len(text) for _, _, text in found) == 200_000
    assert max(len(text) for _, _, text in found) <= LINE_CHARS_MAX + 1000


class Gateway:
    """Answers the question `logs` from a list of answers."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def __call__(self, details):
        self.asked.append((details.get("task"), details["after"], details["wait_s"] > 0))
        return {"more": False, "cut_bytes": 0, "ended": True, "pieces": [], **self.answers.pop(0)}


def piece(number, text):
    return [number, 5.0, 0, 1, text]


def test_all_pages_are_read():
    gateway = Gateway({"pieces": [piece(1, "a\nb")], "more": True}, {"pieces": [piece(2, "c\n")]})
    found = list(read_lines(gateway, 7, follow=False))
    assert [each.text for each in found] == ["a", "bc"]
    assert found[0].at == datetime.fromtimestamp(5.0, UTC)
    assert gateway.asked == [(7, 0, False), (7, 1, False)]


def test_a_job_is_followed_to_its_end():
    gateway = Gateway(
        {"ended": False},
        {"ended": False},
        {"ended": False, "pieces": [piece(3, "a\n")]},
        {"ended": True, "pieces": [piece(4, "b")]},
    )
    assert [each.text for each in read_lines(gateway, None, follow=True)] == ["a", "b"]
    waits = [(None, 0, False), (None, 0, True), (None, 0, True), (None, 3, True)]
    assert gateway.asked == waits


def test_a_job_that_is_not_followed_is_read_once():
    gateway = Gateway({"ended": False, "pieces": [piece(3, "a\n")]})
    assert [each.text for each in read_lines(gateway, None, follow=False)] == ["a"]


def test_dropped_output_is_told_of_once():
    cut = []
    gateway = Gateway(
        {"cut_bytes": 9, "pieces": [piece(1, "a\n")], "more": True},
        {"cut_bytes": 12, "pieces": [piece(2, "b\n")]},
    )
    assert len(list(read_lines(gateway, None, follow=False, on_cut=cut.append))) == 2
    assert cut == [9]


class Clock:
    """A clock that each answer moves on."""

    def __init__(self, *at_s):
        self.at_s = list(at_s)

    def __call__(self):
        return self.at_s.pop(0)


def followed(*answers, at_s):
    gateway = Gateway(*answers)
    lines_ = read_lines(gateway, None, follow=True, mono_s=Clock(*at_s))
    return [each.text for each in lines_], gateway


def test_a_line_without_an_end_is_given_when_no_more_of_it_comes():
    more = {"ended": False}
    gateway = Gateway({"pieces": [piece(1, "ready? ")], **more}, more, {"pieces": []})
    found = read_lines(gateway, None, follow=True, mono_s=Clock(0.0, 1.0, 2.0))
    assert next(found).text == "ready? "
    assert len(gateway.asked) == 2  # the job goes on
    assert list(found) == []


def test_what_is_added_to_a_line_that_was_given_is_a_line_and_its_end_is_none():
    more = {"ended": False}
    added = {"pieces": [piece(2, "yes\n\nnext\n")]}
    assert followed({"pieces": [piece(1, "ready? ")], **more}, more, added, at_s=(0, 1, 2))[0] == [
        "ready? ",
        "yes",
        "",
        "next",
    ]
    ended = {"pieces": [piece(2, "\nnext\n")]}
    assert followed({"pieces": [piece(1, "ready? ")], **more}, more, ended, at_s=(0, 1, 2))[0] == [
        "ready? ",
        "next",
    ]


def test_a_bar_that_moves_all_the_time_is_given_now_and_then():
    moves = [{"pieces": [piece(at, f"\r{at}%")], "ended": False} for at in range(1, 14)]
    found, _ = followed(*moves, {}, at_s=[0.9 * at for at in range(14)])
    assert found == ["13%"]  # held from 0.0 s to 10.8 s; then the job ends


def test_where_there_is_no_output_the_reason_is_told():
    told = []
    assert list(read_lines(Gateway({"note": "why"}), 3, follow=False, on_none=told.append)) == []
    assert list(read_lines(Gateway({}), 3, follow=False, on_none=told.append)) == []
    assert told == ["why", "no output of it is kept"]
    gateway = Gateway({"pieces": [piece(1, "a\n")], "note": ""})
    assert len(list(read_lines(gateway, 3, follow=False, on_none=told.append))) == 1
    assert len(told) == 2
