"""Compares promises to clients, traces of tasks, and the books. Pure.

Each check takes the facts and gives a line of text for each violation; CHECKS lists them all.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.books import ChaosBooks, Delivery, Usage
from tests.chaos.evidence import Run, value_of

# The possible outcomes of a job's own faults, by its manner or kind.
OWN_ERRORS = {"wrong": {"ValueError"}}
CANCELLED = {"CancelledError", "TaskStopped"}
CRASHES = 2  # a task whose slot was killed so often is given up as poison, as the docs say
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # of ids, after Crockford
PROBLEM = "problem: "  # the beginning of the line of `gridfed audit` for each
UNASKED = "has not answered about the deliveries that we sold"  # `gridfed reconcile` of a seller
SHOWN = 20  # violations that are shown of one check


@dataclass(slots=True)
class HeardOutcome:
    """How a client heard that a task ended: a value, or the name and text of an error."""

    task: int
    value: int | None = None
    error: str = ""
    text: str = ""


@dataclass(slots=True)
class Promise:
    """A job as its client knows it.

    Attributes:
        kind: as in client.py; `manner` as in tasks.py.
        is_accepted: a detached job was acknowledged.
        is_finished: the client lived to hear of every task.
        state: of a detached job, in the end, as its gateway says.
    """

    key: str
    site: str
    kind: str
    manner: str
    tasks: int
    job: str = ""
    is_accepted: bool = False
    is_cancelled: bool = False
    is_finished: bool = False
    state: str = ""
    outcomes: list[HeardOutcome] = field(default_factory=list)


@dataclass(slots=True)
class ChaosFacts:
    """All that is compared.

    Attributes:
        killed_slots: process ids of slots that a fault has killed, as far as is known.
        left_clients: names of clients that had not ended when the quiet time was over.
        refusals: of jobs that sites could have done.
        answers: by operators' commands: (site, command) → the faults that it finds, empty: none.
        leftovers: processes, files and sockets that should not be there.
        problems: the texts of faults and clients.
        failed_probes: by site, when each ended, UTC, and how.
        others_until_s: sites that ran the other version, and until when, UTC. It has defects that
            are known: faults of jobs that it took are reported, and are no violation.
    """

    promises: dict[str, Promise] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    books: dict[str, ChaosBooks] = field(default_factory=dict)
    killed_slots: set[int] = field(default_factory=set)
    left_clients: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failed_probes: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    others_until_s: dict[str, float] = field(default_factory=dict)


def read_promises(entries: Iterable[dict[str, Any]], promises: dict[str, Promise]) -> None:
    """Take in a client's journal."""
    for each in entries:
        key = each.get("key")
        if key is None:
            continue
        if each["what"] == "submits":
            names = ("site", "kind", "manner", "tasks")
            promises[key] = Promise(key, *(each[name] for name in names))
            continue
        promise = promises[key]
        match each["what"]:
            case "opened":
                promise.job = each["job"]
            case "accepted":
                promise.job, promise.is_accepted = each["job"], True
            case "cancels":
                promise.is_cancelled = True
            case "finished":
                promise.is_finished = True
            case "ended":
                rest = (each.get("value"), each.get("error", ""), each.get("text", ""))
                promise.outcomes.append(HeardOutcome(each["task"], *rest))


def _runs_of(facts: ChaosFacts) -> dict[tuple[str, int], list[Run]]:
    found: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in facts.runs:
        found[run.key, run.task].append(run)
    return found


# --- answers to clients --------------------------------------------------------------------------


def each_ends_once(facts: ChaosFacts) -> Iterator[str]:
    """Every task of a finished or accepted job has ended, and ended once."""
    for promise in facts.promises.values():
        times = Counter(outcome.task for outcome in promise.outcomes)
        for task, count in times.items():
            if count > 1:
                yield f"{promise.key} task {task} ended {count} times"
        if (promise.is_finished or promise.is_accepted) and not promise.is_cancelled:
            missing = [task for task in range(promise.tasks) if not times[task]]
            if missing:
                state = f", the job is {promise.state}" if promise.state else ""
                yield (
                    f"{promise.key} ({promise.kind}): {len(missing)} tasks never ended{state}, "
                    f"the first is {missing[0]}"
                )


def values_are_right(facts: ChaosFacts) -> Iterator[str]:
    """A result is the one of its task."""
    for promise in facts.promises.values():
        for outcome in promise.outcomes:
            if outcome.value is not None and outcome.value != value_of(outcome.task):
                yield f"{promise.key} task {outcome.task} came to {outcome.value}"


