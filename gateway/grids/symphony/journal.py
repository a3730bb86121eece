"""A record of the open sessions at Symphony, on disk, with their tasks by label.

It is a line of JSON for each change, so that a parcel costs little writing; the file is rewritten
when most of it is obsolete. After the death of a process it is accurate, except for the last batch
that was being sent without an answer. A power cut may lose lines, but not the names of sessions:
those are synced.

    {"application": "gridfed"}
    {"open": "17"}
    {"sent": "17", "tasks": [["1", "grid-…-1", "job", 0, 1, "5f…"], …]}
    {"ended": ["grid-…-1", …]}
    {"closed": "17"}
"""

import errno
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, Final

from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.delegating import Label

FILE: Final = "sessions.jsonl"
LINES_MAX: Final = 20_000  # beyond this obsolete lines are dropped


Tasks = dict[str, tuple[str, Label]]  # of a session, those that have not ended: their parcels


class ParcelJournal:
    """The file of one pool, and its contents.

    Args:
        application: of the sessions; those of another application are not ours.
        say: told of unreadable lines, and once of a failure to write.
    """

    def __init__(self, folder: Path, application: str, say: Callable[[str], None]) -> None:
        self.sessions: dict[str, Tasks] = {}  # the open ones
        self._where: dict[str, tuple[str, str]] = {}  # parcels, by session and task
        self._path = folder / FILE
        self._application = application
        self._say = say
        self._file: FileIO | None = None
        self._lines = 0
        self._is_torn = False  # the last line was not written, or only half of it

    def load(self) -> None:
        """Read the file of a former run, and begin a fresh one with its open sessions.

        Raises GridFault when the file can't be read or written.
        """
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            lines = []
        except OSError as error:
            # Not ignored: the next written line would erase its contents.
            text = f"{self._path} can't be read: {error.strerror}"
            raise GridFault(FailureClass.NEVER, text) from None
        self.sessions.clear()  # it is read again after a failure to write
        self._where.clear()
        is_ours = True
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                said = json.loads(line.decode())
                if not isinstance(said, dict):
                    raise ValueError("the line is not an object")
                if "application" in said:
                    is_ours = said["application"] == self._application
                elif is_ours:
                    _check_tasks(said.get("tasks", []))
                    self._take(said)
            except (ValueError, TypeError, KeyError, RecursionError):
                if number < len(lines):  # the last may be half a line
                    self._say(f"line {number} of {self._path} is invalid, and is skipped")
        try:
            self._write_whole()
        except OSError as error:
            text = f"{self._path} can't be written: {error.strerror}"
            raise GridFault(FailureClass.AGAIN, text) from None

    def opened(self, session: str) -> None:
        """Note an open session; it is on disk before anything is sent to it.

        Raises GridFault when it can't be written: the session must be closed then, as no later run
        would know of it.
        """
        if not self._note({"open": session}, sync=True):
            del self.sessions[session]
            raise GridFault(
                FailureClass.AGAIN,
                f"{self._path} can't be written: sessions are not kept across restarts",
            )

    def sent(self, session: str, tasks: Collection[tuple[str, str, Label]]) -> None:
        """Note that parcels have become tasks: (task, parcel, label) each."""
        if tasks:
            self._note(_sent(session, tasks))

    def ended(self, parcel: str) -> None:
        """Note that the outcome of a parcel was reported; no effect if it was never sent."""
        if parcel in self._where:
            self._note({"ended": [parcel]})

    def closed(self, session: str) -> None:
        """Note that a session is closed, with all its tasks."""
        if session in self.sessions:
            self._note({"closed": session})

    def close(self) -> None:
        """Close the file, until there is more to write."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- lines ---------------------------------------------------------------------------------

    def _take(self, said: dict[str, Any]) -> None:
        """Apply a line. Raises ValueError, TypeError or KeyError if it is invalid."""
        match said:
            case {"open": str(session)}:
                self.sessions.setdefault(session, {})
            case {"sent": str(session), "tasks": list(tasks)}:
                for task, name, job, first, count, digest in tasks:
                    self.sessions[session][task] = (name, Label(job, first, count, digest))
                    self._where[name] = (session, task)
            case {"ended": list(names)}:
                for name in names:
                    session, task = self._where.pop(name)
                    self.sessions[session].pop(task, None)
            case {"closed": str(session)}:
                for name, _ in self.sessions.pop(session).values():
                    self._where.pop(name, None)
            case _:
                raise ValueError("unknown line")

    def _note(self, said: dict[str, Any], *, sync: bool = False) -> bool:
        """Apply a line, and write it; return whether it was written.

        A full disk costs the record for a later run, and not the work at hand: the next line tries
        to rewrite the file.
        """
        self._take(said)
        try:
            if self._is_torn or self._lines >= LINES_MAX + 2 * len(self._where):
                self._write_whole()
            else:
                self._append(json.dumps(said) + "\n", sync=sync)
        except OSError as error:
            if not self._is_torn:
                self._say(f"{self._path} can't be written: {error.strerror}")
            self._is_torn = True
            return False
        self._is_torn = False
        return True

    def _append(self, line: str, *, sync: bool) -> None:
        self._lines += 1
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        data = line.encode()
        if self._file.write(data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sync:
            os.fsync(self._file.fileno())

    def _whole(self) -> Iterator[dict[str, Any]]:
        yield {"application": self._application}
        for session, tasks in self.sessions.items():
            yield {"open": session}
            if tasks:
                yield _sent(session, ((task, name, label) for task, (name, label) in tasks.items()))

    def _write_whole(self) -> None:
        self.close()
        fresh = self._path.with_suffix(".new")
        lines = [json.dumps(said) for said in self._whole()]
        with fresh.open("w") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._lines = len(lines)


def _sent(session: str, tasks: Iterable[tuple[str, str, Label]]) -> dict[str, Any]:
    """Return the line that records which parcels have become which tasks."""
    fields = [
        [task, name, label.job, label.first, label.count, label.digest]
        for task, name, label in tasks
    ]
    return {"sent": session, "tasks": fields}


def _check_tasks(tasks: Any) -> None:
    """Check tasks of a line. Raises ValueError: none of them is applied then."""
    for task, name, job, first, count, digest in tasks:
        if any(type(each) is not str for each in (task, name, job, digest)):
            raise ValueError("a value must be text")
        if any(type(each) is not int or each < 0 for each in (first, count)):
            raise ValueError("a value must be a count")
