"""Tracebacks at workers show the source lines of functions that they have no file of."""

import linecache
import subprocess
import sys
import types
from functools import partial

import cloudpickle
import pytest

from federation.payload import seal_function

CELL = """# a comment that stays at home
def inner(x):
    return x / 0  # the line at fault


def price(x):
    return inner(x)
"""
WORKER = """
import pickle, sys, traceback
function = pickle.loads(sys.stdin.buffer.read())
assert not any(name.startswith("federation") for name in sys.modules)
try:
    function(1)
except ZeroDivisionError:
    print(traceback.format_exc())
import linecache
print(linecache.getline("<cell 7>", 1))
"""


@pytest.fixture
def price(monkeypatch):
    space = {"__name__": "__main__"}
    exec(compile(CELL, "<cell 7>", "exec"), space)
    entry = (len(CELL), None, CELL.splitlines(keepends=True), "<cell 7>")
    monkeypatch.setitem(linecache.cache, "<cell 7>", entry)
    return space["price"]


@pytest.mark.real
@pytest.mark.parametrize("wrap", [lambda f: f, partial])
def test_a_worker_of_any_version_shows_the_lines_of_a_cell_and_no_more(price, wrap):
    body = seal_function(wrap(price)).body
    command = [sys.executable, "-c", WORKER]
    shown = subprocess.run(command, input=body, capture_output=True, check=True).stdout.decode()
    assert "return inner(x)" in shown
    assert "return x / 0  # the line at fault" in shown
    assert b"a comment that stays" not in body
    assert "a comment that stays" not in shown


def test_installed_functions_travel_without_lines():
    assert b"linecache" not in seal_function(subprocess.run).body


@pytest.mark.real
def test_a_cloudpickle_that_hides_files_does_not_hide_lines(price, monkeypatch):
    """From 3.1.3 on it does: a traceback of a notebook had "<dynamic-code>" and no line."""
    table = cloudpickle.Pickler.dispatch_table
    usual = table[types.CodeType]

    def hidden(code):
        build, arguments = usual(code)
        return build, (*arguments[:10], "<dynamic-code>", *arguments[11:])

    monkeypatch.setitem(table, types.CodeType, hidden)
    assert b"<dynamic-code>" in cloudpickle.dumps(price)
    body = seal_function(partial(price)).body
    command = [sys.executable, "-c", WORKER]
    shown = subprocess.run(command, input=body, capture_output=True, check=True).stdout.decode()
    assert 'File "<cell 7>", line 7, in price' in shown
    assert "return x / 0  # the line at fault" in shown
    assert body == seal_function(partial(price)).body  # it is addressed by its content
