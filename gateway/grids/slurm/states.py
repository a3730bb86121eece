"""Maps Slurm's jobs to our pilots. Pure.

A job's state is a word and flags. A pilot that is pending for a permanent reason is shown as ended,
with that reason, and its job is a stray: the grid cancels it, as it would else stay pending for
ever, or start one day unexpectedly.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from federation.clocks import UNIX_EPOCH_S, UtcS
from gateway.grids.contract import PILOT_MARK, PilotState, Sighting
from gateway.grids.slurm.listing import SlurmJob

START: Final = "gridfed-"
COMMENT: Final = "gridfed pilots="
_PILOTS: Final = re.compile(rf"{COMMENT}(\d{{1,6}})", re.ASCII)
PILOTS_MAX: Final = 100_000
FORESEEN_S: Final = 30 * 86_400.0  # Slurm says years if it does not know
END_NONE_S: Final = 360 * 86_400.0  # without a limit Slurm says that it ends in a year

ENDED: Final = {
    "COMPLETED": "",
    "CANCELLED": "the job was cancelled",
    "FAILED": "the job failed",
    "TIMEOUT": "the job reached its time limit",
    "NODE_FAIL": "the node failed",
    "PREEMPTED": "the job was preempted",
    "OUT_OF_MEMORY": "the job exceeded its memory",
    "BOOT_FAIL": "the node did not start",
    "DEADLINE": "the job reached its deadline",
    "REVOKED": "another cluster took over the job",
    "LAUNCH_FAILED": "the job could not be launched",
    "RECONFIG_FAIL": "the node could not be configured",
}
ENDING: Final = {"COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}
STARTING: Final = {"CONFIGURING", "POWER_UP_NODE", "RESIZING"}
ON_NODE: Final = {PilotState.STARTING, PilotState.RUNNING, PilotState.ENDING}
BACK: Final = {"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}


# The exit codes of a pilot: see NO_GATEWAY and REFUSED of gateway.worker.agent.
EXITS: Final = {
    69: "the pilot could not reach a gateway, and gave up (code 69): check that its node can "
    "reach this gateway's address",
    77: "the gateway refused the pilot, which gave up (code 77)",
}


class Wait(StrEnum):
    """The meaning of a pending reason."""

    TURN = "turn"  # it starts in its turn
    QUOTA = "quota"  # others of ours must end first
    HELD = "held"  # a person must act, and may do so
    NEVER = "never"


# The pending reasons of our jobs; any other reason means TURN.
REASONS: Final = {
    "PartitionTimeLimit": (Wait.NEVER, "`walltime` exceeds the limit of the partition"),
    "PartitionNodeLimit": (Wait.NEVER, "a pilot needs more nodes than the partition allows"),
    "PartitionConfig": (Wait.NEVER, "no node of the partition is large enough for a pilot"),
    "PartitionDown": (Wait.HELD, "the partition accepts jobs, but starts none"),
    "PartitionInactive": (Wait.HELD, "the partition is inactive"),
    "AccountNotAllowed": (Wait.NEVER, "`account` is not allowed in the partition"),
    "QOSNotAllowed": (Wait.NEVER, "`qos` is not allowed in the partition"),
    "InvalidAccount": (Wait.NEVER, "`account` does not exist, or is not allowed for this user"),
    "InvalidQOS": (Wait.NEVER, "`qos` does not exist, or is not allowed for this user"),
    "BadConstraints": (Wait.NEVER, "no node matches `constraint` and the shape of the pilot"),
    "DependencyNeverSatisfied": (Wait.NEVER, "the job waits for a dependency that can't be met"),
    "ReservationDeleted": (Wait.NEVER, "`reservation` no longer exists"),
    "Reservation": (Wait.TURN, "`reservation` has not begun"),
    "JobHeldAdmin": (Wait.HELD, "an administrator holds the job"),
    "JobHeldUser": (Wait.HELD, "the job is held"),
    "JobHoldMaxRequeue": (Wait.NEVER, "the job was requeued too often"),
    "JobLaunchFailure": (Wait.NEVER, "the job could not be launched"),
    "launch failed requeued held": (Wait.NEVER, "the job could not be launched"),
    "NodeDown": (Wait.HELD, "the required nodes are down"),
    "ReqNodeNotAvail": (Wait.TURN, "the required nodes are not available"),
}
# Limits that a single job violates by itself: a pilot is one job on one node.
ALONE: Final = re.compile(r"PerJob|PerNode|NotSatisfied|^QOSMin|^MaxMemPerLimit$")
NOT_KNOWN: Final = "account not known"  # 22.05's text for AccountNotAllowed
PARTITION_BARRED: Final = "can't use this partition"


@dataclass(frozen=True, slots=True)
class Listing:
    """Our jobs in Slurm.

    Attributes:
        strays: jobs to be cancelled, by Slurm's names for them.
        orders: that it knows of.
        hosts: the node of each pilot that has one and has not ended, by the pilot's name.
    """

    sightings: tuple[Sighting, ...]
    strays: tuple[str, ...]
    orders: frozenset[str]
    hosts: Mapping[str, str] = field(default_factory=dict)


def job_start(mark: str) -> str:
    """Return the prefix of our jobs' names: as no mark has a ".", no prefix is part of another."""
    return f"{START}{mark}."


