"""Reads the evidence that tasks leave on the disk (tasks.py): each run, and how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

VALUE_STEP = 7  # a task's value is its number times this, plus one (tasks.py)


@dataclass(slots=True)
class Run:
    """One run of a task. `end` is "ok", "raised", or empty: it was ended before it could say so."""

    key: str
    task: int
    run: str
    pid: int
    end: str = ""


def value_of(task: int) -> int:
    """The value that a task returns."""
    return task * VALUE_STEP + 1


def read_lines(lines: Iterable[str]) -> list[Run]:
    """The runs that lines of evidence tell of."""
    runs: dict[str, Run] = {}
    for line in lines:
        what, key, task, run, pid = line.split()
        if what == "begin":
            runs[run] = Run(key, int(task), run, int(pid))
        else:
            runs[run].end = what
    return list(runs.values())


def read_evidence(folder: Path) -> list[Run]:
    """All runs that have left evidence in a folder."""
    path = folder / "evidence"
    if not path.exists():
        return []
    with path.open() as file:
        return read_lines(file)
