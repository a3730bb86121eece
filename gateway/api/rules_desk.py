"""Answers questions about the rules of this site over time, and changes them by command."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from federation.clocks import NEVER_S, UtcS
from gateway.api.rule_keeper import FILE, NothingToReload, Proposal, RuleKeeper
from gateway.base.details import DetailReader, Details
from gateway.base.values import ConfigError, SettingError
from gateway.config.scale import OF_PILOTS
from gateway.rules.history import EDITS_MAX, RuleChange, RuleEdit, RuleHistory, RuleKey, RuleKind
from gateway.trust.rights import Asker

LISTED_MAX: Final = 1_000
READ: Final = DetailReader(SettingError)
NAME_CHARS_MAX: Final = 200
NOT_POSSIBLE: Final = (ConfigError, SettingError, NothingToReload)
_SOURCE: Final = re.compile(r"[\w][\w -]{0,39}")
_NAMED: Final = frozenset({RuleKind.CALENDAR, RuleKind.WINDOW, RuleKind.BUDGET})
_OF_POOLS: Final = frozenset(
    {RuleKind.WINDOW, RuleKind.CLAIMS, RuleKind.PRICE, RuleKind.TARIFF, RuleKind.SCALE}
)


async def rules(keeper: RuleKeeper, _: Asker, details: Details) -> Any:
    """Return the rules in force: {at_s or version, kind, pool}; now, without either.

    What is planned from that time on is in the answer, too.
    """
    history, utc_s = keeper.history, keeper.effective_utc_s()
    at_s = READ.time(details, "at_s") or utc_s
    if (version := details.get("version")) is not None:
        at_s = _begins_at_s(history, version)
    kind, pool = details.get("kind"), details.get("pool")
    found = []
    for key, content in history.at(at_s).items():
        if kind in (None, key.kind) and pool in (None, key.pool):
            last = history.last_change(key, at_s)
            since = _head(last) if last is not None else {}
            found.append({**key._asdict(), "content": content, "change": since})
    return {
        "at_s": at_s,
        "version": history.version_at(at_s),
        "rules": found,
        "planned": [_change(history, each, details) for each in history.planned(at_s)],
    }


def _begins_at_s(history: RuleHistory, version: Any) -> UtcS:
    for each in history.changes:
        if each.number == version and history.of(each.number) is not None:
            return each.from_s
    raise SettingError(f"version {version!r:.20} of the rules not found")


async def rule_history(keeper: RuleKeeper, _: Asker, details: Details) -> Any:
    """Return the changes of the rules, the newest first: {kind, pool, name, limit}."""
    limit = details.get("limit", 50)
    if type(limit) is not int or not 1 <= limit <= LISTED_MAX:
        raise SettingError(f"limit must be a whole number from 1 to {LISTED_MAX:,}")
    history, found = keeper.history, []
    for each in reversed(history.changes):
        concerned = [edit for edit in each.edits if _is_asked(edit.key, details)]
        ends = any(_is_asked(edit.key, details) for edit in _ended(history, each))
        if concerned or ends or not details.keys() & {"kind", "pool", "name"}:
            found.append(_change(history, each, details))
        if len(found) == limit:
            break
    return found


def _ended(history: RuleHistory, change: RuleChange) -> tuple[RuleEdit, ...]:
    """Return the edits that a change ends, if it marks an end."""
    if not change.ends:
        return ()
    return next(each.edits for each in history.changes if each.number == change.ends)


def _is_asked(key: RuleKey, details: Details) -> bool:
    mine = key._asdict()
    return all(mine[name] == details[name] for name in mine if details.get(name) is not None)


def _head(change: RuleChange) -> dict[str, Any]:
    return {
        "change": change.number,
        "from_s": change.from_s,
        "until_s": None if change.until_s == NEVER_S else change.until_s,
        "ends": change.ends or None,
        "made_s": change.made_at_s,
        "author": change.author,
        "source": change.source,
        "reason": change.reason,
        "cancelled_s": change.cancelled_at_s,
    }


def _change(history: RuleHistory, change: RuleChange, details: Details) -> dict[str, Any]:
    """Return a change with each of its rules that is asked for, before and after it."""
    turn = change.from_s, change.number
    earlier = (each for each in history.changes if (each.from_s, each.number) < turn)
    before = RuleHistory(earlier).at(change.from_s)
    edits = [
        {**each.key._asdict(), "before": before.get(each.key), "after": each.content}
        for each in change.edits
        if _is_asked(each.key, details)
    ]
    return {**_head(change), "edits": edits}


async def change_rules(keeper: RuleKeeper, asker: Asker, details: Details) -> Any:
    """Change rules: {edits, from_s, until_s, reason, source, dry_run, version}.

    An edit is {kind, pool, name, content}; without content the rule is removed. With the `version`
    of the rules that the edits were made of, they are refused where another one counts by now.
    """
    source = details.get("source", "command")
    if not isinstance(source, str) or not _SOURCE.fullmatch(source) or source == FILE:
        raise SettingError(
            "source must be 1 to 40 letters, digits, spaces or dashes, and not 'file'"
        )
    edits = list(_edits(details.get("edits")))
    until_s, reason = READ.time(details, "until_s"), details.get("reason", "")
    if not isinstance(reason, str):
        raise SettingError("reason must be a string")
    version = details.get("version")
    if version is not None and type(version) is not int:
        raise SettingError("version must be the number of a version of the rules")
    propose = partial(
        keeper.propose,
        edits,
        asker.user,
        source,
        from_s=READ.time(details, "from_s"),
        until_s=NEVER_S if until_s is None else until_s,
        reason=reason,
        version=version,
    )
    is_dry = READ.flag(details, "dry_run")
    return told(await keeper.change(propose, is_dry=is_dry), is_dry=is_dry)


async def cancel_change(keeper: RuleKeeper, _: Asker, details: Details) -> Any:
    """Cancel a planned change: {change, dry_run}."""
    number = details.get("change")
    if type(number) is not int:
        raise SettingError("change must be the number of a change: see `gridfed rules history`")
    is_dry = READ.flag(details, "dry_run")
    found = await keeper.change(partial(keeper.propose_cancel, number), is_dry=is_dry)
    return told(found, is_dry=is_dry)


VERBS: Final = {
    "rules": rules,
    "rule_history": rule_history,
    "change_rules": change_rules,
    "cancel_change": cancel_change,
}


def told(proposal: Proposal, *, is_dry: bool) -> dict[str, Any]:
    """Return the effects of a change, for an answer; `change` is 0 where nothing changes."""
    return {
        **proposal.change.to_plain(),
        "change": proposal.number,
        "version": proposal.change.config.rules_version,
        "overridden": [str(each.key) for each in proposal.overridden],
        "applied": not is_dry,
    }


def _edits(value: Any) -> Iterator[RuleEdit]:
    if not isinstance(value, list) or not 0 < len(value) <= EDITS_MAX:
        raise SettingError(f"edits must be a list of 1 to {EDITS_MAX:,} rules")
    seen = set()
    for at, each in enumerate(value, 1):
        edit = _edit(f"edits[{at}]" if len(value) > 1 else "the change", each)
        if edit.key in seen:
            raise SettingError(f"edits[{at}]: {edit.key} is listed twice")
        seen.add(edit.key)
        yield edit


def _edit(where: str, value: Any) -> RuleEdit:
    if not isinstance(value, dict) or value.keys() - {"kind", "pool", "name", "content"}:
        raise SettingError(f"{where} must be a table of kind, pool, name and content")
    try:
        kind = RuleKind(value.get("kind", ""))
    except ValueError:
        known = ", ".join(RuleKind)
        raise SettingError(
            f"{where}: kind {value.get('kind')!r:.40} not found; known: {known}"
        ) from None
    pool, name = value.get("pool", ""), value.get("name", "")
    for key, text, is_wanted in (("pool", pool, kind in _OF_POOLS), ("name", name, kind in _NAMED)):
        if not isinstance(text, str) or len(text) > NAME_CHARS_MAX:
            raise SettingError(
                f"{where}: {key} must be a string of up to {NAME_CHARS_MAX} characters"
            )
        if bool(text) is not is_wanted:
            needs = f"needs a {key}" if is_wanted else f"has no {key}: omit {text!r}"
            option = f" (--{key})" if is_wanted else ""
            raise SettingError(f"{where}: a rule of kind {kind} {needs}{option}")
    content = value.get("content")
    if kind is RuleKind.SCALE and content is not None:
        if not isinstance(content, dict):
            raise SettingError(f"{where}: the content of {kind} is a table")
        if others := sorted(content.keys() & OF_PILOTS):
            raise SettingError(
                f"{where}: {others[0]} of [pool.scale] is no rule: set it in the file, and start "
                "the gateway again"
            )
    if kind in (RuleKind.WINDOW, RuleKind.BUDGET) and content is not None:
        rows = content if kind is RuleKind.WINDOW else [content]
        if not isinstance(rows, list) or not rows:
            raise SettingError(f"{where}: the content of a window is a list of tables")
        if any(not isinstance(row, dict) or row.get("name") != name for row in rows):
            raise SettingError(f"{where}: the name in the content must be {name!r}")
    return RuleEdit(RuleKey(kind, pool, name), content)
