"""docs/python.md names all that a user imports, and its programs are right."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import federation
from federation import errors
from federation.client import Options
from federation.engine.mapping import MapResults

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "python.md").read_text()
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = PROGRAM.findall(TEXT)
QUOTED = re.findall(r"`([^`]+)`", PROGRAM.sub("", TEXT))
# The client's engine calls them.
OF_THE_ENGINE = {"finish", "let_go", "placed", "told_end", "lease", "objects", "engine"}
OF_THE_ENGINE |= {"asynchronous"}  # read by Dask
OF_THE_ENGINE |= {
    "as_input",
    "is_detached",
    "is_inner",
    "is_input",
    "is_waited_for",
    "label",
    "lost",
    "node",
    "packed",
    "stream",
}


def public(cls):
    return {name for name in vars(cls) if not name.startswith("_")}


def test_the_page_has_every_name_that_a_user_may_write():
    names = {*federation.__all__, *Options.__slots__}
    for each in (
        *(federation.Client, federation.TaskFuture, federation.JobHandle, federation.ObjectRef),
        *(federation.LogLine, federation.Cost, federation.Progress, federation.JobCancelled),
        *(federation.LimitsUnmet, MapResults),
    ):
        names |= public(each)
    quoted = set(re.findall(r"\w+", " ".join([*PROGRAMS, *QUOTED])))
    assert names - OF_THE_ENGINE - quoted == set()


def test_every_error_of_a_user_is_exported_and_in_the_table():
    table = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`\w+`[^|]*)\|", TEXT, re.M))))
    raised = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.GridError)
    }
    assert raised <= set(federation.__all__)
    assert raised <= table


def test_the_defaults_of_options_in_the_page_are_those_of_the_code():
    rows = dict(re.findall(r"^\| `(\w+)` \| (false|none|any|0) \|", TEXT, re.MULTILINE))
    said = {"none": None, "any": None, "false": False, "0": 0}
    usual = Options()
    assert len(rows) > 8
    for name, default in rows.items():
        found = getattr(usual, name)
        assert (found or None) == (said[default] or None), name


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_the_programs_compile_and_import_names_that_exist(program):
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and node.module == "federation":
            assert {each.name for each in node.names} <= set(federation.__all__)


@pytest.mark.real
def test_the_programs_run(make_site, tmp_path):
    site = make_site(2)
    for program in PROGRAMS:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**os.environ, "GRIDFED_GATEWAY": site.address},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, program + done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
