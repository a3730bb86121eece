"""The one form of all JSON that commands print: who answered, when, and the answer. Pure.

    {"gridfed": "0.1.0", "command": "jobs", "site": "london", "at": "2026-11-28T09:30:00Z",
     "rows": [{…}, …], "data": {…}}

`rows` is what the command's table lists, `data` is everything else; a command has one of them, or
both. docs/json.md describes it; SCHEMA is the same as a JSON Schema.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from federation.clocks import UtcS

SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "The output of a gridfed command with --json",
    "type": "object",
    "properties": {
        "gridfed": {"type": "string"},
        "command": {"type": "string"},
        "site": {"type": ["string", "null"]},
        "at": {"type": "string", "pattern": "^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ$"},
        "rows": {"type": "array", "items": {"type": "object"}},
        "data": {"type": "object"},
    },
    "required": ["gridfed", "command", "site", "at"],
    "anyOf": [{"required": ["rows"]}, {"required": ["data"]}],
    "additionalProperties": False,
}


def enveloped(
    *,
    version: str,
    command: str,
    site: str | None,
    at_s: UtcS,
    rows: Sequence[Mapping[str, Any]] | None = None,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a command prints with --json.

    Args:
        version: of the gridfed that prints it, not of the gateway.
        command: the verb and its sub-command, as in "report cost".
        site: the site that answered, or whose files were read; None where there is none.
        at_s: when it is printed.
        rows, data: at least one of them.

    Raises ValueError without rows and data.
    """
    if rows is None and data is None:
        raise ValueError("neither rows nor data")
    head = {
        "gridfed": version,
        "command": command,
        "site": site,
        "at": f"{datetime.fromtimestamp(float(at_s), UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    parts = {"rows": None if rows is None else list(rows), "data": data}
    return head | {name: each for name, each in parts.items() if each is not None}
