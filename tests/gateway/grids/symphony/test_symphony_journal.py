"""The file of open work at Symphony: it reads as it was when a process died."""

import errno
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.grids.contract import GridFault
from gateway.grids.delegating import Label
from gateway.grids.symphony.journal import FILE, ParcelJournal


def label(number):
    return Label("job", number, 1, "ab")


def opened(folder, application="gridfed", said=None):
    journal = ParcelJournal(folder, application, (said if said is not None else []).append)
    journal.load()
    return journal


def known(journal):
    return {name: dict(each) for name, each in journal.sessions.items()}


def test_the_next_life_knows_what_was_open(tmp_path):
    journal = opened(tmp_path)
    assert known(journal) == {}
    journal.opened("17")
    journal.opened("18")
    journal.sent("17", [("1", "p-1", label(1)), ("2", "p-2", label(2))])
    journal.sent("18", [("1", "p-3", label(3))])
    journal.ended("p-1")
    journal.ended("nobody")
    journal.closed("18")
    journal.closed("nobody")
    assert known(opened(tmp_path)) == {"17": {"2": ("p-2", label(2))}}
    journal.close()
    journal.ended("p-2")  # after a connection, and before the next
    journal.close()
    assert known(opened(tmp_path)) == {"17": {}}


def test_half_a_line_at_the_end_is_left_out_and_one_elsewhere_is_said(tmp_path):
    lines = ['{"application": "gridfed"}', '{"open": "17"}', '{"open": 1', '{"sent": "1']
    (tmp_path / FILE).write_text("\n".join(lines))
    said = []
    assert known(opened(tmp_path, said=said)) == {"17": {}}
    assert len(said) == 1
    assert f"line 3 of {tmp_path / FILE}" in said[0]
    assert known(opened(tmp_path, said=said)) == {"17": {}}
    assert len(said) == 1, "it was written anew"


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "7",
        '{"sent": "5", "tasks": []}',
        '{"ended": ["p"]}',
        "{}",
        '{"sent": "17", "tasks": [["1", "p-1", "job", 0, 1, "ab"], ["2", "p", "job", "0", 1, 7]]}',
        '{"sent": "17", "tasks": [[["1"], "p-1", "job", 0, 1, "ab"]]}',
        '{"sent": "17", "tasks": 5}',
        "[" * 100_000,
        "\0" * 4096,
    ],
    ids=lambda each: each[:20],
)
def test_nonsense_does_no_harm(tmp_path, line):
    (tmp_path / FILE).write_text(f'{{"application": "gridfed"}}\n{{"open": "17"}}\n{line}\n')
    assert known(opened(tmp_path)) == {"17": {}}


def test_sessions_of_another_application_are_none_of_ours(tmp_path):
    journal = opened(tmp_path)
    journal.opened("17")
    journal.close()
    assert known(opened(tmp_path, "other")) == {}


def test_a_line_of_odd_bytes_costs_that_line_alone(tmp_path):
    lines = [b'{"application": "gridfed"}', b'{"open": "17"}', b'{"open": "\xff\xfe"}', b""]
    (tmp_path / FILE).write_bytes(b"\n".join(lines))
    said = []
    assert known(opened(tmp_path, said=said)) == {"17": {}}
    assert "line 3" in said[0]


def test_a_file_that_can_not_be_read_stays_as_it_is(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(GridFault, match=f"{FILE} can't be read: Is a directory"):
        opened(tmp_path)
    assert (tmp_path / FILE).is_dir()


def test_a_full_disk_loses_no_line_for_good_and_keeps_no_session(tmp_path, monkeypatch):
    said = []
    journal = opened(tmp_path, said=said)
    journal.opened("17")
    journal.sent("17", [("1", "p-1", label(1)), ("2", "p-2", label(2))])

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        for name in ("_append", "_write_whole"):
            patch.setattr(journal, name, full)
        journal.ended("p-1")
        journal.sent("17", [("3", "p-3", label(3))])
        with pytest.raises(GridFault, match="can't be written"):
            journal.opened("18")
        assert len(said) == 1
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes() + b'{"half')
    journal.ended("p-2")
    journal.close()
    assert known(opened(tmp_path)) == {"17": {"3": ("p-3", label(3))}}


@given(st.lists(st.tuples(st.sampled_from("osec"), st.integers(0, 3), st.integers(0, 6))))
def test_whatever_is_written_is_read_again(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("journal")
    journal = opened(folder)
    tasks = 0
    for step, session, parcel in steps:
        name = str(session)
        if step == "o":
            journal.opened(name)
        elif step == "s" and name in journal.sessions:
            tasks += 1
            journal.sent(name, [(str(tasks), f"p-{tasks}", label(tasks))])
        elif step == "e":
            journal.ended(f"p-{parcel}")
        elif step == "c":
            journal.closed(name)
    journal.close()
    assert known(opened(folder)) == known(journal)


def test_what_is_of_the_past_does_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.grids.symphony.journal.LINES_MAX", 20)
    journal = opened(tmp_path)
    journal.opened("17")
    for number in range(100):
        journal.sent("17", [(str(number), f"p-{number}", label(number))])
        if number:
            journal.ended(f"p-{number}")
    journal.close()
    lines = (tmp_path / FILE).read_text().splitlines()
    assert len(lines) < 30
    assert all(json.loads(line) for line in lines)
    assert known(opened(tmp_path)) == {"17": {"0": ("p-0", label(0))}}
