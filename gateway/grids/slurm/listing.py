"""Slurm's jobs, nodes and partitions, read from its JSON of either generation. Pure.

Up to 22.05 (v0.0.38) numbers are plain, with `null` for "not set"; since 23.02 (v0.0.39) they are
`{"set": true, "infinite": false, "number": 5}`; a state was a word and is a list of words now. The
commands' `--json` and slurmrestd give the same, so one reader serves both. Any invalid input raises
GridFault, and no other error.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from federation.clocks import UtcS
from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.slurm.memory import UNSAID, Memory, read_memory

TASKS_MAX: Final = 100_000  # of one array: more than any Slurm allows
NUMBER_MAX: Final = 1 << 53
_UNSET: Final = 0xFFFFFFF0  # NO_VAL and its variants, where a version shows them
_SPAN: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_NODE: Final = re.compile(r"[\w.-]{1,255}", re.ASCII)  # one name, and no list such as "n[1-3]"
CUT: Final = "..."  # the end of a truncated list of tasks


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job, an array's task, or the pending part of an array.

    Attributes:
        array_id: of its array; its own outside of any.
        tasks: numbers in the array.
        is_cut: it has more tasks, of higher numbers, than are named.
        states: words in capitals: its state, and flags like COMPLETING.
        end_at_s: when it ended, or will.
        limit_s: how long it may run; None: for ever.
        preempted_at_s: when it was chosen for preemption; 0: it was not.
        exit_code: of its command; `signal`: that ended it.
        node: that it has been given; empty: none yet, or several.
    """

    job_id: int
    array_id: int
    tasks: tuple[int, ...]
    is_cut: bool
    name: str
    comment: str
    user: str
    states: frozenset[str]
    reason: str
    cpus: int
    begin_at_s: UtcS
    end_at_s: UtcS
    limit_s: float | None
    preempted_at_s: UtcS
    exit_code: int
    signal: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node. The taken amounts are those of all jobs there.

    Attributes:
        reason: of its last drain or failure; it stays after the node was resumed.
        reservation: the active one that it is in; empty: none, or not told (22.05).
    """

    name: str
    states: frozenset[str]
    partitions: frozenset[str]
    cpus: int
    cpus_taken: int
    memory_mb: int
    memory_taken_mb: int
    gpus: int
    gpus_taken: int
    reason: str = ""
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. Empty sets: all accounts are allowed, none is denied.

    Attributes:
        qos: its limits hold in the partition; empty: there is none, or it is unknown.
        memory: of a job there that requests none.
    """

    name: str
    is_up: bool
    limit_s: float | None
    accounts: frozenset[str]
    denied: frozenset[str]
    qos: str = ""
    memory: Memory = UNSAID


def parse(body: bytes, what: str) -> Mapping[str, Any]:
    """Parse a JSON object. Raises GridFault."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        text = f"{what} is not JSON ({type(error).__name__}): {body[:80]!r}"
        raise GridFault(FailureClass.AGAIN, text) from None
    if not isinstance(found, dict):
        raise GridFault(FailureClass.AGAIN, f"{what} is not a JSON object: {body[:80]!r}")
    return found


def release(data: Mapping[str, Any]) -> str:
    """Return the version of the answering Slurm, as in "24.11.5"; empty: unknown."""
    meta = data.get("meta")
    if not isinstance(meta, dict):
        return ""
    about = meta.get("slurm", meta.get("Slurm"))
    said = about.get("release") if isinstance(about, dict) else None
    return said[:40] if isinstance(said, str) and said.isprintable() else ""


def read_jobs(data: Mapping[str, Any], name_start: str) -> list[SlurmJob]:
    """Return the jobs whose name has a prefix. Other jobs are not parsed any further."""
    return [
        _job(each)
        for each in _entries(data, "jobs")
        if isinstance(name := each.get("name"), str) and name.startswith(name_start)
    ]


def read_nodes(data: Mapping[str, Any]) -> list[SlurmNode]:
    """Return all nodes."""
    return [_node(each) for each in _entries(data, "nodes")]


def read_partitions(data: Mapping[str, Any]) -> list[Partition]:
    """Return all partitions."""
    return [_partition(each) for each in _entries(data, "partitions")]


def read_partition_lines(text: str) -> list[Partition]:
    """Return all partitions from `scontrol --oneliner show partition`: no JSON before 23.02."""
    found = []
    for line in text.splitlines():
        pairs = dict(part.partition("=")[::2] for part in line.split())
        if not (name := pairs.get("PartitionName")):
            continue
        found.append(
            Partition(
                name,
                pairs.get("State") == "UP",
                read_clock(pairs.get("MaxTime", "")),
                _names(pairs.get("AllowAccounts", "ALL")),
                _names(pairs.get("DenyAccounts", "")),
                pairs.get("QoS", "N/A").replace("N/A", ""),
                read_memory(line),
            )
        )
    return found


def read_clock(text: str) -> float | None:
    """Parse Slurm's "1-02:30:00" into seconds; None: for ever, or invalid."""
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,9}):(\d\d):(\d\d)", text, re.ASCII)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return float(days * 86_400 + hours * 3600 + minutes * 60 + seconds)


