"""The file with the output of tasks: its limits, readings of it, and damage to it."""

import sqlite3

import pytest

from gateway.logs.limits import PIECE_BYTES, LogLimits
from gateway.logs.log_file import DAMAGED, LogFile, merged, read

PAGE_BYTES = 1 << 20


@pytest.fixture
def open_file(tmp_path):
    made = []

    def make(**limits):
        made.append(LogFile(tmp_path / "logs.sqlite", LogLimits(**limits)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs.sqlite"


def texts(path, job="j", task=None, after=0, bytes_max=PAGE_BYTES):
    page = read(path, job, task, after, bytes_max)
    return [(each.task, each.stream, each.text) for each in page.pieces]


def test_pieces_are_read_in_the_order_in_which_they_came(open_file, path):
    file = open_file()
    file.add([("j", 5.0, [(0, 1, "a\n"), (3, 2, "é\n")]), ("k", 6.0, [(0, 1, "k")])])
    file.add([("j", 7.0, [(0, 1, "b\n")])])
    assert texts(path) == [(0, 1, "a\n"), (3, 2, "é\n"), (0, 1, "b\n")]
    assert texts(path, task=3) == [(3, 2, "é\n")]
    assert texts(path, job="k") == [(0, 1, "k")]
    assert texts(path, job="none") == []
    assert [each.at_s for each in read(path, "j", 0, 0, PAGE_BYTES).pieces] == [5.0, 7.0]


def test_a_page_goes_on_after_the_last_piece(open_file, path):
    open_file().add([("j", 5.0, [(task, 1, "x" * 10) for task in range(5)])])
    page = read(path, "j", None, 0, 25)
    assert ([each.task for each in page.pieces], page.more) == ([0, 1], True)
    page = read(path, "j", None, page.pieces[-1].number, 25)
    assert [each.task for each in page.pieces] == [2, 3]
    page = read(path, "j", None, page.pieces[-1].number, 25)
    assert ([each.task for each in page.pieces], page.more) == ([4], False)


def test_a_piece_larger_than_a_page_is_read_all_the_same(open_file, path):
    open_file().add([("j", 5.0, [(0, 1, "x" * 100)])])
    assert texts(path, bytes_max=10) == [(0, 1, "x" * 100)]


def test_the_last_output_of_a_task_is_kept(open_file, path):
    file = open_file(task_bytes=10)
    file.add([("j", 5.0, [(0, 1, "aaaa"), (0, 2, "bbbb"), (1, 1, "other")])])
    file.add([("j", 6.0, [(0, 1, "cccccc")])])
    assert texts(path, task=0) == [(0, 2, "bbbb"), (0, 1, "cccccc")]
    file.add([("j", 6.0, [(0, 1, "dd")])])
    assert texts(path, task=0) == [(0, 2, "bb"), (0, 1, "cccccc"), (0, 1, "dd")]
    assert read(path, "j", 0, 0, PAGE_BYTES).cut_bytes == 6
    assert read(path, "j", 1, 0, PAGE_BYTES).cut_bytes == 0
    assert read(path, "j", None, 0, PAGE_BYTES).cut_bytes == 6


def test_no_half_of_a_character_is_left(open_file, path):
    open_file(task_bytes=3).add([("j", 5.0, [(0, 1, "éé")])])
    assert texts(path) == [(0, 1, "é")]


def test_the_oldest_output_of_a_job_is_dropped(open_file, path):
    file = open_file(job_bytes=3 * (PIECE_BYTES + 10))
    file.add([("j", 5.0, [(task, 1, f"{task:010}") for task in range(5)])])
    file.add([("k", 5.0, [(0, 1, "another")])])
    assert [task for task, _, _ in texts(path)] == [2, 3, 4]
    assert read(path, "j", None, 0, PAGE_BYTES).cut_bytes == 20
    assert texts(path, job="k") == [(0, 1, "another")]


def test_the_oldest_output_of_the_site_is_dropped(open_file, path):
    limits = {"site_bytes": 3 * (PIECE_BYTES + 10)}
    file = open_file(**limits)
    for number in range(5):
        file.add([(f"j{number}", 5.0, [(0, 1, "x" * 10)])])
    assert [bool(texts(path, f"j{number}")) for number in range(5)] == [False] * 2 + [True] * 3
    file.close()
    open_file(**limits).add([("j5", 5.0, [(0, 1, "x" * 10)])])  # what was there counts
    assert not texts(path, "j2")
    assert texts(path, "j5")


def test_a_job_is_forgotten_whole(open_file, path):
    file = open_file()
    file.add([("j", 5.0, [(0, 1, "a")]), ("k", 6.0, [(0, 1, "b")])])
    first = read(path, "j", None, 0, PAGE_BYTES).pieces[0].number
    file.forget(["j", "none"])
    assert texts(path) == []
    assert texts(path, "k") == [(0, 1, "b")]
    file.add([("j", 7.0, [(0, 1, "c")])])
    assert read(path, "j", None, 0, PAGE_BYTES).pieces[0].number > first  # a reader misses none


def test_jobs_are_known_by_their_last_output(open_file):
    file = open_file()
    file.add([("old", 5.0, [(0, 1, "a")]), ("live", 5.0, [(0, 1, "a")]), ("new", 5.0, [])])
    file.add([("new", 8.0, [(0, 1, "b")])])
    assert file.silent_since(8.0, {"live"}) == ["old"]


def test_output_outlives_the_process_that_wrote_it(open_file, path):
    open_file().add([("j", 5.0, [(0, 1, "a")])])
    open_file()
    assert texts(path) == [(0, 1, "a")]


def test_a_damaged_file_is_set_aside(open_file, path):
    path.write_bytes(b"no database at all, but quite long" * 100)
    open_file().add([("j", 5.0, [(0, 1, "a")])])
    assert texts(path) == [(0, 1, "a")]
    assert path.with_name(path.name + DAMAGED).exists()


def test_the_file_is_for_the_gateways_user_alone(open_file, path):
    open_file().add([("j", 5.0, [(0, 1, "a")])])
    files = list(path.parent.glob("logs.sqlite*"))
    assert len(files) > 1
    assert {each.stat().st_mode & 0o077 for each in files} == {0}


def test_all_of_a_batch_is_kept_or_nothing(open_file, path):
    file = open_file()
    with pytest.raises(sqlite3.Error):
        file.add([("j", 5.0, [(0, 1, "a")]), ("k", 5.0, [(0, None, "b")])])
    assert texts(path) == []
    file.add([("j", 5.0, [(0, 1, "c")])])
    assert texts(path) == [(0, 1, "c")]


def test_pieces_of_one_character_are_merged():
    one = [(0, 1, "a")] * 10_000
    assert merged(one) == [(0, 1, "a" * 10_000)]
    few = [(0, 1 + at % 2, "ab"[at % 2]) for at in range(100)]
    assert merged(few) == few, "two streams in their order"
    many = [(0, 1 + at % 2, "ab"[at % 2]) for at in range(10_000)]
    assert merged(many) == [(0, 1, "a" * 5_000), (0, 2, "b" * 5_000)]