def errors_are_their_own(facts: ChaosFacts) -> Iterator[str]:
    """No task is given up for another reason than its own."""
    runs = _runs_of(facts)
    for promise in facts.promises.values():
        for outcome in promise.outcomes:
            if not outcome.error or _is_own(promise, outcome, runs, facts.killed_slots):
                continue
            begun = len(runs[promise.key, outcome.task])
            yield (
                f"{promise.key} ({promise.kind}) task {outcome.task}, begun {begun} times, "
                f"was given up: {outcome.error}: {outcome.text}"
            )


def _is_own(
    promise: Promise,
    outcome: HeardOutcome,
    runs: dict[tuple[str, int], list[Run]],
    killed_slots: set[int],
) -> bool:
    if outcome.error in OWN_ERRORS.get(promise.manner, ()):
        return True
    if promise.is_cancelled and outcome.error in CANCELLED:
        return True
    cut_short = [run for run in runs[promise.key, outcome.task] if not run.end]
    killed = [run for run in cut_short if run.pid in killed_slots]
    return outcome.error == "TaskCrashed" and len(killed) >= CRASHES


def done_is_evident(facts: ChaosFacts) -> Iterator[str]:
    """Nothing has a result that did not run to its end."""
    done = {(run.key, run.task) for run in facts.runs if run.end == "ok"}
    for promise in facts.promises.values():
        for outcome in promise.outcomes:
            if outcome.value is not None and (promise.key, outcome.task) not in done:
                yield f"{promise.key} task {outcome.task} has a result, and no run that ended ok"


def jobs_are_taken(facts: ChaosFacts) -> Iterator[str]:
    """No job is refused: each can be done by a site that is there, or comes back."""
    yield from facts.refusals


def clients_end(facts: ChaosFacts) -> Iterator[str]:
    """Every client that was not killed comes to its end."""
    yield from (f"client {name} has not ended" for name in facts.left_clients)


# --- charges -------------------------------------------------------------------------------------


def _own_usage(facts: ChaosFacts) -> dict[tuple[str, str], list[Usage]]:
    """By site and name of the job: the usage of that site's own users."""
    found: dict[tuple[str, str], list[Usage]] = defaultdict(list)
    for site, books in facts.books.items():
        for row in books.usage:
            if not row.origin:
                found[site, row.name].append(row)
    return found


def charged_once(facts: ChaosFacts) -> Iterator[str]:
    """Of a task one run that ended well is charged; others only as often as runs were begun."""
    runs, usage = _runs_of(facts), _own_usage(facts)
    for promise in facts.promises.values():
        well: Counter[int] = Counter()
        paid: Counter[int] = Counter()
        for row in usage[promise.site, promise.key]:
            if row.state == "repeat" or (row.state != "ok" and not row.cost_nanos):
                continue
            for task in range(row.first, row.stop):
                paid[task] += 1
                well[task] += row.state == "ok"
        for task, count in paid.items():
            these = runs[promise.key, task]
            raised = sum(run.end == "raised" for run in these)
            if well[task] > 1 + raised:
                yield f"{promise.key} task {task} is charged {well[task]} times, {raised} raised"
            elif count > max(1, len(these)):
                yield f"{promise.key} task {task} is charged {count} times, begun {len(these)}"


def done_is_charged(facts: ChaosFacts) -> Iterator[str]:
    """A task whose result a client has got has a usage record at its site."""
    usage = _own_usage(facts)
    for promise in facts.promises.values():
        recorded = {
            task
            for row in usage[promise.site, promise.key]
            if row.state in ("ok", "repeat")
            for task in range(row.first, row.stop)
        }
        for outcome in promise.outcomes:
            if outcome.value is not None and outcome.task not in recorded:
                yield (
                    f"{promise.key} ({promise.kind}) task {outcome.task} has a result, and no "
                    f"usage record at {promise.site}"
                )


def charges_are_evident(facts: ChaosFacts) -> Iterator[str]:
    """Nothing is in the books as done that has left no evidence of a run that ended.

    A run that repeats a charged one is in the books as that, whether or not it came to its end.
    """
    begun = {(run.key, run.task) for run in facts.runs}
    ended = Counter((run.key, run.task) for run in facts.runs if run.end)
    by_key: Counter[str] = Counter()
    for (key, _), count in ended.items():
        by_key[key] += count
    for site, books in facts.books.items():
        sold: Counter[str] = Counter()
        for row in books.usage:
            if row.name not in facts.promises or row.state not in ("ok", "repeat"):
                continue
            if row.origin:  # a seller numbers tasks anew: those that are tried again, too
                sold[row.name] += row.tasks
                continue
            for task in range(row.first, row.stop):
                if row.state == "repeat" and (row.name, task) not in begun:
                    yield f"{site} has usage of {row.name} task {task}, which never ran"
                elif row.state == "ok" and not ended[row.name, task]:
                    yield f"{site} has usage of {row.name} task {task}, which ended nowhere"
        for key, count in sold.items():
            if count > by_key[key]:
                yield f"{site} has sold {count} tasks of {key}, of which {by_key[key]} ended"


