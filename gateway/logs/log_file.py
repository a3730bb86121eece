"""The output of tasks in an SQLite file of its own, within its limits.

It is no part of the books: losing the file loses output and nothing else. So a file that can't be
read is set aside, and a new one is begun. Numbers of pieces are never used again in a file.
"""

import contextlib
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from federation.clocks import UtcS
from federation.messages.printed import to_character
from gateway.logs.limits import PIECE_BYTES, LogLimits, LogPage, LogPiece

DAMAGED: Final = ".damaged"  # the ending of a file that was set aside
BUSY_S: Final = 30.0
PIECES_MAX: Final = 5_000  # of one page
ADDED_MAX: Final = 1_000  # pieces of one message that keep their order
DROPPED_AT_ONCE: Final = 200  # pieces
FREED_PAGES: Final = 2_000  # given back to the disk in one transaction
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    bytes INTEGER NOT NULL DEFAULT 0,
    cut INTEGER NOT NULL DEFAULT 0,
    at_s REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS tasks (
    job INTEGER NOT NULL,
    task INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    cut INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, task)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pieces (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL,
    task INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    at_s REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS pieces_of_job ON pieces (job, id);
CREATE INDEX IF NOT EXISTS pieces_of_task ON pieces (job, task, id);
"""

# (job, when it arrived (UTC), (task, stream, text) of each piece)
Added = tuple[str, UtcS, Sequence[tuple[int, int, str]]]


class LogFile:
    """The file, open for writing: one thread at a time.

    Raises sqlite3.Error where the disk is full, or the file is damaged.
    """

    def __init__(self, path: Path, limits: LogLimits) -> None:
        self._limits = limits
        self._connection = _open(path)
        self._all_bytes = self._sum()

    def add(self, batch: Iterable[Added]) -> None:
        """Add output, and drop the oldest beyond the limits: all of it or nothing."""
        try:
            with self._connection:
                jobs = {self._add(*each) for each in batch}
                for job in jobs:
                    self._hold_job(job)
                self._hold_site()
        except sqlite3.Error:
            self._all_bytes = self._sum()
            raise

    def forget(self, names: Iterable[str]) -> None:
        """Drop all output of these jobs."""
        with self._connection as connection:
            for name in names:
                found = connection.execute("SELECT id FROM jobs WHERE name = ?", (name,)).fetchone()
                if found is not None:
                    for table, key in (("pieces", "job"), ("tasks", "job"), ("jobs", "id")):
                        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", found)  # noqa: S608
        self._connection.execute(f"PRAGMA incremental_vacuum({FREED_PAGES})").fetchall()
        self._all_bytes = self._sum()

    def silent_since(self, utc_s: UtcS, besides: Collection[str]) -> list[str]:
        """Return the jobs without output since a moment, UTC, except for those given."""
        query = "SELECT name FROM jobs WHERE at_s < ?"
        names = (name for (name,) in self._connection.execute(query, (utc_s,)))
        return [name for name in names if name not in besides]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _sum(self) -> int:
        (found,) = self._connection.execute("SELECT COALESCE(SUM(bytes), 0) FROM jobs").fetchone()
        return int(found)

    def _add(self, name: str, at_s: UtcS, pieces: Sequence[tuple[int, int, str]]) -> int:
        run = self._connection.execute
        run(
            "INSERT INTO jobs (name, at_s) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET at_s = excluded.at_s",
            (name, at_s),
        )
        (job,) = run("SELECT id FROM jobs WHERE name = ?", (name,)).fetchone()
        pieces = merged(pieces)
        bodies = [text.encode("utf-8", "surrogatepass") for _, _, text in pieces]
        run_many = self._connection.executemany
        run_many(
            "INSERT INTO pieces (job, task, stream, at_s, body) VALUES (?, ?, ?, ?, ?)",
            [
                (job, task, stream, at_s, body)
                for (task, stream, _), body in zip(pieces, bodies, strict=True)
            ],
        )
        sizes: dict[int, int] = {}
        for (task, _, _), body in zip(pieces, bodies, strict=True):
            sizes[task] = sizes.get(task, 0) + len(body)
        run_many(
            "INSERT INTO tasks (job, task, bytes) VALUES (?, ?, ?) "
            "ON CONFLICT (job, task) DO UPDATE SET bytes = bytes + excluded.bytes",
            [(job, task, size) for task, size in sizes.items()],
        )
        self._count(job, sum(sizes.values()) + PIECE_BYTES * len(pieces))
        for task in sizes:
            self._hold_task(job, task)
        return int(job)

    def _count(self, job: int, more: int, cut: int = 0) -> None:
        """Count bytes that a job has more, or less, and those that were cut from it."""
        self._all_bytes += more
        self._connection.execute(
            "UPDATE jobs SET bytes = bytes + ?, cut = cut + ? WHERE id = ?", (more, cut, job)
        )

    def _hold_task(self, job: int, task: int) -> None:
        """Drop the oldest output of a task beyond its limit."""
        run, where = self._connection.execute, (job, task)
        (size,) = run("SELECT bytes FROM tasks WHERE job = ? AND task = ?", where).fetchone()
        over = cut = size - self._limits.task_bytes
        if over <= 0:
            return
        gone = 0
        pieces = run("SELECT id, body FROM pieces WHERE job = ? AND task = ? ORDER BY id", where)
        while over > 0:
            number, body = pieces.fetchone()
            if len(body) <= over:
                run("DELETE FROM pieces WHERE id = ?", (number,))
                over, gone = over - len(body), gone + 1
                continue
            at = to_character(body, over)
            run("UPDATE pieces SET body = ? WHERE id = ?", (body[at:], number))
            cut, over = cut + at - over, 0
        run(
            "UPDATE tasks SET bytes = bytes - ?, cut = cut + ? WHERE job = ? AND task = ?",
            (cut, cut, *where),
        )
        self._count(job, -cut - PIECE_BYTES * gone, cut)

    def _hold_job(self, job: int) -> None:
        """Drop the oldest output of a job beyond its limit."""
        while True:
            found = self._connection.execute(
                "SELECT bytes FROM jobs WHERE id = ?", (job,)
            ).fetchone()
            if found is None or found[0] <= self._limits.job_bytes:
                return
            self._drop_oldest(found[0] - self._limits.job_bytes, "WHERE job = ?", (job,))

    def _hold_site(self) -> None:
        """Drop the oldest output of all beyond the site's limit."""
        while self._all_bytes > self._limits.site_bytes:
            if not self._drop_oldest(self._all_bytes - self._limits.site_bytes):
                return

    def _drop_oldest(self, over: int, where: str = "", which: tuple[int, ...] = ()) -> bool:
        """Drop pieces, the oldest first, of so many bytes; return whether there were any."""
        run = self._connection.execute
        query = f"SELECT id, job, task, LENGTH(body) FROM pieces {where} ORDER BY id LIMIT ?"  # noqa: S608
        rows = run(query, (*which, DROPPED_AT_ONCE)).fetchall()
        for number, job, task, size in rows:
            if over <= 0:
                break
            run("DELETE FROM pieces WHERE id = ?", (number,))
            run("UPDATE tasks SET bytes = bytes - ? WHERE job = ? AND task = ?", (size, job, task))
            run("DELETE FROM tasks WHERE job = ? AND task = ? AND bytes <= 0", (job, task))
            self._count(job, -size - PIECE_BYTES, size)
            over -= size + PIECE_BYTES
        return bool(rows)


def merged(pieces: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return pieces with neighbours of one task and stream as one: a row for each costs much.

    Where more than ADDED_MAX are left, each task has one piece a stream, and the order in which
    its two streams were written is lost.
    """
    found: list[tuple[int, int, list[str]]] = []
    for task, stream, text in pieces:
        if found and found[-1][:2] == (task, stream):
            found[-1][2].append(text)
        else:
            found.append((task, stream, [text]))
    if len(found) > ADDED_MAX:
        texts: dict[tuple[int, int], list[str]] = {}
        for task, stream, parts in found:
            texts.setdefault((task, stream), []).extend(parts)
        found = [(*key, parts) for key, parts in texts.items()]
    return [(task, stream, "".join(parts)) for task, stream, parts in found]


def read(path: Path, name: str, task: int | None, after: int, bytes_max: int) -> LogPage:
    """Return the pieces of a job, or of one task of it, after the number `after`.

    At most some `bytes_max` bytes. From any thread, beside the one that writes. Raises
    sqlite3.Error where the file can't be read.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
        found = connection.execute("SELECT id, cut FROM jobs WHERE name = ?", (name,)).fetchone()
        if found is None:
            return LogPage([], more=False, cut_bytes=0)
        job, cut = found
        where, which = "job = ?", [job]
        if task is not None:
            where, which = "job = ? AND task = ?", [job, task]
            query = f"SELECT cut FROM tasks WHERE {where}"  # noqa: S608
            (cut,) = connection.execute(query, which).fetchone() or (0,)
        rows = connection.execute(
            f"SELECT id, at_s, task, stream, body FROM pieces WHERE {where} AND id > ? "  # noqa: S608
            "ORDER BY id LIMIT ?",
            (*which, after, PIECES_MAX + 1),
        )
        pieces: list[LogPiece] = []
        size = 0
        for number, at_s, its_task, stream, body in rows:
            size += len(body)
            if pieces and (size > bytes_max or len(pieces) == PIECES_MAX):
                return LogPage(pieces, more=True, cut_bytes=cut)
            text = body.decode("utf-8", "replace")
            pieces.append(LogPiece(number, UtcS(at_s), its_task, stream, text))
        return LogPage(pieces, more=False, cut_bytes=cut)


def _open(path: Path) -> sqlite3.Connection:
    """Return a connection to the file; one that can't be read is set aside first."""
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, or no space: it may be sound
            raise
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    path.replace(path.with_name(path.name + DAMAGED))
    return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)  # the files beside it get its mode
    connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
        connection.execute("SELECT COUNT(*) FROM jobs").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


__all__ = ["Added", "LogFile", "read"]
