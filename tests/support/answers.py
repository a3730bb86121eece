"""What a command says with --json, out of its envelope."""

import json
from typing import Any


def answer(text: str | bytes) -> Any:
    """The rows of an answer, or its data; of both the data, with the rows in it."""
    found = json.loads(text)
    if "gridfed" not in found:
        return found  # of a version before the envelope, which chaos runs beside today's
    if "rows" not in found:
        return found["data"]
    return {**found["data"], "rows": found["rows"]} if "data" in found else found["rows"]