def evidence_is_recorded(facts: ChaosFacts) -> Iterator[str]:
    """A run that reached its end is in the books of its user's site, once the job has ended.

    A run whose report never reached a gateway leaves no record; then the task runs again.
    """
    usage = _own_usage(facts)
    done: dict[str, set[int]] = defaultdict(set)
    for run in facts.runs:
        if run.end == "ok":
            done[run.key].add(run.task)
    for promise in facts.promises.values():
        if promise.is_cancelled or not (promise.is_finished or promise.is_accepted):
            continue
        recorded = {
            task for row in usage[promise.site, promise.key] for task in range(row.first, row.stop)
        }
        for task in sorted(done[promise.key] - recorded):
            yield (
                f"{promise.key} ({promise.kind}) task {task} ran to its end, and is not in the "
                f"books of {promise.site}"
            )


# --- between sites -------------------------------------------------------------------------------


def _by_key(books: ChaosBooks, side: str, site: str) -> dict[tuple[str, int, int], Delivery]:
    return {row.key: row for row in books.deliveries if row.side == side and row.site == site}


def buyer_equals_seller(facts: ChaosFacts) -> Iterator[str]:
    """Both sides of each delivery have the same; one that the buyer never took is void."""
    for buyer, books in facts.books.items():
        for seller, others in facts.books.items():
            if buyer == seller:
                continue
            bought, sold = _by_key(books, "buy", seller), _by_key(others, "sell", buyer)
            for key in bought.keys() | sold.keys():
                ours, theirs = bought.get(key), sold.get(key)
                text = _differs(ours, theirs)
                if text:
                    where = f"contract {key[0]} epoch {key[1]} first {key[2]}"
                    yield f"{buyer} buys of {seller}, {where}: {text}"


def _differs(bought: Delivery | None, sold: Delivery | None) -> str:
    if bought is None:
        assert sold is not None
        return "" if sold.state == "void" else f"the buyer has none, the seller {sold.state}"
    if sold is None:
        return f"the seller has none, the buyer {bought.state}"
    for name in ("tasks", "wall_ns", "cost_nanos", "state"):
        if getattr(bought, name) != getattr(sold, name):
            return f"{name} is {getattr(bought, name)} and {getattr(sold, name)}"
    return "pending at both" if bought.state == "pending" else ""


def reports_equal_statements(facts: ChaosFacts) -> Iterator[str]:
    """Totals of reports and statements are those of their rows, and the rows are of the same runs.

    The site pays for runs that were repeated without a fault of the job, and its user does not.
    Each run that was bought is matched by itself.
    """
    for site, books in facts.books.items():
        used: Counter[str] = Counter()
        for row in books.usage:
            used[row.site] += row.cost_nanos
        paid: Counter[str] = Counter()
        for each in books.deliveries:
            if each.side == "buy" and each.state == "post":
                paid[each.site] += each.cost_nanos
        del used[""]
        for what, said, rows in (
            ("reports have", books.reported_nanos, used),
            ("the statement has", books.stated_nanos, paid),
        ):
            for seller in said.keys() | rows.keys():
                if said.get(seller, 0) != rows[seller]:
                    yield (
                        f"{site}: {what} {said.get(seller, 0)} nanos bought of {seller}, "
                        f"the rows come to {rows[seller]}"
                    )
        yield from _unmatched(site, books)


