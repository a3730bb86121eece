"""docs/grids_symphony.md agrees with the code."""

import dataclasses
import re
from pathlib import Path

from gateway.grids.symphony.settings import SymphonySettings

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "grids_symphony.md"


def test_every_assumption_of_symphony_names_tests_that_there_are():
    rows = PAGE.read_text().partition("## What is assumed")[2].partition("\n## ")[0].splitlines()
    rows = [line.split("|") for line in rows if re.match(r"\| \d+ \|", line)]
    assert [int(row[1]) for row in rows] == list(range(1, len(rows) + 1))
    folders = (ROOT / "tests" / "gateway" / "grids", ROOT / "tests" / "end_to_end")
    files = [*(path for each in folders for path in each.rglob("test_*.py"))]
    files.append(ROOT / "gateway" / "grids" / "engine_checks.py")
    known = set(re.findall(r"def (\w+)\(", "\n".join(path.read_text() for path in files)))
    for row in rows:
        named = re.findall(r"`(?:\w+\.py::)?(\w+)`", row[4])
        assert set(named) <= known
        assert named or "none" in row[4]


def test_every_key_of_symphony_is_documented():
    known = {field.name for field in dataclasses.fields(SymphonySettings)}
    assert set(re.findall(r"(?m)^\| `([\w-]+)` \|", PAGE.read_text())) - {"rest"} == known
