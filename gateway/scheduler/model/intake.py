"""Converts messages of peers to events and checks their values. Pure.

A message has the right types by now; this module checks its values. An error is either the peer's
mistake about one job (RejectJob) or a breach of the protocol (ProtocolError: expelled).
"""

from collections.abc import Set
from dataclasses import replace
from typing import Any, Final

from federation.clocks import CALENDAR_END_S, UtcS
from federation.errors import ProtocolError
from federation.messages import messages
from federation.messages.deals import AskQuote
from federation.messages.printed import STREAMS, joined
from federation.objects.labels import UNLABELLED, DataLabel, read_label, told_label
from federation.objects.left import AUTO, REF
from federation.objects.manifests import is_digest
from federation.ranges import Range
from federation.users import check_project
from federation.wishes import NAME_CHARS_MAX, NAMES_MAX, RETRIES_MAX
from gateway.base.tags import OBJECTS_TAG, PROBE_TAG, check_tags
from gateway.base.values import WORKER_SLOTS_MAX
from gateway.config.groups import NO_GROUPS, Groups, owner_of
from gateway.config.pools import USUAL_POOL
from gateway.scheduler.model import events
from gateway.scheduler.model.events import MEMORY_BYTES_MAX, Event
from gateway.scheduler.model.terms import CarriedHold, JobHold, JobSpec
from policies.placement import environments
from policies.placement.asks import WhenClosed, Wishes, read_objective
from policies.placement.environments import is_sandbox
from policies.placement.placement import TagValue

JOB_ID_CHARS_MAX: Final = 64
REFERENCES_MAX: Final = 100_000  # digests in one message of tasks
SLOTS_MAX: Final = WORKER_SLOTS_MAX
HOST_CHARS_MAX: Final = 255  # as of a DNS name
TRIP_MAX_S: Final = 5.0  # for a task's round trip to a worker's slots and back
TASKS_IN_JOB_MAX: Final = 1 << 40
EPOCH_MAX: Final = (1 << 63) - 1  # the largest integer that databases store
TASK_S_MAX: Final = 1e9
RAN_MS_MAX: Final = 10**12  # as reported by a worker
WISHES: Final = frozenset(
    {
        *("objective", "deadline_s", "deferrable", "whole", "when_closed"),
        *("sites", "not_sites", "jurisdictions", "data", "environment", "label"),
    }
)
RANGES_MAX: Final = 100_000


class BadJob(Exception):
    """A job can't be accepted as requested; the text says why."""


class BadWorker(Exception):
    """A worker can't join with the description that it sent."""


def job_event(
    message: messages.OpenJob, client: int, user: str, groups: Groups = NO_GROUPS
) -> events.JobOpened:
    """Convert a message to a job; BadJob gives the reason against it. `groups` are by user."""
    _check_text("job id", message.job, JOB_ID_CHARS_MAX)
    if ":" in message.job:
        raise BadJob("a job id must not contain a colon, which is used for jobs of other sites")
    if message.retries > RETRIES_MAX:
        raise BadJob(f"retries is {message.retries}, the limit is {RETRIES_MAX}")
    if message.tasks is not None and message.tasks > TASKS_IN_JOB_MAX:
        raise BadJob(f"the job has {message.tasks:,} tasks, the limit is {TASKS_IN_JOB_MAX:,}")
    if message.results not in ("", AUTO, REF) or (message.results and message.detached):
        raise BadJob(f"results is {message.results!r:.40}, which is unknown, or not for such a job")
    whose = owner_of(groups, user)
    spec = replace(
        check_spec(message, user),
        detached=message.detached,
        retries=message.retries,
        max_cost_nanos=message.max_cost_nanos,
        currency=message.currency if message.max_cost_nanos is not None else None,
        group=whose.group,
        more_groups=tuple(sorted(whose.more_groups)),
        tasks=message.tasks,
        results=message.results,
        far_results=message.far_results,
    )
    if message.results == REF:
        spec = replace(spec, tags={**spec.tags, OBJECTS_TAG: True})
    hold = _carried_hold(message.hold) if message.again and not message.detached else None
    return events.JobOpened(client, message.job, spec, again=message.again, hold=hold)


