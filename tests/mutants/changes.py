"""Which lines of the product a branch changes."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

PRODUCT: Final = ("federation", "gateway", "policies")

_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def read_diff(text: str) -> dict[str, set[int]]:
    """The new or changed lines of each file, from a diff without context (`git diff -U0`)."""
    found: dict[str, set[int]] = {}
    lines: set[int] = set()
    for line in text.splitlines():
        if line.startswith("+++ b/"):
            lines = found.setdefault(line.removeprefix("+++ b/"), set())
        elif hunk := _HUNK.match(line):
            first = int(hunk[1])
            lines.update(range(first, first + int(hunk[2] or 1)))
    return {name: lines for name, lines in found.items() if lines}


def read_places(places: Iterable[str]) -> dict[str, set[int] | None]:
    """The lines that are named, by file; None is all of them.

    Args:
        places: as FILE, FILE:LINE or FILE:FIRST-LAST.
    """
    found: dict[str, set[int] | None] = {}
    for each in places:
        name, _, lines = each.partition(":")
        if not lines:
            found[name] = None
        elif (known := found.setdefault(name, set())) is not None:
            first, _, last = lines.partition("-")
            known.update(range(int(first), int(last or first) + 1))
    return found


def changed_since(base: str) -> dict[str, set[int]]:
    """The lines that differ from the commit at which we left `base`, committed or not."""
    command = ["git", "diff", "-U0", "--no-color", "--no-ext-diff", "--merge-base", base, "--"]
    diff = subprocess.run([*command, "*.py"], check=True, capture_output=True, text=True)
    changed = read_diff(diff.stdout)
    return {name: lines for name, lines in changed.items() if PurePath(name).parts[0] in PRODUCT}