def read_tasks(text: str) -> tuple[tuple[int, ...], bool]:
    """Parse an array's tasks from "0-8:2,11,15-19%5"; return also whether the list is truncated.

    Raises GridFault.
    """
    spans = text.partition("%")[0]
    is_cut = spans.endswith(CUT)
    found: list[int] = []
    for span in filter(None, spans.removesuffix(CUT).split(",")):
        match = _SPAN.fullmatch(span)
        if match is None and is_cut:
            break  # cut within a number
        if match is None:
            raise GridFault(
                FailureClass.AGAIN, f"Slurm returned an invalid list of tasks: {text[:80]!r}"
            )
        first = int(match[1])
        tasks = range(first, int(match[2] or first) + 1, int(match[3] or 1) or 1)
        if len(tasks) + len(found) > TASKS_MAX:
            raise GridFault(
                FailureClass.AGAIN, f"Slurm returned more than {TASKS_MAX:,} tasks of an array"
            )
        found.extend(tasks)
    return tuple(found), is_cut


# --- one entry of each --------------------------------------------------------------------------


def _job(entry: Mapping[str, Any]) -> SlurmJob:
    job_id = _count(entry, "job_id")
    array_id = _count(entry, "array_job_id")
    task = _number(entry.get("array_task_id"))
    tasks, is_cut = read_tasks(_word(entry, "array_task_string"))
    if task is not None:
        tasks, is_cut = (int(task),), False
    code, signal = _exit(entry.get("exit_code"))
    limit = _number(entry.get("time_limit"))
    return SlurmJob(
        job_id=job_id,
        array_id=array_id or job_id,
        tasks=tasks,
        is_cut=is_cut,
        name=_word(entry, "name"),
        comment=_word(entry, "comment"),
        user=_word(entry, "user_name"),
        states=_states(entry.get("job_state")),
        reason=_word(entry, "state_reason"),
        cpus=_count(entry, "cpus"),
        begin_at_s=UtcS(_count(entry, "start_time")),
        end_at_s=UtcS(_count(entry, "end_time")),
        limit_s=None if limit is None else limit * 60.0,
        preempted_at_s=UtcS(_count(entry, "preempt_time")),
        exit_code=code,
        signal=signal,
        node=node if _NODE.fullmatch(node := _word(entry, "nodes")) else "",
    )


def _exit(value: Any) -> tuple[int, int]:
    """Return the code and the signal. Formerly the status of wait(2), an object now."""
    if isinstance(value, dict):
        signal = value.get("signal")
        signal = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else None
        return int(_number(value.get("return_code")) or 0), int(_number(signal) or 0)
    status = int(_number(value) or 0)
    return status >> 8 & 0xFF, status & 0x7F


def _node(entry: Mapping[str, Any]) -> SlurmNode:
    partitions = entry.get("partitions")
    flags = entry.get("state_flags")
    return SlurmNode(
        name=_word(entry, "name"),
        states=_states(entry.get("state")) | _states(flags),
        partitions=frozenset(
            each
            for each in (partitions if isinstance(partitions, list) else ())
            if isinstance(each, str)
        ),
        cpus=_count(entry, "effective_cpus") or _count(entry, "cpus"),
        cpus_taken=_count(entry, "alloc_cpus"),
        memory_mb=max(0, _count(entry, "real_memory") - _count(entry, "specialized_memory")),
        memory_taken_mb=_count(entry, "alloc_memory"),
        gpus=_gpus(_word(entry, "gres")),
        gpus_taken=_gpus(_word(entry, "gres_used")),
        reason=_word(entry, "reason"),
        reservation=_word(entry, "reservation"),
    )


def _gpus(text: str) -> int:
    """Return the number of GPUs in "gpu:a100:4(S:0-1),gpu:2,nic:1"."""
    found = 0
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        words = part.split(":")
        if words[0] == "gpu":
            found += int(words[-1]) if re.fullmatch(r"\d{1,6}", words[-1], re.ASCII) else 1
    return found


def _partition(entry: Mapping[str, Any]) -> Partition:
    state = entry.get("partition", entry)  # formerly beside the name, now in an object
    state = state.get("state") if isinstance(state, dict) else None
    most = entry.get("maximums")
    limit = _number(most.get("time") if isinstance(most, dict) else entry.get("max_time_limit"))
    accounts = entry.get("accounts")
    if isinstance(accounts, dict):
        allowed, denied = _word(accounts, "allowed"), _word(accounts, "deny")
    else:
        allowed, denied = _word(entry, "allowed_accounts"), _word(entry, "denied_accounts")
    return Partition(
        name=_word(entry, "name"),
        is_up=_states(state) == {"UP"},
        limit_s=limit * 60.0 if limit is not None and limit > 0 else None,
        accounts=_names(allowed),
        denied=_names(denied),
    )


# --- values -------------------------------------------------------------------------------------


def _entries(data: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    entries = data.get(key)
    if not isinstance(entries, list):
        raise GridFault(FailureClass.AGAIN, f"Slurm's answer has no list {key!r}")
    for each in entries:
        if not isinstance(each, dict):
            raise GridFault(
                FailureClass.AGAIN, f"Slurm's list {key!r} has an item that is not an object"
            )
        yield each


def _number(value: Any) -> float | None:
    """Return a number of either generation; None: it is not set, or infinite."""
    if isinstance(value, dict):
        if value.get("infinite") is True or value.get("set") is False:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # The comparison is false for NaN.
    if not -NUMBER_MAX <= value <= NUMBER_MAX or _UNSET <= value <= _UNSET + 15:
        return None
    return value


def _count(entry: Mapping[str, Any], key: str) -> int:
    """Return a number that can't be negative; 0 if it is missing."""
    return max(0, int(_number(entry.get(key)) or 0))


def _word(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value[:10_000] if isinstance(value, str) else ""


def _states(value: Any) -> frozenset[str]:
    words: Iterable[Any] = value if isinstance(value, list) else [value]
    return frozenset(each[:60].upper() for each in words if isinstance(each, str))


def _names(text: str) -> frozenset[str]:
    return frozenset() if text in ("ALL", "(null)") else frozenset(filter(None, text.split(",")))