def _carried_hold(plain: dict[str, Any]) -> CarriedHold | None:
    if not plain:
        return None
    by, at_s = plain.get("by"), plain.get("at_s")
    is_time = isinstance(at_s, int | float) and not isinstance(at_s, bool)
    if type(by) is not str or not is_time or not 0 <= float(at_s or 0) < float(CALENDAR_END_S):
        raise BadJob("the hold must name its user and its time")
    is_own = plain.get("is_own") is True
    if not by:
        return CarriedHold(None, is_own, UtcS(float(at_s or 0)))
    _check_text("user who holds the job", by, 2 * NAME_CHARS_MAX)
    is_operators = plain.get("is_operators") is True
    site = plain.get("site", "")
    if type(site) is not str:
        raise BadJob("the site of the hold must be text")
    if site:  # clients of older versions do not name it
        _check_text("site of the hold", site, NAME_CHARS_MAX)
    hold = JobHold(by, UtcS(float(at_s or 0)), is_operators, is_carried=True, site=site)
    return CarriedHold(hold, is_own, hold.at_s)


def of_operator(spec: JobSpec) -> JobSpec:
    """Return the terms of a job that the operator submits: entitlements don't bind a pool test.

    Its tag is that of the pilot that was started for it, so it runs nowhere else.
    """
    return replace(spec, is_probe=any(map(PROBE_TAG.fullmatch, spec.tags)))


def check_spec(message: messages.OpenJob | AskQuote, user: str) -> JobSpec:
    """Check the terms that local jobs and other sites' jobs share; BadJob when one is wrong."""
    _check_text("name", message.name, NAME_CHARS_MAX)
    _check_text("user", user, 2 * NAME_CHARS_MAX)
    try:
        check_project(message.project)
    except ValueError as error:
        raise BadJob(str(error)) from None
    if len(message.function) != 32:
        raise BadJob("the function must be named by a SHA-256 digest")
    if message.timeout_s is not None and not 0 < message.timeout_s <= 1e9:
        raise BadJob(f"timeout_s is {message.timeout_s!r}: must be greater than zero")
    if message.task_s is not None and not 0 < message.task_s <= TASK_S_MAX:
        raise BadJob(f"task_s is {message.task_s!r}: must be greater than zero, in seconds")
    if not _is_version(message.python) or len(message.currency) > 3:
        raise BadJob("the Python version or the currency is invalid")
    try:
        tags, wishes = check_tags(message.tags), check_wishes(message.wishes)
    except ValueError as error:
        raise BadJob(str(error)) from None
    return JobSpec(
        name=message.name,
        function=message.function,
        detached=False,
        user=user,
        project=message.project,
        priority=float(message.priority),
        tags=tags,
        timeout_s=message.timeout_s,
        retries=0,
        max_cost_nanos=None,
        currency=None,
        python=message.python,
        prints=message.prints,
        wishes=wishes,
        price_class="preemptible" if message.preemptible else "guaranteed",
        task_s=message.task_s,
        has_inputs=isinstance(message, AskQuote) and message.inputs,
    )


def _check_text(what: str, text: str, chars_max: int) -> None:
    if not text or len(text) > chars_max or not text.isprintable():
        raise BadJob(f"the {what} must be 1 to {chars_max} printable characters")


def check_wishes(plain: dict[str, Any]) -> Wishes:
    """Return a user's placement wishes; ValueError says what is wrong.

    A restriction must not be ignored, so an unknown key is refused.
    """
    unknown = set(plain) - WISHES
    if unknown:
        raise ValueError(f"unknown option {sorted(unknown)[0]!r:.60}")
    deadline_s = plain.get("deadline_s")
    if deadline_s is not None and not (
        type(deadline_s) in (int, float) and 0 < deadline_s < float(CALENDAR_END_S)
    ):
        raise ValueError("deadline_s must be a time in seconds since 1970, UTC")
    deferrable = plain.get("deferrable", False)
    if type(deferrable) is not bool or (deferrable and deadline_s is None):
        raise ValueError("deferrable must be true or false, and needs a deadline_s")
    whole = plain.get("whole", False)
    if type(whole) is not bool:
        raise ValueError("whole must be true or false")
    objective = plain.get("objective")
    return Wishes(
        objective=None if objective is None else read_objective(objective),
        deadline_s=deadline_s,
        allowed_sites=_names(plain, "sites"),
        forbidden_sites=_names(plain, "not_sites") or frozenset(),
        jurisdictions=_names(plain, "jurisdictions"),
        data=_names(plain, "data") or frozenset(),
        label=_label(plain),
        environment=environments.wanted(plain.get("environment")),
        when_closed=_when_closed(plain.get("when_closed")),
        deferrable=deferrable,
        whole=whole,
    )


