"""What the operating system is asked about a slot, and told: limits, memory, leftovers."""

import ctypes
import os
import resource
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# So many threads of a slot, and of what it has started, are looked at.
THREADS_MAX: Final = 4096
UNCOUNTED: Final = 1 << 62  # bytes
PR_SET_PDEATHSIG: Final = 1
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, however it ends.

    It is the parent's *thread* that counts: who starts such a child must do so from a thread
    that lives as long as itself, its main one.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it had ended before we could say so


@contextmanager
def cores_of_children(cores: frozenset[int] | None) -> Iterator[None]:
    """Have what this thread starts meanwhile use these cores alone; None: those that we may.

    Set here and not on the child: what that starts at once has them too.
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
    """No core dumps (they would hold payloads), and a ceiling for one giant allocation.

    The memory limit proper is the agent's to enforce, by resident memory. Address space is not
    memory, and libraries reserve far more than they use, so the ceiling is wide: it turns the
    allocation that would get the host killed into a MemoryError inside the task.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        ceiling = 2 * memory_bytes + (4 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))


def memory_used_bytes(pid: int, limit_bytes: int = 0) -> int:
    """Resident memory of a process and its descendants.

    Pages that they share are counted once when that decides whether they are over `limit_bytes`:
    it is exact, and slow. With a limit, what has too many threads to be counted is over it:
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


def describe_memory(used_bytes: int, limit_bytes: int) -> str:
    """Why a slot that is over its limit is ended."""
    if used_bytes == UNCOUNTED:
        return f"it has more than {THREADS_MAX:,} threads, too many to watch its slot's memory"
    return f"it used {used_bytes:,} bytes of memory; its slot may use {limit_bytes:,}"


def _read(path: str) -> bytes:
    """A file of /proc, or nothing when its process has ended or keeps it to itself.

    In bytes: programs are called whatever they like, in no encoding.
    """
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def resident_bytes(pid: int) -> int:
    """What a process has in memory; 0 when it has ended."""
    words = _read(f"/proc/{pid}/statm").split()
    return int(words[1]) * PAGE_BYTES if words else 0


def _proportional_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return resident_bytes(pid)  # it does not let its pages be looked at, or is gone


def descendants(pid: int) -> list[int]:
    """What a process has started, and what that has, as far as it is still below it.

    The nearest first; not all of them where there are more than THREADS_MAX threads.
    """
    return _family(pid)[0]


def children(pid: int) -> list[int]:
    """What a process has started, or been given by the kernel, and not waited for."""
    return [child for thread in _threads(pid) for child in _children(thread)]


def _family(pid: int) -> tuple[list[int], bool]:
    """The processes below one, and whether these are all.

    How many there are, and how deep, is a task's to choose.
    """
    found: dict[int, None] = {pid: None}  # each once: they come and go while this looks
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
    """Kill whatever a slot has left behind: all of its session, in whatever process group.

    Only what made itself a session of its own escapes.
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
            # The program's name, in brackets, may hold anything: count from its end.
            words = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if words and int(words[3]) == leader:
                members.append(int(name))
    return members
