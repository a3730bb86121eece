"""The explanation of a job in words: what `gridfed explain` prints, and `str` of Client.explain.

    answer of a gateway ─► explained ─► lines and a table ─┬─► the command line, with its zone
                                                           └─► Explanation.__str__, in UTC

Pure. The answer comes from a gateway, perhaps of an older version, and its texts from other sites:
missing keys are left out, and texts are cleaned.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from federation.clocks import CALENDAR_END_S
from federation.money import format_money, rounded_money
from federation.offers import show_time
from federation.reasons import Reason, reason_text
from federation.words import clean, count, duration_text, size_text


class ExplanationStyle(Protocol):
    """How figures are written."""

    def moment(self, epoch_s: float | None, /) -> str:
        """Format a time for a sentence."""

    def when(self, epoch_s: float | None, /) -> str:
        """Format a time for a table."""

    def timed(self, heading: str, /) -> str:
        """Return the heading of a column of times, with their zone."""

    def money(self, text: str, /) -> str:
        """Round the amounts of money in a text."""


@dataclass(frozen=True, slots=True)
class ExplanationTable:
    """A table of an explanation; `empty` is the sentence for one without rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str


class _Utc:
    """The style of a client: times in UTC, amounts rounded."""

    def moment(self, epoch_s: float | None, /) -> str:
        return self._shown(epoch_s, is_zoned=True)

    def when(self, epoch_s: float | None, /) -> str:
        return self._shown(epoch_s, is_zoned=False)

    def timed(self, heading: str, /) -> str:
        return f"{heading}, UTC"

    def money(self, text: str, /) -> str:
        return rounded_money(text)

    def _shown(self, epoch_s: float | None, *, is_zoned: bool) -> str:
        if epoch_s is None:
            return ""
        if not epoch_s < float(CALENDAR_END_S):
            return "never"
        return show_time(epoch_s, is_zoned=is_zoned)


class Explanation(dict[str, Any]):
    """An answer about where a job goes, and why: its figures by key; `str` has them in words.

    `print(client.explain(f, tasks=100))` prints what `gridfed explain` prints.
    """

    def __str__(self) -> str:
        lines: list[str] = []
        for part in explained(self, _Utc()):
            lines += [clean(part)] if isinstance(part, str) else _as_text(part)
        return "\n".join(lines)


def explained(
    found: Mapping[str, Any], style: ExplanationStyle
) -> Iterator[str | ExplanationTable]:
    """Yield an explanation in lines, and its table of candidates."""
    if "past" in found:
        yield from _past(found, style)
        return
    yield from _plan(found, style)
    yield from _candidates(found, style)
    yield from _refused(found)
    for each in found.get("residency", ()):
        place = f"line {each['line']}" if each["line"] else each.get("change", "")
        where = f", {place}" if place else ""
        yield f"bound by [[residency]]{where}: {each['rule']}"
    yield from _data(found)
    yield from _whose_turn(found, style)
    yield from _workers(found)
    for note in found.get("notes", ()):
        yield f"{style.moment(note['at_s'])}: {note['text']}"


