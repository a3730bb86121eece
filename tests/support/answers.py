"""The answers of commands with --json: their content, and their check against the schema."""

import json
import re
from typing import Any

KINDS = {"object": dict, "array": list, "string": str, "null": type(None)}


def answer(text: str | bytes) -> Any:
    """The rows of an answer, or its data; of both the data, with the rows in it."""
    found = json.loads(text)
    if "gridfed" not in found:
        return found  # of a version before the envelope, which chaos runs beside today's
    if "rows" not in found:
        return found["data"]
    return {**found["data"], "rows": found["rows"]} if "data" in found else found["rows"]


def check_schema(value: Any, schema: dict[str, Any]) -> None:
    """Fail unless a value is as a schema says, of the few words that SCHEMA uses."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    assert not kinds or isinstance(value, tuple(KINDS[kind] for kind in kinds)), (value, kinds)
    if "pattern" in schema:
        assert re.search(schema["pattern"], value)
    if isinstance(value, list):
        for each in value:
            check_schema(each, schema.get("items", {}))
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value)
        known = schema.get("properties", {})
        if schema.get("additionalProperties") is False:
            assert set(value) <= set(known)
        for name, each in value.items():
            check_schema(each, known.get(name, {}))
        if "anyOf" in schema:
            assert any(set(each["required"]) <= set(value) for each in schema["anyOf"])