def wishes_plain(wishes: Wishes) -> dict[str, Any]:
    """Return the wishes to forward; the next site applies its own objective within these limits.

    A job waits for a window or for greener hours at this site, and one that is useful only as a
    whole is ended at this site: a site that receives a task runs it. The classes of its data are
    known by the rules of this site alone, which limit the sites.
    """
    plain: dict[str, Any] = {}
    if wishes.deadline_s is not None:
        plain["deadline_s"] = wishes.deadline_s
    if wishes.environment:
        plain["environment"] = environments.wish_plain(wishes.environment)
    for key, names in (
        ("sites", wishes.allowed_sites),
        ("not_sites", wishes.forbidden_sites),
        ("jurisdictions", wishes.jurisdictions),
    ):
        if names or (names is not None and key != "not_sites"):
            plain[key] = sorted(names)
    if wishes.label:
        plain["label"] = list(wishes.label.words)
    return plain


def _label(plain: dict[str, Any]) -> DataLabel:
    words = plain.get("label")
    if words is None:
        return UNLABELLED
    try:
        return read_label(words)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _when_closed(value: Any) -> WhenClosed | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in set(WhenClosed):
        raise ValueError(f"when_closed must be {' or '.join(WhenClosed)}")
    return WhenClosed(value)


def _names(plain: dict[str, Any], key: str) -> frozenset[str] | None:
    value = plain.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > NAMES_MAX:
        raise ValueError(f"{key} must be a list of at most {NAMES_MAX} names")
    for name in value:
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
            raise ValueError(f"{key} must be a list of names")
    return frozenset(value)


def client_event(message: Any, client: int) -> Event | None:
    """Convert a client's message to an event; None when it is not for the broker."""
    match message:
        case messages.Tasks():
            if message.first + len(message.arguments) > TASKS_IN_JOB_MAX:
                raise ProtocolError("a task number is too large")
            objects = tuple(message.objects)
            if len(objects) > REFERENCES_MAX or not all(map(is_digest, objects)):
                raise ProtocolError("the digests of objects are not valid")
            named = (message.job, message.first, message.arguments)
            label = told_label(message.label) if message.label else UNLABELLED
            return events.TasksArrived(client, *named, objects, message.inputs, label)
        case messages.CloseJob():
            if message.total > TASKS_IN_JOB_MAX:
                raise ProtocolError("the job is too large")
            elsewhere = check_ranges(message.elsewhere)
            if elsewhere and elsewhere[-1][1] > message.total:
                raise ProtocolError("a task number is beyond the end of the job")
            return events.JobClosed(client, message.job, message.total, elsewhere)
        case messages.Cancel():
            ranges = check_ranges(message.ranges)
            return events.CancelAsked(client, message.request, message.job, ranges, message.stop)
        case messages.Unknown():
            return None
        case _:
            raise ProtocolError(f"a client may not send {message.kind!r}")


def worker_event(message: Any, worker: int) -> Event | None:
    """Convert a worker's message to an event; None when it is not for the broker."""
    match message:
        case messages.Report():
            return events.Reported(
                worker,
                message.assignment,
                message.first,
                message.values,
                message.failures,
                joined(message.prints, message.streams),
                message.wall_ns,
                message.cpu_ns,
                message.peak_memory_bytes,
                left=message.left,
            )
        case messages.BegunTasks():
            return events.TasksBegun(worker, _begun(message.tasks))
        case messages.TaskOutput():
            return events.OutputArrived(worker, message.assignment, _output(message.pieces))
        case messages.Returned():
            return events.HandedBack(worker, message.assignment, check_ranges(message.ranges))
        case messages.Preparing():
            return events.EnvironmentsPrepared(worker, frozenset(message.functions))
        case messages.Drain():
            return events.DrainAsked(worker, message.on, by=events.Drainer.ITSELF)
        case messages.Unknown():
            return None
        case _:
            raise ProtocolError(f"a worker may not send {message.kind!r}")


def check_worker_name(name: str, own: Set[str], *, is_own: bool) -> None:
    """Raise BadWorker for a name that can't be displayed or that imitates another worker's name.

    `own` are the pools whose workers this gateway starts itself, named POOL-NUMBER. Such a worker
    has proved its origin by its pass (`is_own`).
    """
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        raise BadWorker(
            f"a worker's name must be 1 to {NAME_CHARS_MAX} printable characters: choose another "
            "with --name"
        )
    # These mark other sites' pools, a worker with its grid's name, and a second worker of one name.
    for mark in ("/", " = ", " #"):
        if mark in name:
            raise BadWorker(f"the name {name!r} contains {mark!r}: choose another with --name")
    pool, _, number = name.rpartition("-")
    if pool in own and number.isdecimal() and not is_own:
        raise BadWorker(
            f"the name {name!r} is reserved for workers of pool {pool}: choose another with --name"
        )


