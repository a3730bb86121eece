"""Delegating grids: an engine with workers of its own, which takes parcels of calls.

To the broker such a grid is a worker like any other. A process of ours
(gateway.grids.delegation.delegate) dials the gateway, takes bundles, and represents the engine:

    broker ══ session ══ Delegate ── Book where each task is, pure (delegation.parcels)
                            │
                            ├── send, cancel, put ──► Engine   ──► its hosts
                            └── tell(News) ◄───────── Engine

So dispatch by credit, recall, notices, usage records and bills work as for slots of our own.

*What an engine may do.* It may report on a parcel before `send` has returned, report the same news
twice, report on an unknown parcel, and never report Begun. The books cope. It may not keep a parcel
for ever without holding it (`holds`), or run one after Cancelled.

*What outlives the process.* An engine may be able to leave parcels at work when its process ends or
is killed, and to find them again in its next run (`Keeping`). It reports each as Found, with the
label that it was sent with, and then its outcome as for any other. The gateway assigns their tasks
to us again, and they are not sent a second time (gateway.grids.delegation.estate).

Payloads stay closed: an engine carries bytes. Its hosts process them as a slot does
(gateway.worker.slot.slot), so that results, failures and prints are the same as anywhere.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

FAILURE_KINDS: Final = frozenset({"error", "result", "timeout", "memory", "crash"})


@dataclass(frozen=True, slots=True)
class Label:
    """Identifies the calls of a parcel, so that a later run recognizes them.

    Attributes:
        first: the number of its first call in the job, of `count`.
        digest: of all inputs that decide their results, hexadecimal.
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
        """Return the label of calls."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (function, repr((timeout_s, prints)).encode(), *arguments):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return Label(job, first, len(arguments), digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Parcel:
    """Calls of one function, to be run in order on one of the engine's slots.

    Attributes:
        name: unique in this process, and in all former runs of it.
        function: the digest of its body, which was `put` before.
        arguments: a payload a call.
        timeout_s: of each call.
        result_bytes_max: of each result; a larger one fails with kind "result".
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
        """The label that identifies its calls."""
        return Label.of(
            *(self.job, self.first, self.function, self.arguments, self.timeout_s, self.prints)
        )


# --- news of an engine ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """The number of slots that are ours now; `why` is the reason if there are none."""

    slots: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """The parcel runs, or may run: it can't be taken back any more without being killed."""

    parcel: str


@dataclass(frozen=True, slots=True)
class Done:
    """The first calls of a parcel have ended; the rest have not run, and will not.

    Attributes:
        values: a payload each, empty where the call failed.
        failures: [offset, kind, text, payload], in order; kind is one of FAILURE_KINDS.
        prints: [offset, text], or [offset, text, stream]: 1 is stdout, 2 stderr.
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
    """The parcel was taken from us: a slot was reclaimed, a session ended.

    Its calls are not at fault: they run again, without using up a try.
    """

    parcel: str
    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The parcel took its host's worker down, in each of the engine's tries."""

    parcel: str
    why: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """As requested, none of its calls has ended, and none runs."""

    parcel: str


@dataclass(frozen=True, slots=True)
class Found:
    """A parcel of a former run is at work, or done; its outcome follows.

    An engine that is Keeping reports it before the first Room of a process.
    """

    parcel: str
    label: Label


Ended = Done | Lost | Broken | Cancelled
News = Room | Begun | Found | Ended


class Engine(Protocol):
    """A system that runs parcels elsewhere. All calls are made in the agent's own thread."""

    @property
    def python(self) -> str:
        """The minor version of its hosts' Python, as in "3.12": only matching work is sent."""
        ...

    @property
    def round_trip_s(self) -> float:
        """The approximate round-trip time of a parcel: the broker sends that much work ahead."""
        ...

    async def check(self) -> str:
        """Check whether parcels could be run; return a description. Raises GridFault."""
        ...

    async def run(self, tell: Callable[[News], None]) -> None:
        """Serve until cancelled, and then leave nothing running. Trouble is reported as Room(0).

        The parcels that a former run of ours has left running are ended first. For both see
        Keeping.
        """
        ...

    def put(self, digest: bytes, body: bytes) -> None:
        """Take a function's body, before the first parcel of it; again only after `forget`."""
        ...

    def forget(self, digest: bytes) -> None:
        """Forget a function: no parcel of it will come before it is put again."""
        ...

    def send(self, parcel: Parcel) -> None:
        """Run a parcel. At least one of Done, Lost, Broken and Cancelled follows.

        Only the first of them counts.
        """
        ...

    def cancel(self, names: Collection[str], *, running: bool) -> None:
        """Take parcels back: only those that have not begun, or running ones as well.

        Cancelled follows, or another outcome of each. Parcels that can't be taken back are Begun.
        """
        ...

    def holds(self, name: str) -> bool:
        """Whether it will still report on a parcel."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """The optional part of an engine whose parcels can outlive its process.

    The parcels of any other engine begin anew after a restart.
    """

    @property
    def take_up_s(self) -> float:
        """How long Found parcels wait for their tasks to be assigned to us again.

        They are cancelled after that. 0: nothing is kept, and nothing Found.
        """
        ...

    @property
    def detaches(self) -> bool:
        """Whether running parcels go on when the process is stopped, not only when killed."""
        ...


@dataclass(frozen=True, slots=True)
class Home:
    """The pool, mark and folder of an engine.

    Attributes:
        mark: ours: the same in each run of this gateway and pool, and no other's.
        folder: for its files, ours alone; it exists.
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
        read: reads the table `[pool.KIND]`; SettingError names the wrong key and its valid values.
        open: opens an engine with the result of `read`, without contacting it yet.
        place: the import path of this very object, as "module:name".
        example: TOML of a pool of this kind, which `gridfed init` writes, commented out.
    """

    name: str
    read: Callable[[Mapping[str, Any]], Any]
    open: Callable[[Any, Home], Engine]
    place: str
    needs: str = ""
    example: str = ""
