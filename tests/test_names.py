"""One name stands for one thing: class names are unique, and the glossary names existing code."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("federation", "gateway", "policies", "simulations", "benchmarks", "examples")
SHARED_MAX = 5
# Names of two public classes, each with the reason.
SHARED: dict[str, str] = {
    "Client": "drop-ins have the names of the libraries that they stand for",
}
PLACED = re.compile(r"`([\w/.]+\.py)`(?: `(\w+)`)?")


def classes(path):
    """The public classes at the top of a module."""
    body = ast.parse(path.read_text()).body
    return {each.name for each in body if isinstance(each, ast.ClassDef) and each.name[0] != "_"}


def test_a_public_class_name_stands_for_one_class():
    places = defaultdict(list)
    for path in (path for root in PRODUCT for path in (ROOT / root).rglob("*.py")):
        if "results" not in path.parts:
            for name in classes(path):
                places[name].append(path.relative_to(ROOT).as_posix())
    several = {name: sorted(found) for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in several.items() if name not in SHARED} == {}
    assert set(SHARED) <= set(several)
    assert len(SHARED) <= SHARED_MAX


def test_the_glossary_has_a_word_once_and_names_what_exists():
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    rows = [row for row in rows if row[0] != "word" and not row[0].startswith("---")]
    assert all(len(row) == 4 for row in rows), [row for row in rows if len(row) != 4]
    words = [word for row in rows for word in row[0].split(", ")]
    assert len(words) == len(set(words))
    for row in rows:
        placed = PLACED.findall(row[3])
        assert placed, row[0]
        for path, name in placed:
            assert (ROOT / path).exists(), path
            assert not name or name in classes(ROOT / path), f"{name} in {path}"
