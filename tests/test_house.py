"""The tree shows the architecture: sizes of folders, READMEs of packages, purity by contract."""

import ast
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOTS = ("federation", "gateway", "policies", "simulations", "benchmarks", "tests")
PRODUCT = ("federation", "gateway", "policies", "simulations", "benchmarks")
MODULES_MAX = 20
AT_THE_TOP_MAX = 8  # of gateway/: what starts a site, and no more
README_LINES_MAX = 100
METHODS_MAX = 30  # public ones of a class, properties included
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# History, which only grows: one module for each version of the books.
GROWING = {"gateway/ledger/db/migrations/versions"}
SUBJECTS = (
    *("windows", "reservations", "pre-emption", "messages", "results and their bytes", "leases"),
    *("retries", "clocks", "metrics of usage"),
)


def folders(roots):
    """Every folder with modules in it, and their names; results and caches are no code."""
    found = {}
    for root in roots:
        for path in sorted((ROOT / root).rglob("*.py")):
            if path.name != "__init__.py" and "results" not in path.parts:
                name = path.parent.relative_to(ROOT).as_posix()
                found.setdefault(name, []).append(path.stem)
    return found


def packages():
    """Every package of the product, by its path."""
    inits = (path for root in PRODUCT for path in (ROOT / root).rglob("__init__.py"))
    return sorted(path.parent.relative_to(ROOT).as_posix() for path in inits)


def readmes():
    """Every README below the roots."""
    return sorted(path for root in ROOTS for path in (ROOT / root).rglob("README.md"))


def test_no_folder_is_too_full_to_be_taken_in_at_a_glance():
    counts = {name: len(modules) for name, modules in folders(ROOTS).items()}
    assert {name for name, count in counts.items() if count > MODULES_MAX} <= GROWING
    assert counts["gateway"] <= AT_THE_TOP_MAX


def test_no_class_has_more_methods_than_can_be_kept_in_mind():
    large = {}
    for path in (path for root in PRODUCT for path in (ROOT / root).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, FUNCTIONS)}
                public = [name for name in methods if not name.startswith("_")]
                if len(public) > METHODS_MAX:
                    large[f"{path.relative_to(ROOT)}: {node.name}"] = len(public)
    assert large == {}


@pytest.mark.parametrize("package", packages())
def test_every_package_has_a_readme_that_names_what_is_in_it(package):
    readme = ROOT / package / "README.md"
    assert readme.exists()
    if package.startswith("benchmarks"):
        return
    text = readme.read_text()
    inside = folders([package]).get(package, [])
    missing = {name for name in inside if not re.search(rf"`[^`]*\b{name}\.py`", text)}
    below = {each for each in packages() if each.rpartition("/")[0] == package}
    missing |= {each for each in below if f"{each.rpartition('/')[2]}/" not in text}
    assert missing == set()


@pytest.mark.parametrize("readme", readmes(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_readme_is_a_page_and_its_links_lead_somewhere(readme):
    text = readme.read_text()
    assert len(text.splitlines()) <= README_LINES_MAX
    for link in re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", text):
        assert (readme.parent / link).exists(), link
    for path in re.findall(rf"`((?:{'|'.join(ROOTS)}|docs)/[\w/]+(?:\.\w+)?)`", text):
        assert (ROOT / path).exists(), path


def test_the_readme_says_of_every_package_what_is_changed_there():
    text = (ROOT / "README.md").read_text()
    table = text.partition("| what | where |")[2].partition("\n\n")[0]
    for path in re.findall(r"`((?:federation|gateway|policies|simulations)/[\w/.]+)`", table):
        assert (ROOT / path).exists(), path
    named = set(re.findall(r"`([\w/]+)/`", table))
    named |= {path.rpartition("/")[0] for path in re.findall(r"`([\w/]+)\.py`", table)}
    whole = {"gateway/ledger", "gateway/grids"}  # by their parts
    assert {each for each in packages() if "/" in each} <= named | whole
    subjects = table.lower()
    assert [each for each in SUBJECTS if each not in subjects] == []


def test_what_says_that_it_is_pure_is_held_to_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (pure,) = (each for each in contracts if each["name"].startswith("Decisions are pure"))
    held = pure["source_modules"]
    loose = set()
    for path in (path for root in PRODUCT for path in (ROOT / root).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name.startswith(("simulations", "benchmarks")):
            continue
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        says_so = re.search(r"\bPure\b|[;,] pure[.;]", text)
        if says_so and not any(fnmatch(name, each) or fnmatch(name, f"{each}.*") for each in held):
            loose.add(name)
    for readme in (ROOT / package / "README.md" for package in packages()):
        rows = re.findall(r"(?m)^\|([^|]*)\|.*; pure\b[^|]*\|$", readme.read_text())
        for module in re.findall(r"`([\w/]+)\.py`", " ".join(rows)):
            path = readme.parent.relative_to(ROOT) / module
            name = ".".join(path.parts)
            if name.startswith(("simulations", "benchmarks")):
                continue
            if not any(fnmatch(name, each) or fnmatch(name, f"{each}.*") for each in held):
                loose.add(f"{name} (README)")
    assert loose == set()


def test_no_file_has_the_marks_of_a_conflict():
    marks = tuple(mark * 7 + " " for mark in "<>|")
    roots = [ROOT / each for each in (*ROOTS, "docs")]
    found = [
        f"{path}:{number}"
        for path in (path for root in roots for path in root.rglob("*"))
        if path.suffix in {".py", ".md", ".toml", ".txt"}
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if line.startswith(marks)
    ]
    assert not found
