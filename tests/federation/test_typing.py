"""What type checkers say of a user's script: nothing; and of wrong calls: where they are wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/every_name.py"
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


def mypy(path, cache):
    arguments = ["--strict", "--no-error-summary", "--cache-dir", cache, path]
    return [sys.executable, "-m", "mypy", *map(str, arguments)]


def pyright(path, _cache):
    return [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(path)]


def checked(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_script_that_uses_every_public_name_type_checks(checker, tmp_path):
    import federation

    assert {name for name in federation.__all__ if name not in SCRIPT.read_text()} == set()
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