def _unmatched(site: str, books: ChaosBooks) -> Iterator[str]:
    """Runs that were bought and have usage but no delivery, a delivery but no usage, or differ."""
    used = _bought(books)
    for each in books.deliveries:
        if each.side != "buy" or each.state != "post":
            continue
        if not each.wall_ns and not each.cost_nanos:
            continue  # tasks that were stopped before they took any time have no usage record
        rows = used[each.site, each.job, each.first, each.tasks, each.wall_ns]
        what = f"{site}: tasks {each.first} to {each.first + each.tasks} of {each.job}"
        if not rows:
            others = [
                f"{row.site or site} {row.first}-{row.stop} {row.state} {row.wall_ns} ns"
                for row in books.usage
                if row.job == each.job
                and row.first < each.first + each.tasks
                and each.first < row.stop
            ]
            yield (
                f"{what} were paid for to {each.site}, {each.cost_nanos} nanos for {each.wall_ns} "
                f"ns, without usage; records of these tasks: {'; '.join(others) or 'none'}"
            )
            continue
        row = rows.pop()
        if not row.origin and row.cost_nanos != each.cost_nanos:
            yield f"{what} cost {row.cost_nanos} nanos, and {each.site} got {each.cost_nanos}"
    left = [row for rows in used.values() for row in rows if row.cost_nanos]
    for row in left:
        yield (
            f"{site}: tasks {row.first} to {row.stop} of {row.job} ({row.name}, {row.state}) "
            f"cost {row.cost_nanos} nanos at {row.site}, which got nothing"
        )


def _bought(books: ChaosBooks) -> dict[tuple[str, str, int, int, int], list[Usage]]:
    """Runs at other sites: (seller, job, first, tasks, wall_ns) → their records."""
    found: dict[tuple[str, str, int, int, int], list[Usage]] = defaultdict(list)
    for row in books.usage:
        if row.site:
            found[row.site, row.job, row.first, row.tasks, row.wall_ns].append(row)
    return found


def commands_are_content(facts: ChaosFacts) -> Iterator[str]:
    """Audit, reconcile and the rest find nothing wrong."""
    for (site, command), text in facts.answers.items():
        problems = [line for line in text.splitlines() if line.startswith(PROBLEM)]
        for each in problems or ([text] if text else []):
            yield f"{command} at {site}: {each}"


def nothing_is_left(facts: ChaosFacts) -> Iterator[str]:
    """No process, temporary file or socket is left."""
    yield from facts.leftovers


def nothing_complained(facts: ChaosFacts) -> Iterator[str]:
    """Faults came about as meant, sites recovered, and probes had answers."""
    yield from facts.problems
    for found in facts.failed_probes.values():
        yield from (text for _, text in found)


CHECKS: list[Callable[[ChaosFacts], Iterator[str]]] = [
    each_ends_once,
    values_are_right,
    errors_are_their_own,
    done_is_evident,
    jobs_are_taken,
    clients_end,
    charged_once,
    done_is_charged,
    charges_are_evident,
    evidence_is_recorded,
    buyer_equals_seller,
    reports_equal_statements,
    commands_are_content,
    nothing_is_left,
    nothing_complained,
]


def reconcile(facts: ChaosFacts) -> tuple[dict[str, list[str]], list[str]]:
    """Return the violations by check, and the findings about jobs that the other version took.

    A check without violations has an empty list.
    """
    others, known = _of_other_version(facts), _known_of_other_version(facts)
    violations: dict[str, list[str]] = {}
    apart: list[str] = []
    for check in CHECKS:
        ours = violations[check.__name__] = []
        for text in check(facts):
            is_others = text in known or bool(others & _words(text))
            (apart if is_others else ours).append(text)
    return violations, apart


def _known_of_other_version(facts: ChaosFacts) -> set[str]:
    """Return findings of the time in which the other version runs, that do not concern a job.

    It gives up probes as it does tasks, and when a seller wants it to compare its purchases it
    does not know the message, and says nothing.
    """
    found = set()
    for site, until_s in facts.others_until_s.items():
        found |= {text for at_s, text in facts.failed_probes.get(site, ()) if at_s <= until_s}
        if until_s == math.inf:
            found |= {
                f"{command} at {asks}: {text}"
                for (asks, command), text in facts.answers.items()
                if command == f"reconcile {site}" and UNASKED in text
            }
    return found


def _words(text: str) -> set[str]:
    return set(re.split(r"[\s,:()]+", text))


def _of_other_version(facts: ChaosFacts) -> set[str]:
    """The keys and ids of the jobs, and the contracts, that a gateway of the other version took.

    A job whose gateway never said its id counts by its site alone.
    """
    found = {
        row.contract
        for site, until_s in facts.others_until_s.items()
        for row in (facts.books[site].deliveries if site in facts.books else ())
        if row.opened_at_s <= until_s
    }
    for each in facts.promises.values():
        until_s = facts.others_until_s.get(each.site)
        if until_s is not None and (not each.job or _made_s(each.job) <= until_s):
            found |= {each.key, each.job} - {""}
    return found


def _made_s(job: str) -> float:
    """When a job's id was made, UTC: its first ten characters are milliseconds, in base 32."""
    return sum(DIGITS.index(each) * 32**at for at, each in enumerate(reversed(job[:10]))) / 1000
