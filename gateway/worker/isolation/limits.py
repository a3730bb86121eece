"""Operating system calls about a slot: limits, memory, leftover processes."""

import ctypes
import os
import resource
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from federation.words import size_text

# The limit of threads inspected, of a slot and its descendants.
THREADS_MAX: Final = 4096
UNCOUNTED: Final = 1 << 62  # bytes
SHARED_TOLD: Final = 1 << 20  # shared pages from this size on are told
WHOSE_LIMIT: Final = "`memory_bytes` of the [[pool]], or --memory of the worker"
PR_SET_PDEATHSIG: Final = 1
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, for any reason.

    The parent's *thread* counts: a parent must start such a child from a thread that lives as long
    as itself, its main one.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it had ended before the call


@contextmanager
def cores_of_children(cores: frozenset[int] | None) -> Iterator[None]:
    """Restrict processes that this thread starts in the block to these cores; None: our own.

    The affinity is set here and not on the child, so that the child's own early children inherit
    it.
    """
    if cores is None:
        yield
        return
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


def limit_this_process(memory_bytes: int) -> None:
    """Forbid core dumps (they would hold payloads), and cap a single giant allocation.

    The agent enforces the memory limit proper, by resident memory. Address space is not memory, and
    libraries reserve far more than they use, so the cap is wide: it turns an allocation that would
    get the host killed into a MemoryError inside the task.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        ceiling = 2 * memory_bytes + (4 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))


def memory_used_bytes(pid: int, limit_bytes: int = 0) -> int:
    """Return the resident memory of a process and its descendants.

    Pages that they share are counted once when that decides whether they are over `limit_bytes`:
    this is exact, and slow. With a limit, a family with too many threads to count is over it:
    UNCOUNTED.
    """
    below, is_whole = _family(pid)
    if limit_bytes and not is_whole:
        return UNCOUNTED
    family = [pid, *below]
    used = sum(map(resident_bytes, family))
    if limit_bytes and used > limit_bytes and len(family) > 1:
        return sum(map(_proportional_bytes, family))
    return used


def shared_bytes(pid: int) -> int:
    """Return the resident pages of shared memory of a process and its descendants.

    Objects that tasks read are such pages: each process that reads one counts it.
    """
    found = 0
    for each in (pid, *descendants(pid)):
        for line in _read(f"/proc/{each}/status").splitlines():
            if line.startswith(b"RssShmem:"):
                found += int(line.split()[1]) * 1024
    return found


def describe_memory(used_bytes: int, limit_bytes: int, shared: int = 0) -> str:
    """Explain why a slot that is over its limit is killed; `shared` is of `used_bytes`."""
    if used_bytes == UNCOUNTED:
        return f"the slot has more than {THREADS_MAX:,} threads, too many to monitor its memory"
    of_objects = ""
    if shared >= SHARED_TOLD:
        of_objects = (
            f" ({size_text(shared)} of it are shared pages, such as those of objects that the task "
            "has read: they count as well)"
        )
    return (
        f"the slot used {size_text(used_bytes)} of memory{of_objects}, the limit is "
        f"{size_text(limit_bytes)}, {WHOSE_LIMIT}: read less at a time, or ask the operator of the "
        "site for more"
    )


def describe_exit(code: int | None, output: bytes | bytearray, why: str = "") -> str:
    """Explain how a slot's process ended.

    Args:
        code: its exit code, as subprocess has it: negative for a signal.
        output: the end of its output, shown below the explanation.
        why: the reason, if it is known better than by the code.
    """
    if not why:
        why = f"the process ended with exit code {code}"
        if code is not None and code < 0:
            names = {each.value: each.name for each in signal.Signals}
            why = f"the process was killed by signal {names.get(-code, -code)}"
    shown = output.decode(errors="replace").strip()
    return f"{why}; its last output:\n{shown}" if shown else why


def _read(path: str) -> bytes:
    """Read a file of /proc; empty when its process has ended or hides it.

    In bytes: the names of programs may be in any encoding, or none.
    """
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 when it has ended."""
    words = _read(f"/proc/{pid}/statm").split()
    return int(words[1]) * PAGE_BYTES if words else 0


def _proportional_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return resident_bytes(pid)  # its pages are not accessible, or it is gone


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process that are still below it.

    The nearest come first; incomplete where there are more than THREADS_MAX threads.
    """
    return _family(pid)[0]


def children(pid: int) -> list[int]:
    """Return the children of a process, also adopted ones, that it has not waited for."""
    return [child for thread in _threads(pid) for child in _children(thread)]


def _family(pid: int) -> tuple[list[int], bool]:
    """Return the processes below one, and whether the list is complete.

    A task controls how many there are, and how deep.
    """
    found: dict[int, None] = {pid: None}  # each once: they come and go during the scan
    waiting = deque(found)
    threads = 0
    while waiting and threads <= THREADS_MAX:
        for thread in _threads(waiting.popleft()):
            threads += 1
            for child in _children(thread):
                if child not in found:
                    found[child] = None
                    waiting.append(child)
            if threads > THREADS_MAX:
                break
    return list(found)[1:], threads <= THREADS_MAX


def _children(thread: str) -> Iterator[int]:
    return map(int, _read(f"{thread}/children").split())


def _threads(pid: int) -> list[str]:
    folder = f"/proc/{pid}/task"
    try:
        return [f"{folder}/{thread}" for thread in os.listdir(folder)]
    except OSError:
        return []  # it has ended


def kill_session(leader: int) -> None:
    """Kill all leftovers of a slot: its whole session, in any process group.

    Only processes that started a session of their own escape.
    """
    for pid in _session_members(leader):
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue  # ended by itself, or became another user's


def _session_members(leader: int) -> list[int]:
    members = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            # The program's name, in brackets, may contain anything: count from its end.
            words = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if words and int(words[3]) == leader:
                members.append(int(name))
    return members
