"""The messages of clients and workers, and their reactions to messages from the gateway. Pure.

`say` gives an encoded message, `react` those that follow from one that was heard: more often than
not the ones of the protocol, so that the gateway comes to states that chance would never reach.
"""

import hashlib
import random
import sys
from typing import Any, Final, Protocol

from federation.ids import new_id
from federation.messages.messages import (
    MESSAGES,
    Ask,
    Assign,
    BegunTasks,
    Cancel,
    CloseJob,
    Drain,
    NeedFunction,
    OpenJob,
    Preparing,
    Pulse,
    PutFunction,
    Recall,
    Report,
    Returned,
    Tasks,
    Unknown,
)
from federation.payload import seal_call, seal_function
from gateway.api.desk import TAKES
from gateway.trust.rights import RIGHTS
from tests.fuzz.values import Level
from tests.fuzz.vocabulary import Remembered, Vocabulary, one_of

PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
NOWHERE: Final = {"nowhere": True}  # a tag that no worker has: what asks for it never runs
OLD_JOBS: Final = 40  # ids of jobs that each client uses again and again
OLD: Final = 0.03  # how often: the store is asked for each of them
SLOTS: Final = 4  # of a worker
WISHES: Final[tuple[dict[str, Any], ...]] = (
    *({}, {}, {"sites": ["paris"]}, {"sites": ["madrid"]}, {"sites": ["madrid"]}),
    *({"objective": "cheapest"}, {"not_sites": ["london"]}, {"deadline_s": 1.0}, {"unheard": 1}),
)
DETAILS: Final[dict[str, tuple[Any, ...]]] = {
    "job": ("fuzz-eve-1", "", "x", 1, None),
    "request": (1, {}),
    "after": (0, 1, 10**6, -1),
    "limit": (1, 10, 10**9),
    "wait_s": (0, 0.01, -1, "x"),
    "kind": ("usage", "jobs", "x"),
    "by": (["user"], ["pool", "project"], "x", []),
    "where": ({}, {"user": "eve"}, {"x": 1}),
    "start_s": (0, 1.0, 1e300, "x"),
    "end_s": (0, 4e9, -1),
    "sites": ([], ["paris"], "paris"),
    "slots": (0, 1, 10**9),
    "all_users": (True, False, 1),
    "dry_run": (True, True, 0),
}


_PRINTED: tuple[dict[str, Any], ...] = (  # as tasks print seldom, and some of it of an older party
    *({"prints": [], "streams": []},) * 18,
    {"prints": [[0, "\x1b[2Jhello"]], "streams": [2]},
    {"prints": [[0, "\x1b[2Jhello"]], "streams": []},
)


class Role(Protocol):
    """The speaker of a session."""

    def say(self, chance: random.Random, level: Level) -> bytes:
        """A message that it may send."""

    def breach(self, chance: random.Random) -> bytes:
        """One that it must not."""

    def react(self, message: Any, chance: random.Random) -> list[bytes]:
        """The reaction to one received message."""


class ClientRole:
    """A client; its token names the user."""

    def __init__(self, user: str) -> None:
        self._memory = memory = Remembered()
        self._functions = [seal_function(each) for each in (pow, abs, int)]
        memory.digests.extend(each.digest for each in self._functions)
        self._calls = [seal_call((2, 3), {}), seal_call((), {}), b"junk", b""]
        self._old = [f"fuzz-{user}-{number}" for number in range(OLD_JOBS)]
        memory.jobs.extend(self._old)
        named = {
            "job": one_of(memory.jobs, lambda chance: chance.choice(("", "x", new_id()))),
            "digest": self._digest,
            "request": lambda chance: int(chance.random() * 300),
        }
        weights = {
            OpenJob: 14.0,
            Tasks: 30.0,
            CloseJob: 14.0,
            Cancel: 16.0,
            PutFunction: 5.0,
            Ask: 0.5,
            Unknown: 4.0,
        }
        makers = {
            OpenJob: self._open,
            Tasks: self._tasks,
            CloseJob: self._close,
            PutFunction: self._put,
            Ask: self._ask,
        }
        self._vocabulary = Vocabulary(weights, named, makers, memory)
        self.say, self.breach = self._vocabulary.say, self._vocabulary.breach

    def _digest(self, chance: random.Random) -> bytes:
        known = self._memory.digests
        return chance.randbytes(32) if chance.random() < 0.02 else chance.choice(known)

    def _recent(self, chance: random.Random) -> str:
        jobs = self._memory.jobs
        return jobs[-1 - int(chance.random() * min(len(jobs), 8))]

    def _open(self, chance: random.Random) -> dict[str, Any]:
        is_old = chance.random() < OLD
        job = chance.choice(self._old) if is_old else new_id()
        self._memory.jobs.append(job)
        draw = chance.random
        return {
            "job": job,
            "name": "fuzz",
            "function": self._digest(chance),
            "detached": is_old and draw() < 0.3,
            "project": chance.choice(("risk", "fx", "p")),
            "priority": chance.choice((0.0, -1.0, 1.0)),
            "tags": dict(NOWHERE) if draw() < 0.7 else {},
            "timeout_s": chance.choice((None, None, 1.0, 0.01)),
            "retries": int(draw() * 3),
            "max_cost_nanos": None if draw() < 0.9 else 10**9,
            "currency": "USD",
            "python": PYTHON if draw() < 0.95 else "2.7",
            "prints": draw() < 0.1,
            "again": draw() < 0.05,
            "wishes": chance.choice(WISHES),
            "preemptible": draw() < 0.1,
            "tasks": None if draw() < 0.8 else int(draw() * 9),
            "task_s": None if draw() < 0.8 else 0.01,
        }

    def _tasks(self, chance: random.Random) -> dict[str, Any]:
        many = 300 if chance.random() < 0.002 else int(chance.random() * 4)
        return {
            "job": self._recent(chance),
            "first": int(chance.random() * 12) if chance.random() < 0.5 else 0,
            "arguments": [chance.choice(self._calls) for _ in range(many)],
        }

    def _close(self, chance: random.Random) -> dict[str, Any]:
        total = int(chance.random() * 6)
        elsewhere = [[0, 1]] if total and chance.random() < 0.1 else []
        return {"job": self._recent(chance), "total": total, "elsewhere": elsewhere}

    def _put(self, chance: random.Random) -> dict[str, Any]:
        if chance.random() < 0.9:
            known = chance.choice(self._functions)
            return {"digest": known.digest, "body": known.body}
        body = chance.randbytes(40)
        self._memory.digests.append(hashlib.sha256(body).digest())
        return {"digest": self._memory.digests[-1], "body": body}

    def _ask(self, chance: random.Random) -> dict[str, Any]:
        verb = "nothing" if chance.random() < 0.02 else chance.choice((*RIGHTS, *TAKES))
        names = [*TAKES.get(verb, ()), *(("odd",) if chance.random() < 0.1 else ())]
        named = [each for each in names if chance.random() < 0.5]
        details = {each: chance.choice(DETAILS.get(each, ("x", 1, None))) for each in named}
        return {"request": int(chance.random() * 300), "verb": verb, "details": details}

    def react(self, message: Any, chance: random.Random) -> list[bytes]:
        """Send the function that is asked for, or not."""
        if isinstance(message, NeedFunction) and chance.random() < 0.7:
            for each in self._functions:
                if each.digest == message.digest:
                    return [MESSAGES.encode(PutFunction(each.digest, each.body))]
        return []