def look(jobs: Iterable[SlurmJob], mark: str, utc_s: UtcS, cpus_per_slot: int = 1) -> Listing:
    """Return our pilots among jobs, now.

    An order that was submitted twice, because the first answer was lost, counts once: the later
    job's pilots are strays, unless only they live.
    """
    start = job_start(mark)
    by_name: dict[str, Sighting] = {}
    hosts: dict[str, str] = {}
    strays: list[str] = []
    orders: set[str] = set()
    ours = [each for each in jobs if each.name.startswith(start) and each.array_id]
    ours.sort(key=lambda each: (each.array_id, each.job_id))
    named = {(each.array_id, task) for each in ours for task in each.tasks}
    for job in ours:
        order = job.name.removeprefix(start)
        orders.add(order)
        for task in (*job.tasks, *_unnamed(job, named)):
            found, is_stray = sight(job, task, order, utc_s, cpus_per_slot)
            former = by_name.get(found.name)
            if is_stray:
                strays.append(found.grid_id)
            if former is None or former.state is PilotState.ENDED:
                by_name[found.name] = found
                if job.node and found.state in ON_NODE:
                    hosts[found.name] = job.node
            elif found.state is not PilotState.ENDED and found.grid_id != former.grid_id:
                strays.append(found.grid_id)
    found_strays = tuple(dict.fromkeys(strays))
    return Listing(tuple(by_name.values()), found_strays, frozenset(orders), hosts)


def _unnamed(job: SlurmJob, named: set[tuple[int, int]]) -> list[int]:
    """Return the tasks that a truncated list omits, and that no other job names."""
    if not job.is_cut:
        return []
    said = _PILOTS.fullmatch(job.comment)
    if said is None:
        return []
    tasks = range(max(job.tasks, default=-1) + 1, min(int(said[1]), PILOTS_MAX))
    return [task for task in tasks if (job.array_id, task) not in named]


def sight(
    job: SlurmJob, task: int, order: str, utc_s: UtcS, cpus_per_slot: int
) -> tuple[Sighting, bool]:
    """Return one task of an array as a pilot, and whether its job is a stray."""
    state, fault, is_stray = state_of(job)
    runs = state in (PilotState.STARTING, PilotState.RUNNING, PilotState.ENDING)
    is_foreseen = UNIX_EPOCH_S < job.begin_at_s <= utc_s + FORESEEN_S
    has_end = (
        job.limit_s is not None and job.end_at_s and job.end_at_s - job.begin_at_s < END_NONE_S
    )
    return Sighting(
        name=f"{order}{PILOT_MARK}{task}",
        state=state,
        grid_id=f"{job.array_id}_{task}",
        slots=max(1, job.cpus // max(1, cpus_per_slot)),
        paid_at_s=job.begin_at_s or None if runs else None,
        begins_at_s=max(job.begin_at_s, utc_s)
        if state is PilotState.QUEUED and is_foreseen
        else None,
        ends_at_s=job.end_at_s if runs and (has_end or job.preempted_at_s) else None,
        fault=fault,
    ), is_stray


def state_of(job: SlurmJob) -> tuple[PilotState, str, bool]:
    """Return the state of a job, its reason, and whether it is to be cancelled."""
    states = job.states
    if states & ENDING:
        return PilotState.ENDING, _why_ended(job) or _lower(states & ENDING), False
    if states & BACK or states == {"PENDING"}:
        return _waiting(job)
    if states & ENDED.keys():
        return PilotState.ENDED, _why_ended(job), False
    if "PENDING" in states:
        return _waiting(job)
    if states & STARTING:
        return PilotState.STARTING, "", False
    if "RUNNING" in states and job.preempted_at_s:
        return PilotState.ENDING, "preempted: Slurm needs the slots for other work", False
    if "RUNNING" in states:
        return PilotState.RUNNING, "", False
    return PilotState.QUEUED, f"Slurm reports {_lower(states) or 'no state'}", False


def _waiting(job: SlurmJob) -> tuple[PilotState, str, bool]:
    wait, text = meaning(job.reason)
    if wait is Wait.TURN and not text:
        return PilotState.QUEUED, "", False
    said = f"Slurm reports {job.reason}: {text}"
    if wait is Wait.NEVER:
        return PilotState.ENDED, said, True
    return PilotState.QUEUED, said, False


def meaning(reason: str) -> tuple[Wait, str]:
    """Return the meaning of a pending reason, and advice."""
    known = REASONS.get(reason)
    if known is not None:
        return known
    if NOT_KNOWN in reason or PARTITION_BARRED in reason:
        return REASONS["AccountNotAllowed"]
    # Limits of accounts and qualities of service: QOSMaxCpuPerUserLimit, AssocGrpJobsLimit, ...
    if reason.startswith(("QOS", "Assoc", "Max")):
        is_of_one = ALONE.search(reason) is not None
        if is_of_one or ("WallDuration" in reason and "Grp" not in reason):
            return Wait.NEVER, "a single pilot exceeds a limit of the account or quality of service"
        return Wait.QUOTA, "a limit of the account or quality of service is reached"
    if reason.startswith("ReqNodeNotAvail"):
        return REASONS["ReqNodeNotAvail"]
    return Wait.TURN, ""


def _why_ended(job: SlurmJob) -> str:
    states = job.states & ENDED.keys()
    said = "; ".join(ENDED[each] for each in sorted(states) if ENDED[each])
    if not said:
        return ""
    if job.preempted_at_s and "PREEMPTED" not in states:
        said = f"preempted; {said}"
    if "FAILED" in states and job.exit_code in EXITS:
        return EXITS[job.exit_code]
    if "FAILED" in states and job.exit_code in (126, 127):
        return f"{said} with code {job.exit_code}: check that `python` exists on the nodes"
    if "FAILED" in states and job.exit_code:
        return f"{said} with code {job.exit_code}"
    if "FAILED" in states and job.signal:
        return f"{said} by signal {job.signal}"
    if "FAILED" in states and job.reason not in ("", "None", "NonZeroExitCode"):
        return f"{said}: {job.reason[:200]}"
    return said


def _lower(states: Iterable[str]) -> str:
    return ", ".join(sorted(states)).lower()