def _is_version(python: str) -> bool:
    return len(python) <= 16 and python.isprintable()


def worker_joined(
    about: dict[str, Any], worker: int, name: str, pools: dict[str, dict[str, TagValue]]
) -> events.WorkerJoined:
    """Convert a worker's description to an event for the broker, with its pool's own tags added."""
    slots, pool, python = about.get("slots"), about.get("pool"), about.get("python")
    if type(slots) is not int or not 1 <= slots <= SLOTS_MAX:
        raise BadWorker(f"slots is {slots!r:.40}: must be from 1 to {SLOTS_MAX}")
    if pool == "":
        pool = _usual_pool(pools)
    if type(pool) is not str or pool not in pools:
        known = ", ".join(sorted(pools))
        wrong = (
            f"pool {pool!r:.60} does not exist"
            if pool
            else "no pool is named, and there are several"
        )
        raise BadWorker(f"{wrong}: choose one with --pool; the pools are {known}")
    if type(python) is not str or not _is_version(python):
        raise BadWorker("the worker does not state its Python version")
    tags = about.get("tags", {})
    if type(tags) is not dict:
        raise BadWorker("the tags are not a map")
    try:
        own = check_tags(tags)
    except ValueError as error:
        raise BadWorker(str(error)) from None
    trip_s = about.get("round_trip_s", 0.0)
    if type(trip_s) not in (int, float) or not 0.0 <= trip_s <= TRIP_MAX_S:
        raise BadWorker(f"round_trip_s is {trip_s!r:.40}: must be from 0 to {TRIP_MAX_S:g}")
    offered = {**pools[pool], **own}
    memory_bytes = about.get("host_memory_bytes", MEMORY_BYTES_MAX)
    if type(memory_bytes) is not int or memory_bytes < 1:
        raise BadWorker(f"host_memory_bytes is {memory_bytes!r:.40}: must be greater than zero")
    host = about.get("host", "")
    if type(host) is not str or len(host) > HOST_CHARS_MAX or not host.isprintable():
        raise BadWorker(
            f"host is {host!r:.40}: must be at most {HOST_CHARS_MAX} printable characters"
        )
    return events.WorkerJoined(
        *(worker, name, pool, slots, offered, python),
        round_trip_s=float(trip_s),
        memory_bytes=min(memory_bytes, MEMORY_BYTES_MAX),
        tells_begun=about.get("begun") is True,
        tells_output=about.get("output") is True,
        takes_others=about.get("others") is True or any(map(is_sandbox, own)),
        takes_inputs=about.get("inputs") is True,
        runs_chains=about.get("chains") is True,
        host=host,
    )


def _begun(rows: list[list[int]]) -> tuple[tuple[int, int, float], ...]:
    """Return the tasks that a worker reports as begun; ProtocolError if the rows are malformed."""
    if len(rows) > SLOTS_MAX or any(len(row) != 3 for row in rows):
        raise ProtocolError(
            "started tasks must be [assignment, task, milliseconds], once for each slot"
        )
    if any(ms < 0 for *_, ms in rows):
        raise ProtocolError("the milliseconds of a started task must be zero or more")
    return tuple((number, task, min(ms, RAN_MS_MAX) / 1000) for number, task, ms in rows)


def _output(rows: list[list[Any]]) -> tuple[tuple[int, int, str], ...]:
    """Return output that a worker sends; ProtocolError if the rows are malformed."""
    pieces = []
    for row in rows:
        match row:
            case [int(task), int(stream), str(text)] if stream in STREAMS:
                pieces.append((task, stream, text))
            case _:
                raise ProtocolError("output of tasks must be [task, stream, text]")
    return tuple(pieces)


def _usual_pool(pools: dict[str, dict[str, TagValue]]) -> str:
    """Return the pool of a worker that names none: the only pool, or the one of the usual name."""
    if len(pools) == 1:
        return next(iter(pools))
    return USUAL_POOL if USUAL_POOL in pools else ""


def check_ranges(pairs: list[list[int]]) -> tuple[Range, ...]:
    """Return ranges that are not empty, in order and disjoint; ProtocolError otherwise."""
    if len(pairs) > RANGES_MAX:
        raise ProtocolError("there are too many ranges")
    ranges = []
    end = 0
    for first, stop in pairs:
        if first < end or stop <= first:
            raise ProtocolError("ranges must not be empty, overlap or be out of order")
        ranges.append((first, stop))
        end = stop
    return tuple(ranges)
