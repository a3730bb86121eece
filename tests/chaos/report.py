"""The result of a run, as a Markdown table for people and as JSON."""

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.faults import Fault
from tests.chaos.reconciliation import SHOWN, ChaosFacts
from tests.chaos.storm import Happened

SLACK_S = 1.0  # beside the restart, where no lease has to run out
LEASES = 1.5


@dataclass
class Summary:
    """All that is said of a run.

    Attributes:
        about: command, seed, commit, times, load.
        missing: by kind of fault, why it could not be done here.
        of_other_version: errors in jobs that a gateway of that version accepted.
        not_drawn: kinds that the schedule never came to.
    """

    about: dict[str, Any]
    happened: list[Happened]
    missing: dict[str, str]
    facts: ChaosFacts
    violations: dict[str, list[str]]
    of_other_version: list[str]
    kinds: Sequence[Fault] = field(default_factory=list)
    lease_s: float = 1.0

    @property
    def is_clean(self) -> bool:
        """Whether there is no violation."""
        return not any(self.violations.values())


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(share * 100) // 100) - 1))]


def _pair(values: Sequence[float], unit: float = 1.0) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values) / unit:.2f} / {quantile(values, 0.95) / unit:.2f}"


def _measured(found: Happened) -> float | None:
    return found.here_s if found.here_s is not None else found.abroad_s


def _within(kind: Fault, these: Sequence[Happened], lease_s: float) -> str:
    """How many of those that were measured recovered as soon as the rule has it."""
    limit_s = LEASES * lease_s if kind.waits_for_lease else SLACK_S
    values = [value for each in these if (value := _measured(each)) is not None]
    return f"{sum(value <= limit_s for value in values)} of {len(values)}"


def table(summary: Summary) -> list[str]:
    """A row for each kind of fault: how often, and how long it took until work went on."""
    lease_s = summary.lease_s
    rows = [
        "| fault | times | restart s, p50 / p95 | next task there, leases | rule | within it "
        "| next task of its buyer, leases (undisturbed) |",
        "|---|---|---|---|---|---|---|",
    ]
    by_kind: dict[str, list[Happened]] = defaultdict(list)
    for found in summary.happened:
        by_kind[found.act.kind].append(found)
    for kind in summary.kinds:
        if kind.name in summary.missing:
            rows.append(f"| {kind.name} | not done: {summary.missing[kind.name]} | | | | | |")
            continue
        these = by_kind.get(kind.name, [])
        if not kind.lanes:
            rows.append(f"| {kind.name} | afterwards | | | | | |")
            continue
        if not these:
            rows.append(f"| {kind.name} | not drawn | | | | | |")
            continue
        here = [each.here_s for each in these if each.here_s is not None]
        abroad = [each.abroad_s for each in these if each.abroad_s is not None]
        rows.append(
            f"| {kind.name} | {len(these)} | {_pair([each.restart_s for each in these])} "
            f"| {_pair(here, lease_s)} | {kind.rule} | {_within(kind, these, lease_s)} "
            f"| {_pair(abroad, lease_s)} ({len(abroad)}) |"
        )
    return rows


def recovery(summary: Summary) -> list[str]:
    """A line for each of the two rules: over all kinds of faults, how long it took."""
    found: dict[bool, list[float]] = {True: [], False: []}
    waits = {each.name: each.waits_for_lease for each in summary.kinds}
    for each in summary.happened:
        if (value := _measured(each)) is not None:
            found[waits[each.act.kind]].append(value)
    lines = []
    for waits_for_lease, values in found.items():
        unit, name = (summary.lease_s, "leases") if waits_for_lease else (1.0, "s")
        what = "a lease may have to run out" if waits_for_lease else "no lease has to run out"
        limit = f"{LEASES if waits_for_lease else SLACK_S:g} {name}"
        if values:
            lines.append(
                f"- recovery where {what}: p50 / p95 {_pair(values, unit)} {name} after the "
                f"restart, of {len(values)}; rule: {limit}"
            )
    return lines


def counts(facts: ChaosFacts) -> dict[str, int]:
    """How much was looked at."""
    promises = facts.promises.values()
    books = facts.books.values()
    return {
        "jobs": len(facts.promises),
        "tasks promised": sum(each.tasks for each in promises),
        "tasks ended": sum(len(each.outcomes) for each in promises),
        "runs begun": len(facts.runs),
        "runs cut short": sum(not each.end for each in facts.runs),
        "usage records": sum(len(each.usage) for each in books),
        "deliveries": sum(len(each.deliveries) for each in books),
        "deliveries void": sum(row.state == "void" for each in books for row in each.deliveries),
    }


def markdown(summary: Summary) -> str:
    """The whole, for people."""
    lines = ["# Chaos", "", *(f"- {key}: {value}" for key, value in summary.about.items()), ""]
    lines += [f"- {key}: {value:,}" for key, value in counts(summary.facts).items()]
    lines += recovery(summary)
    lines += ["", *table(summary), "", "| check | violations |", "|---|---|"]
    lines += [f"| {name} | {len(found)} |" for name, found in summary.violations.items()]
    for name, found in summary.violations.items():
        if found:
            lines += ["", f"## {name}", *(f"- {each}" for each in found[:SHOWN])]
            if len(found) > SHOWN:
                lines.append(f"- and {len(found) - SHOWN} more: see report.json")
    if summary.of_other_version:
        lines += ["", "## Of jobs that the other version took: no violations of this one"]
        lines += [f"- {each}" for each in summary.of_other_version[:SHOWN]]
    return "\n".join(lines) + "\n"


def as_json(summary: Summary) -> str:
    """The whole, for programs."""
    return json.dumps(
        {
            "about": summary.about,
            "counts": counts(summary.facts),
            "faults": [asdict(each) for each in summary.happened],
            "missing": summary.missing,
            "violations": summary.violations,
            "of the other version": summary.of_other_version,
        },
        indent=1,
    )
