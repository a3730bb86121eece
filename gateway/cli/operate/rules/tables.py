"""Rules and their history as tables for people."""

import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from gateway.base.values import suggest
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
)
from gateway.rules.history import (
    RuleKey,
    RuleKind,
)

_CONTENT_CHARS: Final = 60  # of a rule in a table


def show_rules(reach: DialOptions, *, as_json: bool, **which: Any) -> None:
    """Print the rules and the planned changes; `which` are details of the question `rules`."""
    found = ask(reach, "rules", **{key: each for key, each in which.items() if each is not None})
    if which.get("kind") is not None or which.get("pool") is not None:
        found["planned"] = [each for each in found["planned"] if each["edits"]]
    if as_json:
        show.as_json(found["rules"], {key: found[key] for key in found if key != "rules"})
        return
    _check_pool(reach, which.get("pool"), is_there=bool(found["rules"] or found["planned"]))
    show.say(f"version {found['version']} of the rules, in force at {show.moment(found['at_s'])}")
    show.table(
        ("rule", "content", show.timed("since"), "by", "change", "reason"),
        [
            [
                _named(each),
                _short(each["content"]),
                show.when(each["change"]["from_s"]),
                _by(each["change"]),
                each["change"]["change"],
                each["change"]["reason"],
            ]
            for each in found["rules"]
        ],
        "no rules",
    )
    if found["planned"]:
        show.say()
        show.say("planned:")
        _table_of_changes(found["planned"])


def show_history(reach: DialOptions, *, as_json: bool, **which: Any) -> None:
    """Print changes of rules; `which` are details of the question `rule_history`."""
    details = {key: each for key, each in which.items() if each is not None}
    found = ask(reach, "rule_history", **details)
    if as_json:
        show.as_json(found)
        return
    _check_pool(reach, which.get("pool"), is_there=bool(found))
    _table_of_changes(found)


def _check_pool(reach: DialOptions, pool: str | None, *, is_there: bool) -> None:
    """Raise ClickException for a pool without rules that the site does not have: it is a slip."""
    if pool is None or is_there:
        return
    known = sorted({str(each["pool"]) for each in ask(reach, "status")["pools"]})
    if pool not in known:
        meant = suggest(pool, known)
        raise click.ClickException(f"no pool {pool!r} here{meant}; known pools: {', '.join(known)}")


def _table_of_changes(changes: list[Any]) -> None:
    rows = []
    for each in changes:
        head = [
            each["change"],
            show.when(each["from_s"]),
            show.when(each["until_s"]) if each["until_s"] else "",
            _by(each),
        ]
        state = f"cancelled at {show.moment(each['cancelled_s'])}" if each["cancelled_s"] else ""
        why = "; ".join(filter(None, (each["reason"], state)))
        if each["ends"]:
            rows.append([*head, f"the end of change {each['ends']}", "", "", why])
        for edit in each["edits"]:
            values = _short(edit["before"]), _short(edit["after"])
            rows.append([*head, _named(edit), *values, why])
            head = [""] * len(head)
            why = ""
    show.table(
        ("change", show.timed("from"), "until", "by", "rule", "before", "after", "reason"),
        rows,
        "no changes",
    )


def _by(change: Mapping[str, Any]) -> str:
    author, source = change["author"], change["source"]
    return f"{author}, {source}" if author else str(source)


def _named(rule: Mapping[str, Any]) -> str:
    return str(RuleKey(RuleKind(rule["kind"]), rule["pool"], rule["name"]))


def _short(content: Any) -> str:
    """Return a rule's content in a line."""
    if content is None:
        return "none"
    rows = content if isinstance(content, list) else [content]
    text = "; ".join(
        ", ".join(f"{key} {_value(each)}" for key, each in row.items() if key != "name")
        if isinstance(row, dict)
        else str(row)
        for row in rows
    )
    is_cut = len(text) > _CONTENT_CHARS and sys.stdout.isatty()  # piped output has room
    return text[: _CONTENT_CHARS - 1] + "…" if is_cut else text


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return " ".join(map(str, value.values()))
    return str(value)
