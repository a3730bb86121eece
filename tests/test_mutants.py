"""Mutants: which there are, and that a weak test lets one live where a sharp one does not."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from mutants.changes import read_diff
from mutants.planting import find_mutants

PLANTED = """\
def price(tasks, limit):
    if tasks > limit:
        raise ValueError("too many")
    return tasks * 7


def never():
    return len("x")
"""
WEAK = """\
def test_price():
    price(1, 2)
"""
STRONG = """\
def test_price():
    assert price(2, 2) == 14
    with pytest.raises(ValueError, match="too many"):
        price(3, 2)
"""
ENDLESS = """\
def count(most):
    done = 0
    while done < most:
        done += 1
    return done
"""


CALLS_UP = """\
class Base:
    def take(self, found):
        found.append(1)


class Derived(Base):
    def take(self, found):
        super().take(found)
"""


def changes(source, lines=None):
    return [(each.before, each.after) for each in find_mutants(dedent(source), "m.py", lines)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", {("return a < b", "return a <= b"), ("return a < b", "return None")}),
        ("if a is b:\n  return 1", {("a is b", "a is not b")}),
        ("if a:\n  return", {("a", "not a"), ("return", "pass")}),
        ("while not a:\n  break", {("not a", "a"), ("break", "continue")}),
        ("for _ in a:\n  continue", {("continue", "break")}),
        ("self.a = b", {("self.a = b", "pass")}),
        ("x = f(a) and b", {("x = f(a) and b", "x = f(a) or b")}),
        ("a -= b", {("a -= b", "a += b"), ("a -= b", "pass")}),
        ("await f(a)", {("await f(a)", "pass")}),
        ("raise E(a)", {("raise E(a)", "pass")}),
        ("x = min(a, b)", {("x = min(a, b)", "x = max(a, b)")}),
        ("x = b if a else a", {("x = b if a else a", "x = b if not a else a")}),
        (
            "x = [c for c in a if c]",
            {
                ("x = [c for c in a if c]", "x = [c for c in a if True]"),
                ("x = [c for c in a if c]", "x = [c for c in a if not c]"),
            },
        ),
        ("x = f(yes=True)", {("x = f(yes=True)", "x = f(yes=False)")}),
        ("_log.info('%s', a + b)", set()),
        ("assert a < b", set()),
        ("x = f'{a + b}'", set()),
    ],
)
def test_changes_of_a_statement(body, expected):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    assert set(changes(f"async def f(self, a, b):\n{lines}")) == expected


def test_code_outside_of_functions_stays():
    assert changes("A = 1 + 2\n\ndef f(a=1 + 2): pass\n") == []


def test_a_mutant_leaves_the_tree_as_it_was():
    [first, second] = find_mutants("def f(a, b):\n    return a < b\n", "m.py")
    assert first.compile() != second.compile()
    assert first.compile() == first.compile()


def test_only_changed_lines_are_changed():
    source = "def f(a):\n    g(a)\n    h(a)\n    return 1\n"
    assert changes(source, {3}) == [("h(a)", "pass")]


def test_lines_that_a_diff_adds():
    diff = """\
--- a/gateway/a.py
+++ b/gateway/a.py
@@ -3,0 +4,2 @@ def f():
+one
+two
@@ -9 +11 @@ def f():
-old
+new
--- a/gateway/b.py
+++ b/gateway/b.py
@@ -1,2 +0,0 @@
-gone
-gone
"""
    assert read_diff(diff) == {"gateway/a.py": {4, 5, 11}}


def run(folder, *options):
    root = Path(__file__).parent.parent
    (folder / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nmarkers =\n    real\n    stress\n    thorough\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--files", "planted.py", "--tests", ".", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.real
@pytest.mark.parametrize("is_strong", [False, True])
def test_a_survivor_is_named_and_what_a_sharp_test_kills_is_not(tmp_path, is_strong):
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "test_planted.py").write_text(
        f"import pytest\nfrom planted import price\n\n\n{STRONG if is_strong else WEAK}"
    )
    done = run(tmp_path, "--fail")
    boundary = "planted.py:2: lives (1 of 1 tests)\n    - tasks > limit\n    + tasks >= limit\n"
    assert (boundary in done.stdout) is not is_strong, done.stdout + done.stderr
    assert "planted.py:8: no test runs it" in done.stdout
    assert done.returncode == 1


@pytest.mark.real
def test_all_killed_is_exit_code_zero(tmp_path):
    (tmp_path / "planted.py").write_text(PLANTED.partition("\n\n\n")[0])
    (tmp_path / "test_planted.py").write_text(
        f"import pytest\nfrom planted import price\n\n\n{STRONG}"
    )
    done = run(tmp_path, "--fail")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lives" not in done.stdout


@pytest.mark.real
def test_a_loop_without_an_end_is_killed(tmp_path):
    (tmp_path / "planted.py").write_text(ENDLESS)
    (tmp_path / "test_planted.py").write_text(
        "from planted import count\n\n\ndef test_count():\n    assert count(3) == 3\n"
    )
    done = run(tmp_path, "--fail", "--wait", "2")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
def test_a_method_that_no_longer_calls_its_base_is_planted(tmp_path):
    (tmp_path / "planted.py").write_text(CALLS_UP)
    (tmp_path / "test_planted.py").write_text(
        "from planted import Derived\n\n\ndef test_take():\n    found = []\n"
        "    Derived().take(found)\n    assert found == [1]\n"
    )
    done = run(tmp_path, "--fail")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lives" not in done.stdout


@pytest.mark.real
def test_a_test_that_fails_anyway_kills_nothing(tmp_path):
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "test_planted.py").write_text(
        "from planted import price\n\n\ndef test_price():\n    assert price(1, 2) == 8\n"
    )
    done = run(tmp_path)
    assert "fails without a mutant, and was not used: test_planted.py::test_price" in done.stdout
    assert "killed by" not in done.stdout
