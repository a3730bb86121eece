"""An order in Slurm's terms: a script, options of sbatch, or a body for slurmrestd. Pure.

One order is one job array, and a pilot is one of its tasks. (An order of several arrays could exist
in part.) Secrets travel in the job's environment: `scontrol` and `squeue` do not show it, and
sbatch takes it from its own environment and not from its command line. A script can be read by
`scontrol write batch_script`, and a file would need a folder that all nodes share; so neither holds
secrets.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from gateway.grids.contract import FailureClass, GridFault, Launch, Order, Shape
from gateway.grids.slurm.settings import SlurmSettings
from gateway.grids.slurm.states import COMMENT, job_start

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
PLACES: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
WARN_PART: Final = 0.5  # of its time limit: a pilot is not told to end before that
WARN_MAX_S: Final = 65_535


@dataclass(frozen=True, slots=True)
class ArrayRequest:
    """One array of jobs.

    Attributes:
        pilots: how many tasks it has, from 0 on.
        cpus: of a task; `memory_mb`: 0 for Slurm's own; `gpus`: in Slurm's syntax.
        limit_min: how long a task may run; None: the partition's own.
        warn_s: a task is warned this long before its end; 0: it is not.
        environment: of the job, secrets among it.
    """

    name: str
    script: str
    pilots: int
    cpus: int
    memory_mb: int
    gpus: str
    limit_min: int | None
    warn_s: int
    environment: Mapping[str, str]


def request_of(
    settings: SlurmSettings, launch: Launch, order: Order, memory_mb: int = 0
) -> ArrayRequest:
    """Return Slurm's request for an order that `check_order` has passed. Raises GridFault.

    Args:
        memory_mb: the request of a pilot whose shape has no memory; 0: none.
    """
    limit_min, warn_s = _times(settings, order.limit_s)
    return ArrayRequest(
        name=f"{job_start(launch.mark)}{order.name}",
        script=script_of(settings, launch, order),
        pilots=order.pilots,
        cpus=order.shape.slots * settings.cpus_per_slot,
        memory_mb=-(-order.shape.memory_bytes // (1 << 20)) or memory_mb,
        gpus=_gpus(settings, order.shape),
        limit_min=limit_min,
        warn_s=warn_s,
        environment=_environment(launch),
    )


def script_of(settings: SlurmSettings, launch: Launch, order: Order) -> str:
    """Return the script of each task. `exec` passes the script's signals to the pilot."""
    place = "ORDER.TASK"
    words = launch.command(place, order.shape, settings.python)
    shown = [
        f'"{order.name}.$SLURM_ARRAY_TASK_ID"' if each == place else shlex.quote(each)
        for each in words
    ]
    return f"#!/bin/sh\nexec {' '.join(shown)}\n"


def _environment(launch: Launch) -> dict[str, str]:
    for name, value in launch.environment.items():
        if not VARIABLE.fullmatch(name) or "\0" in value or "\n" in value:
            raise GridFault(FailureClass.NEVER, f"{name[:40]!r} is not a valid variable name")
    path = {"PATH": PLACES}
    return path | {"PYTHONUNBUFFERED": "1"} | dict(launch.environment)


def _gpus(settings: SlurmSettings, shape: Shape) -> str:
    if not shape.gpus:
        return ""
    kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
    return f"gpu:{kind}{shape.gpus}"


def _times(settings: SlurmSettings, limit_s: float | None) -> tuple[int | None, int]:
    """Return the time limit in minutes, and how long before its end a pilot is warned."""
    limits = [each for each in (settings.walltime_s, limit_s) if each is not None]
    warn_s = min(settings.warn_s, WARN_MAX_S)
    if not limits:
        return None, int(warn_s)
    limit_min = max(1, ceil(min(limits) / 60))
    return limit_min, int(min(warn_s, WARN_PART * limit_min * 60))


def sbatch_options(settings: SlurmSettings, request: ArrayRequest) -> list[str]:
    """Return the options of sbatch, each one word."""
    given = {
        "job-name": request.name,
        "comment": f"{COMMENT}{request.pilots}",
        "array": f"0-{request.pilots - 1}",
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": settings.constraint,
        "reservation": settings.reservation,
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(request.cpus),
        "mem": f"{request.memory_mb}M" if request.memory_mb else "",
        "gres": request.gpus,
        "time": str(request.limit_min) if request.limit_min else "",
        "signal": f"B:TERM@{request.warn_s}" if request.warn_s else "",
        "chdir": settings.folder,
        "output": _log(settings, "%x.%a"),
        # With names only, the node would first run the user's login shell, which may take long.
        "export": "ALL",
    }
    words = [f"--{name}={value}" for name, value in given.items() if value]
    words += ["--requeue" if settings.requeue else "--no-requeue", "--open-mode=append"]
    return words + [
        f"--{name}={value}" if value else f"--{name}" for name, value in settings.options
    ]


def _log(settings: SlurmSettings, name: str) -> str:
    return f"{settings.logs.rstrip('/')}/{name}.log" if settings.logs else "/dev/null"


def rest_body(settings: SlurmSettings, request: ArrayRequest, api: str) -> dict[str, Any]:
    """Return the body of slurmrestd's `job/submit`."""
    log = _log(settings, "%x.%a")
    job: dict[str, Any] = {
        "name": request.name,
        "comment": f"{COMMENT}{request.pilots}",
        "array": f"0-{request.pilots - 1}",
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "constraints": settings.constraint,
        "reservation": settings.reservation,
        "tasks": 1,
        "cpus_per_task": request.cpus,
        "current_working_directory": settings.folder,
        "standard_output": log,
        "standard_error": log,
    }
    job = {name: value for name, value in job.items() if value != ""}
    job["requeue"] = settings.requeue
    if api == "v0.0.38":
        return {"script": request.script, "job": job | _as_v38(request)}
    return {"script": request.script, "job": job | _as_v42(request)}


def _as_v38(request: ArrayRequest) -> dict[str, Any]:
    """It has no signal for the batch script alone: at its end a pilot only has KillWait."""
    given = {
        "nodes": [1, 1],
        "memory_per_node": request.memory_mb,
        "gres": request.gpus,
        "time_limit": request.limit_min,
    }
    environment = {"environment": dict(request.environment)}
    return environment | {name: value for name, value in given.items() if value}


def _as_v42(request: ArrayRequest) -> dict[str, Any]:
    job: dict[str, Any] = {"minimum_nodes": 1, "maximum_nodes": 1}
    job["environment"] = [f"{name}={value}" for name, value in request.environment.items()]
    if request.memory_mb:
        job["memory_per_node"] = _set(request.memory_mb)
    if request.gpus:
        job["tres_per_node"] = f"gres/{request.gpus}"
    if request.limit_min:
        job["time_limit"] = _set(request.limit_min)
    if request.warn_s:
        job["kill_warning_signal"] = "TERM"
        job["kill_warning_delay"] = _set(request.warn_s)
        job["kill_warning_flags"] = ["BATCH_JOB"]
    return job


def _set(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def joined(grid_ids: list[str]) -> list[str]:
    """Merge Slurm's names of tasks, "7_1" and "7_2", by array: "7_[1,2]"."""
    arrays: dict[str, list[str]] = {}
    for each in grid_ids:
        array, _, task = each.partition("_")
        arrays.setdefault(array, []).append(task)
    return [
        f"{array}_[{','.join(tasks[at : at + 500])}]"
        for array, tasks in arrays.items()
        for at in range(0, len(tasks), 500)
    ]
