"""The findings of type checkers in a user's script: none; and in wrong calls: the right lines."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/every_name.py"
# Of futures and what stands for tasks: the client's engine calls or reads them.
OF_THE_ENGINE = {"finish", "is_waited_for", "label", "let_go", "lost", "placed", "told_end"}
OF_GRAPHS = {"as_input", "engine", "is_inner", "is_input", "node", "packed"}
OF_DASK = {"asynchronous"}  # it asks whether `get` waits
HEAD = """
from federation import Client

def price(spot: float, kind: str = "call") -> float:
    return spot

def run(client: Client) -> None:
"""
WRONG = [
    "client.submit(price)",
    "client.submit(price, 'a text')",
    "client.submit(price, 1.0, knd='put')",
    "client.map(price, ['a text'])",
    "client.map(price, [1.0], [2])",
    "client.options(retrys=2)",
    "client.options(retries='2')",
]


REFERENCES = """
from typing import assert_type

from federation import Client, ObjectRef

def price(spot: float, kind: str = "call") -> float:
    return spot

def revalue(book: list[float], shift: float, name: str) -> str:
    return name

def run(client: Client) -> None:
    spot = client.put(1.0)
    book = client.put([1.0, 2.0])
    assert_type(spot, ObjectRef[float])
    assert_type(book.result(), list[float])
    assert_type(client.submit(price, spot).result(), float)
    assert_type(client.submit(price, 1.0, kind="put").result(), float)
    assert_type(client.submit(revalue, book, spot, "a").result(), str)
    assert_type(client.submit(revalue, [1.0], spot, "a").result(), str)
    assert_type(list(client.map(price, [spot] * 5)), list[float])
    assert_type(list(client.map(revalue, [book] * 5, [0.1] * 5, "abcde")), list[str])
    assert_type(list(client.map(revalue, [[1.0]] * 5, [spot] * 5, "abcde")), list[str])
"""
OF_ANOTHER_TYPE = ["client.submit(price, book)", "client.map(price, [book])"]


def mypy(path, cache):
    arguments = ["--strict", "--no-error-summary", "--cache-dir", cache, path]
    return [sys.executable, "-m", "mypy", *map(str, arguments)]


def pyright(path, _cache):
    return [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(path)]


def checked(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def public_names():
    """The names for users: those of `federation`, its errors, and all that their objects have."""
    import federation
    from federation import errors
    from federation.client import Options
    from federation.engine.jobs import Cost, Progress
    from federation.engine.mapping import MapResults

    raised = (each for each in vars(errors).values() if isinstance(each, type))
    names = {*federation.__all__, *Options.__slots__}
    names |= {each.__name__ for each in raised if issubclass(each, errors.GridError)}
    classes = (federation.Client, federation.TaskFuture, federation.JobHandle, federation.LogLine)
    for each in (*classes, federation.LimitsUnmet, MapResults, Cost, Progress):
        names |= {name for name in vars(each) if not name.startswith("_")}
    return names - OF_THE_ENGINE - OF_GRAPHS - OF_DASK


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_script_that_uses_every_public_name_type_checks(checker, tmp_path):
    used = set(re.findall(r"\w+", SCRIPT.read_text()))
    assert public_names() - used == set()
    done = checked(checker(SCRIPT, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_wrong_calls_are_found_before_they_run(checker, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in WRONG))
    found = checked(checker(path, tmp_path)).stdout
    first = HEAD.count("\n") + 1
    lines = range(first, first + len(WRONG))
    assert [line for line in lines if f"wrong.py:{line}:" not in found] == [], found


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_reference_may_stand_where_a_function_wants_its_value(checker, tmp_path):
    path = tmp_path / "references.py"
    path.write_text(REFERENCES)
    done = checked(checker(path, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    path.write_text(REFERENCES + "".join(f"    {line}\n" for line in OF_ANOTHER_TYPE))
    found = checked(checker(path, tmp_path)).stdout
    first = REFERENCES.count("\n") + 1
    lines = range(first, first + len(OF_ANOTHER_TYPE))
    assert [line for line in lines if f"references.py:{line}:" not in found] == [], found
