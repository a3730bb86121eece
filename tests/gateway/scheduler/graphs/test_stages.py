"""Stages of graphs: which jobs are in one, their depth, and what is known when they have ended."""

import itertools
from types import SimpleNamespace
from typing import Any

from federation.ranges import RangeSet
from gateway.scheduler.graphs import stages
from gateway.scheduler.graphs.stages import StageBook


def job(name: str, number: int, done: int = 0) -> Any:
    spec = SimpleNamespace(name=f"f of {name}")
    figures = {"done": done, "failed": 0, "cancelled": 0, "in_flight": 1}
    return SimpleNamespace(id=name, number=number, spec=spec, known=RangeSet([(0, 10)]), **figures)


def book(*names: str) -> tuple[StageBook, dict[str, Any]]:
    jobs = {name: job(name, at) for at, name in enumerate(names, 1)}
    return StageBook(jobs), jobs


def test_a_graph_is_what_reads_and_is_read_from_any_of_its_jobs() -> None:
    found, _ = book("a", "b", "c", "other")
    found.note("b", "a", 5)
    found.note("b", "a", 5)
    found.note("c", "b", 1)
    for name in "abc":
        rows = found.of(name)
        assert [(row["id"], row["depth"]) for row in rows] == [("a", 0), ("b", 1), ("c", 2)]
    assert rows[1]["reads"] == [["a", 10]]
    assert (rows[0]["total"], rows[0]["running"], rows[0]["waiting"]) == (10, 1, 9)
    assert found.of("other") == []


def test_jobs_may_read_themselves_and_each_other() -> None:
    found, _ = book("a", "b")
    for reader, source in (("a", "a"), ("a", "b"), ("b", "a")):
        found.note(reader, source, 1)
    assert [(row["id"], row["depth"]) for row in found.of("b")] == [("a", 0), ("b", 1)]


def test_a_stage_that_has_ended_keeps_its_figures() -> None:
    found, jobs = book("a", "b")
    found.note("b", "a", 1)
    jobs["a"].done = 10
    found.finished(jobs.pop("a"))
    row, _ = found.of("b")
    assert (row["name"], row["done"], row["total"], row["running"]) == ("f of a", 10, 10, 0)


def test_what_is_remembered_and_shown_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(stages, "STAGES_MAX", 5)
    monkeypatch.setattr(stages, "SHOWN_MAX", 7)
    names = [f"j{at}" for at in range(20)]
    found, jobs = book(*names)
    for before, after in itertools.pairwise(names):
        found.note(after, before, 1)
    assert len(found.of("j0")) == 7
    for name in names:
        found.finished(jobs.pop(name))
    assert len(found._ended) == 5
    assert len(found._reads) <= 6
    assert len(found._readers) <= 6