def _data(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what would move to another site, for how much, and where it may lie."""
    data = found.get("data") or {}
    if data.get("objects"):
        yield (
            f"its calls refer to {count(data['objects'], 'object')} of {size_text(data['bytes'])}: "
            "another site that runs them fetches each once"
        )
    if data.get("label_text"):
        yield f"bound by a label: {data['label_text']}"


def _as_text(table: ExplanationTable) -> list[str]:
    """Return a table as lines, with its columns aligned."""
    if not table.rows:
        return [table.empty]
    rows = [table.columns, *(tuple(map(clean, row)) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _past(found: Mapping[str, Any], style: ExplanationStyle) -> Iterator[str]:
    """Yield where an ended job ran, and the rules that applied there."""
    yield found["text"]
    begun = {each["version"]: each for each in found["rules"]}
    for place in found["past"]:
        where = f"{place['site']}/{place['pool']}" if place["site"] else place["pool"]
        yield (
            f"{where}: {count(place['tasks'], 'run')} from {style.moment(place['first_at_s'])} to "
            f"{style.moment(place['last_at_s'])}, {place['cost']}"
        )
        for each in place["why"]:
            yield f"  {each}"
        if place["rules_unknown"]:
            yield f"  the rules are not shown: {place['rules_unknown']}"
        if (version := place["rules"]) in begun:
            since, author = begun[version]["from_s"], begun[version]["author"]
            by = f" by {author}" if author else ""
            yield (
                f"  rules: version {version}, of {style.moment(since)}{by}: "
                f"`gridfed rules list --version {version}`"
            )
    for each in found["contracts"]:
        price = format_money(each["price_nanos"], each["currency"])
        yield (
            f"contract {each['contract']} with {each['site']}, pool {each['pool']}: opened "
            f"{style.moment(each['opened_at_s'])}, {price} per slot-hour, {each['state']}"
        )


def _state(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what of the job waits, and for what."""
    if found.get("held"):
        yield f"{found['held']}. Once it is released:"
    elif found.get("waits_for"):
        yield f"{count(found['waiting'], 'task')} waiting: {found['waits_for']}"
    elif found.get("job") and not found.get("waiting") and found.get("in_flight"):
        tasks = count(found["in_flight"], "task")
        yield f"no task waits, and {tasks} of it are at workers. If they were placed now:"


def _plan(found: Mapping[str, Any], style: ExplanationStyle) -> Iterator[str]:
    """Yield where the job goes, how much waits, and how much can't be done."""
    yield from _state(found)
    yield found["text"]
    for kind in ("refused_by_rule", "refused_for_money", "refused_by_limits"):
        if found.get(kind):
            yield f"it would be refused: {found[kind]}"
    for share in found["shares"]:
        opens = f"opens at {style.moment(share['opens_s'])}, " if share["opens_s"] else ""
        done = f"done by {style.moment(share['finish_s'])}"
        if not share.get("is_wait_known", True):
            done = "the end is not known, as tasks of unknown duration are before it"
        where = f"{share['site']}/{share['pool']}"
        yield f"  {share['tasks']:,} at {where}: {opens}{done}, {style.money(share['cost'])}"
    deferral = found.get("deferral") or {"waits": 0}
    if "text" in deferral:
        yield from _deferral(deferral, style)
    yield from _limits(found, is_deferred=deferral["waits"] > 0)
    if found["shares"] and found.get("assumed_task_s"):
        assumed = duration_text(found["assumed_task_s"])
        yield f"  a task is assumed to take {assumed}, as none has been measured"


def _limits(found: Mapping[str, Any], *, is_deferred: bool) -> Iterator[str]:
    """Yield what the limits of a job leave out, and its expected end against its deadline."""
    unmet, deadline = found.get("unmet"), found.get("deadline")
    is_dear = unmet and any(each["max_cost_nanos"] is not None for each in unmet["offers"])
    is_late = unmet and deadline and unmet["reason"] == Reason.DEADLINE and not is_dear
    if unmet and not is_late and not found.get("refused_by_limits"):
        yield f"  {unmet['text']}"
    elif not unmet and found.get("short") and not is_deferred:
        code = str(found.get("short_reason") or "")  # all that an older gateway sends
        why = found.get("short_text") or (reason_text(code) if code else "no slot is free")
        yield f"  {found['short']:,} more wait: {why}"
    if deadline and (is_late or not unmet) and not found.get("refused_by_limits"):
        yield f"  {deadline['text']}"
    if found.get("begins_late"):
        yield (
            "  its first calls begin at idle slots all the same: only earlier calls of the "
            "function, which may have been longer, say that they would be late"
        )


def _deferral(deferral: Mapping[str, Any], style: ExplanationStyle) -> Iterator[str]:
    """Yield how much waits for better hours, until when, and the savings; or why nothing waits."""
    if not deferral["waits"]:
        yield f"  {deferral['text']}"
        return
    until, end = style.moment(deferral["until_s"]), style.moment(deferral["finish_s"])
    yield f"  {deferral['text']}, the first until {until}; done by {end}"
    for run in deferral["runs"]:
        where = f"{run['site']}/{run['pool']}"
        begin, grams = style.moment(run["begin_s"]), f"{run['carbon_g']:.3g} g CO2e"
        yield f"    {run['tasks']:,} at {where} from {begin}, {grams}"
    if deferral["runs_left_off"]:
        yield f"    and {deferral['runs_left_off']:,} more"
    grams = f"{deferral['carbon_g']:.3g} g CO2e instead of {deferral['at_once_carbon_g']:.3g} g"
    money = style.money(f"{deferral['cost']} instead of {deferral['at_once_cost']}")
    yield f"    it emits {grams} at once, and costs {money}"


def _candidates(
    found: Mapping[str, Any], style: ExplanationStyle
) -> Iterator[str | ExplanationTable]:
    if found["candidates"] and found["tasks"] > 1:
        yield f"if one pool did all {count(found['tasks'], 'task')}:"
    columns = ("site", "pool", "price", "wait s", style.timed("done by"), "cost", "carbon g")
    yield ExplanationTable(
        (*columns, "advert age s"),
        tuple(_candidate(row, style) for row in found["candidates"]),
        "no pool can run it now",
    )
    for row in found["candidates"]:
        if row.get("moves"):  # an older gateway does not tell
            size, cost = size_text(row["moved_bytes"]), style.money(row["moves"])
            yield f"  of it {cost} for {size} of inputs that move to {row['site']}/{row['pool']}"


def _candidate(row: Mapping[str, Any], style: ExplanationStyle) -> tuple[str, ...]:
    carbon = "" if row["carbon_g"] is None else f"{row['carbon_g']:.3g}"
    wait, done = f"{row['wait_s']:.2f}", style.when(row["finish_s"])
    if not row.get("is_wait_known", True):  # tasks before it are of unknown duration
        wait, done = f"over {wait}" if row["wait_s"] >= 0.01 else "unknown", "unknown"
    place = (str(row["site"]), str(row["pool"]), str(row["price"]))
    return (*place, wait, done, style.money(row["cost"]), carbon, f"{row['age_s']:.1f}")


def _refused(found: Mapping[str, Any]) -> Iterator[str]:
    for group in found["refused"]:
        kind = "never" if group["never"] else "not now"
        pools, why = count(group["count"], "pool"), reason_text(group["reason"])
        yield f"{pools} refused, {kind}: {why} ({group['reason']}):"
        for each in group["examples"]:
            yield f"  {each['site']}/{each['pool']} {each['text']}"


def _whose_turn(found: Mapping[str, Any], style: ExplanationStyle) -> Iterator[str]:
    """Yield the budgets that pay for a job, and its place in the order of shares."""
    for budget in found.get("budgets", ()):
        why = budget["why_not"] or f"{style.money(budget['left'])} is left"
        yield f"paid from {budget['name']} ({budget['whose']}): {why}"
    if "fair_share" in found:
        yield _turn(found["fair_share"])


def _turn(share: Mapping[str, Any]) -> str:
    """Describe the share that a job belongs to, and its place in the order."""
    turn = "it is next in turn"
    if share["place"] is None:
        turn = "none of its tasks can be dispatched yet"
    elif share["place"] > 1:
        turn = f"place {share['place']} of {share['places']}"
        if share["next"]:
            turn += f", next is {share['next']}"
    late = ""
    if share["is_late"]:
        late = "; it goes first, as it has waited for a slot longer than max_wait"
    return (
        f"share {share['share']}: {turn}{late}; it has used {100 * share['part']:.1f} % of "
        f"the slot time; its target under full demand is {100 * share['target']:.1f} %"
    )


def _workers(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pools that grow for a job, and the workers that have its tasks or get none."""
    for each in found.get("growing", ()):
        slots = ", ".join(
            f"{number:,} {stage}" for stage, number in each["slots"].items() if number
        )
        wanted = count(each["wanted"], "wanted slot")
        text = f"{each['pool']} has {slots or 'none'} of {wanted}: {'; '.join(each['why'])}"
        yield text + (f"; {each['trouble']}" if each["trouble"] else "")
    for place in found.get("places", ()):
        why = f": {place['why_not']}" if place["why_not"] else ""
        yield f"{place['worker']} has {count(place['in_flight'], 'task')} of it{why}"
    for rest in found.get("places_left_off", ()):
        workers, tasks = count(rest["workers"], "worker"), count(rest["in_flight"], "task")
        yield f"and {workers} more of {rest['pool']} with {tasks} of it"
