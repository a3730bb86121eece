"""Delegating grids: an engine with workers of its own, to which parcels of calls are handed.

To the broker such a grid is a worker like any other. A process of ours (gateway.grids.delegate)
dials the gateway, takes bundles, and speaks for the engine:

    broker ══ session ══ Delegate ── Book        which task is where, pure (gateway.grids.parcels)
                            │
                            ├── send, cancel, put ──► Engine   ──► its hosts
                            └── tell(News) ◄───────── Engine

So dispatch by credit, recall, notices, usage records and bills work as for slots of our own.

*What an engine may do.* It tells of a parcel before `send` has returned; it tells the same twice,
or tells of a parcel that nobody knows any more; it never says Begun. The books cope. What it may
not do is to keep a parcel for ever without holding it (`holds`), or to run one after Cancelled.

*What outlives the process.* An engine may be able to leave parcels at work when its process ends or
is killed, and to find them again in its next life (`Keeping`). It tells of each as Found, by the
label that it was sent with; what becomes of it, it tells as of any other. Their tasks are given to
us again by the gateway, and are not sent anew then (gateway.grids.estate).

Payloads stay closed: an engine carries bytes. What its hosts do with them is what a slot does
(gateway.worker.slot), so that results, failures and prints are the same as anywhere.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

FAILURE_KINDS: Final = frozenset({"error", "result", "timeout", "memory", "crash"})


@dataclass(frozen=True, slots=True)
class Label:
    """Which calls a parcel is of: they are known again by it, in a later life.

    Attributes:
        first: the number of its first call in the job, of `count`.
        digest: of all that decides what comes out of them, hexadecimal.
    """

    job: str
    first: int
    count: int
    digest: str

    @staticmethod
    def of(
        job: str,
        first: int,
        function: bytes,
        arguments: Sequence[bytes],
        timeout_s: float | None,
        prints: bool,
    ) -> "Label":
        """The label of calls."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (function, repr((timeout_s, prints)).encode(), *arguments):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return Label(job, first, len(arguments), digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Parcel:
    """Calls of one function, to be run in order on one of the engine's slots.

    Attributes:
        name: no other parcel of this process, or of a former life of it, ever has it.
        function: the digest of its body, which was `put` before.
        arguments: a payload a call.
        timeout_s: of each call.
        result_bytes_max: of each result; what is larger fails with kind "result".
        first: the number of its first call in the job.
    """

    name: str
    job: str
    function: bytes
    arguments: list[bytes]
    timeout_s: float | None = None
    prints: bool = False
    result_bytes_max: int = 32 << 20
    first: int = 0

    @property
    def label(self) -> Label:
        """What it is known again by."""
        return Label.of(
            *(self.job, self.first, self.function, self.arguments, self.timeout_s, self.prints)
        )


# --- what an engine tells -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """So many slots are ours now; `why` says what is wrong where there are none."""

    slots: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """The parcel is at work, or may be: it can't be taken back any more without being killed."""

    parcel: str


@dataclass(frozen=True, slots=True)
class Done:
    """The first so many calls of a parcel have ended; what is left of it has not run, and will not.

    Attributes:
        values: a payload each, empty where the call failed.
        failures: [offset, kind, text, payload], in order; kind is one of FAILURE_KINDS.
        prints: [offset, text].
        wall_ns: slot time of all of them together.
    """

    parcel: str
    values: list[bytes]
    failures: list[list[Any]] = field(default_factory=list)
    prints: list[list[Any]] = field(default_factory=list)
    wall_ns: int = 0
    cpu_ns: int = 0
    peak_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """The parcel was taken from us: a slot was reclaimed, a session ended. No fault of its calls:
    they run again, and none of their tries is used up.
    """

    parcel: str
    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The parcel took its host's worker down, as often as the engine has tried it."""

    parcel: str
    why: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """As we asked, none of its calls has ended, and none runs."""

    parcel: str


@dataclass(frozen=True, slots=True)
class Found:
    """A parcel of a former life is at work, or done; what has become of it follows.

    Told before the first Room of a process, by an engine that is Keeping.
    """

    parcel: str
    label: Label


Ended = Done | Lost | Broken | Cancelled
News = Room | Begun | Found | Ended


class Engine(Protocol):
    """Whoever runs parcels elsewhere. All of it is called in the agent's own thread."""

    @property
    def python(self) -> str:
        """The minor version of its hosts' Python, as in "3.12": only what fits it is sent."""
        ...

    @property
    def round_trip_s(self) -> float:
        """How long a parcel is on its way there and back, about: the broker sends so much ahead."""
        ...

    async def check(self) -> str:
        """Look whether parcels could be run: what the engine is, in words. Raises GridFault."""
        ...

    async def run(self, tell: Callable[[News], None]) -> None:
        """Serve until cancelled, and leave nothing running then. Trouble is told as Room(0).

        What a former life of ours has left running is ended first. For both see Keeping.
        """
        ...

    def put(self, digest: bytes, body: bytes) -> None:
        """A function's body, before the first parcel of it; again after `forget` alone."""
        ...

    def forget(self, digest: bytes) -> None:
        """No parcel of that function will come before it is put again."""
        ...

    def send(self, parcel: Parcel) -> None:
        """Have a parcel run. Exactly one of Done, Lost, Broken and Cancelled follows, or more."""
        ...

    def cancel(self, names: Collection[str], *, running: bool) -> None:
        """Take parcels back: those that have not begun, or what runs as well.

        Cancelled follows, or whatever else becomes of each. What can't be taken back is Begun.
        """
        ...

    def holds(self, name: str) -> bool:
        """Whether it will still tell of a parcel."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """What an engine has beside the rest if its parcels can outlive its process.

    One that has not is an Engine all the same: what it had is begun anew after a restart.
    """

    @property
    def take_up_s(self) -> float:
        """For so long what was Found waits for its tasks to be given to us again; then it is
        cancelled. 0: nothing is kept, and nothing Found.
        """
        ...

    @property
    def detaches(self) -> bool:
        """Whether what is at work stays so when the process is stopped, and not only when it is
        killed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Home:
    """Where an engine lives.

    Attributes:
        mark: ours: the same in each life of this gateway and pool, and no other's.
        folder: for its files, ours alone; it is there.
        say: takes a line for the operator.
    """

    pool: str
    mark: str
    folder: Path
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DelegatingKind:
    """A kind of delegating grid: an entry point of the group `gridfed.grids`, as a GridKind is.

    Attributes:
        read: reads the table `[pool.KIND]`; KnobError says which key is wrong and what it may be.
        open: opens an engine by what `read` returned; nothing is asked of it yet.
        place: where this very object is found, as "module:name".
    """

    name: str
    read: Callable[[Mapping[str, Any]], Any]
    open: Callable[[Any, Home], Engine]
    place: str
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Delegated:
    """What a delegating pool's configuration says: `table` is `[pool.KIND]`, without a fault."""

    kind: DelegatingKind
    table: Mapping[str, Any]