class WorkerRole:
    """A worker: it takes its assignments, and reports at random."""

    def __init__(self) -> None:
        self._memory = memory = Remembered()
        named = {
            "assignment": self._assignment,
            "digest": one_of(memory.digests, lambda chance: chance.randbytes(32)),
        }
        weights = {
            Report: 30.0,
            BegunTasks: 15.0,
            Returned: 15.0,
            NeedFunction: 8.0,
            Preparing: 5.0,
            Pulse: 8.0,
            Unknown: 4.0,
            Drain: 0.3,
        }
        makers = {Report: self._report, BegunTasks: self._begun, Pulse: self._pulse}
        self._vocabulary = Vocabulary(weights, named, makers, memory)
        self.say, self.breach = self._vocabulary.say, self._vocabulary.breach

    def about(self, chance: random.Random) -> dict[str, Any]:
        """The worker's description of itself.

        The pool "honest" is left out: there it would be believed.
        """
        return {
            "slots": chance.choice((1, SLOTS, SLOTS, 64, 4_096, 0, -1, "x")),
            "pool": chance.choice(("workers", "workers", "workers", "", "local", "none")),
            "python": chance.choice((PYTHON, PYTHON, PYTHON, "2.7", 3)),
            "tags": chance.choice(({}, {}, {"gpu": 2}, {"bubblewrap": True}, {"": 1}, [])),
            "begun": chance.random() < 0.8,
            "others": chance.random() < 0.5,
            "host_memory_bytes": chance.choice((1 << 30, 1 << 62, 1)),
        }

    def _assignment(self, chance: random.Random) -> int:
        known = self._memory.assignments
        if known and chance.random() < 0.8:
            return chance.choice(known)[0]
        return int(chance.random() * 1_000)

    def _report(self, chance: random.Random) -> dict[str, Any]:
        known = self._memory.assignments
        number, first, tasks = chance.choice(known) if known else (1, 0, 1)
        part = min(tasks, int(chance.random() * 4))
        failed = part > 0 and chance.random() < 0.2
        kinds = ("raised", "timeout", "crashed", "cancelled", "preempted", "lost", "x")
        return {
            "assignment": number,
            "first": first + int(chance.random() * 3) * (chance.random() < 0.3),
            "values": [b"" if failed else b"\x80\x05K\x08."] * part,
            "failures": [[0, chance.choice(kinds), "fuzz", b""]] if failed else [],
            **chance.choice(_PRINTED),
            "wall_ns": chance.choice((0, 1, 10**6, 10**9, 10**15)),
            "cpu_ns": chance.choice((0, 10**6)),
            "peak_memory_bytes": chance.choice((0, 1 << 20, 1 << 62)),
        }

    def _begun(self, chance: random.Random) -> dict[str, Any]:
        known = self._memory.assignments
        rows = [[*chance.choice(known)[:2], 300] for _ in range(int(chance.random() * 3)) if known]
        return {"tasks": rows}

    def _pulse(self, chance: random.Random) -> dict[str, Any]:
        return {"slots": [{"state": "idle", "pid": 1}] * int(chance.random() * 5)}

    def react(self, message: Any, chance: random.Random) -> list[bytes]:
        """Run assigned tasks, in some way, and return recalled ones."""
        match message:
            case Assign():
                tasks = len(message.arguments)
                self._memory.assignments.append((message.assignment, message.first, tasks))
                self._memory.digests.append(message.function)
                if chance.random() < 0.6:
                    values = [b"\x80\x05K\x08."] * tasks
                    done = Report(message.assignment, message.first, values, [], [], 1000, 0, 1)
                    return [MESSAGES.encode(done)]
            case Recall() if chance.random() < 0.7:
                stop = max(message.stop, message.first + 1)
                ranges = [[message.first, stop]] if chance.random() < 0.5 else []
                return [MESSAGES.encode(Returned(message.assignment, ranges))]
        return []
