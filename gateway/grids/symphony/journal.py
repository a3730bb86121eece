"""What is open at Symphony, on disk: sessions and, by their labels, the tasks in them.

A line of JSON for each change, so that little is written for a parcel; the whole anew when most of
it is of the past. What the death of a process leaves in it is what was so, but for the last batch
that was being sent and was not answered. A power cut may take lines, not the names of sessions:
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

from gateway.grids.contract import Blame, GridFault
from gateway.grids.delegating import Label

FILE: Final = "sessions.jsonl"
LINES_MAX: Final = 20_000  # then what is of the past is left out


Tasks = dict[str, tuple[str, Label]]  # of a session, those that have not ended: their parcels


class Journal:
    """The file of one pool, and what it says.

    Args:
        application: of which the sessions are; those of another are none of ours.
        say: is told of lines that can't be read, and once when none can be written.
    """

    def __init__(self, folder: Path, application: str, say: Callable[[str], None]) -> None:
        self.sessions: dict[str, Tasks] = {}  # that are open
        self._where: dict[str, tuple[str, str]] = {}  # parcels, by session and task
        self._path = folder / FILE
        self._application = application
        self._say = say
        self._file: FileIO | None = None
        self._lines = 0
        self._is_torn = False  # the last line could not be written, or half of it alone

    def load(self) -> None:
        """Read what a former life has written, and begin a fresh file with what is left of it.

        Raises GridFault when the file can't be read or written.
        """
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            lines = []
        except OSError as error:
            # Not left out: the next line written would be the end of all that is in it.
            text = f"{self._path} can't be read: {error.strerror}"
            raise GridFault(Blame.NEVER, text) from None
        self.sessions.clear()  # it is read again when it could not be written
        self._where.clear()
        is_ours = True
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                said = json.loads(line.decode())
                if not isinstance(said, dict):
                    raise ValueError("no object")
                if "application" in said:
                    is_ours = said["application"] == self._application
                elif is_ours:
                    _check_tasks(said.get("tasks", []))
                    self._take(said)
            except (ValueError, TypeError, KeyError, RecursionError):
                if number < len(lines):  # the last may be half a line
                    self._say(f"line {number} of {self._path} can't be read, and is left out")
        try:
            self._write_whole()
        except OSError as error:
            text = f"{self._path} can't be written: {error.strerror}"
            raise GridFault(Blame.AGAIN, text) from None

    def opened(self, session: str) -> None:
        """A session is open; on the disk before anything is sent to it.

        Raises GridFault when it can't be: it must be closed then, for no later life knows of it.
        """
        if not self._note({"open": session}, sync=True):
            del self.sessions[session]
            raise GridFault(Blame.AGAIN, f"{self._path} can't be written, and no session is kept")

    def sent(self, session: str, tasks: Collection[tuple[str, str, Label]]) -> None:
        """Parcels have become tasks: (task, parcel, label) each."""
        if tasks:
            self._note(_sent(session, tasks))

    def ended(self, parcel: str) -> None:
        """What became of a parcel has been told; nothing if it was never sent."""
        if parcel in self._where:
            self._note({"ended": [parcel]})

    def closed(self, session: str) -> None:
        """A session is closed, with all that was in it."""
        if session in self.sessions:
            self._note({"closed": session})

    def close(self) -> None:
        """Let go of the file, until there is more to write."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- lines ---------------------------------------------------------------------------------

    def _take(self, said: dict[str, Any]) -> None:
        """What a line says. Raises ValueError, TypeError or KeyError where it makes no sense."""
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
                raise ValueError("no such line")

    def _note(self, said: dict[str, Any], *, sync: bool = False) -> bool:
        """Take a line, and write it; whether that went well.

        A full disk costs what a later life would have found, and not the work that is at hand: the
        next line tries to write the whole anew.
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
    """The line that says which parcels have become which tasks."""
    fields = [
        [task, name, label.job, label.first, label.count, label.digest]
        for task, name, label in tasks
    ]
    return {"sent": session, "tasks": fields}


def _check_tasks(tasks: Any) -> None:
    """Whether tasks are as they were written. Raises ValueError: none of them is taken, then."""
    for task, name, job, first, count, digest in tasks:
        if any(type(each) is not str for each in (task, name, job, digest)):
            raise ValueError("text is no text")
        if any(type(each) is not int or each < 0 for each in (first, count)):
            raise ValueError("a count is no count")
