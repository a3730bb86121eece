"""The type checker finds every planted mix-up of clocks, and nothing in correct code."""

import ast
import re
from pathlib import Path

import pytest
from mypy import api

from federation.clocks import MonoS, UtcS

ROOT = Path(__file__).parents[2]
PRODUCT = ("federation", "gateway", "policies")
CODE = """
from collections.abc import Callable
from dataclasses import dataclass
from math import isinf
from typing import Generic

from federation.clocks import Instant, MonoS, UtcS


@dataclass
class Bucket(Generic[Instant]):
    since: Instant
    until: Instant

    def passed_s(self, now: Instant) -> float:
        return max(0.0, min(now, self.until) - self.since)

    def extend(self, by_s: float) -> None:
        self.until = max(self.since, self.until + by_s)


def wait(for_s: float) -> None: ...
def tick(mono_s: MonoS, utc_s: UtcS) -> None: ...


def correct(utc_s: UtcS, mono_s: MonoS, left_s: float, clock: Callable[[], MonoS]) -> list[UtcS]:
    tick(clock() + 1, UtcS(1.5e9))
    wait(utc_s - UtcS("inf") + left_s)
    wait(Bucket(mono_s, mono_s + left_s).passed_s(clock()))
    print(f"{utc_s:.3f}", round(utc_s), float(mono_s), isinf(utc_s), utc_s // 86_400, {utc_s: 1})
    return sorted([utc_s - 1.0, 1.0 + utc_s, utc_s] if mono_s - clock() > 1 else [])


def planted(utc_s: UtcS, mono_s: MonoS, left_s: float, clock: Callable[[], UtcS]) -> UtcS:
    tick(utc_s, utc_s)  # planted
    tick(mono_s, mono_s + left_s)  # planted
    tick(mono_s, left_s)  # planted
    tick(clock(), utc_s)  # planted
    wait(utc_s)  # planted
    wait(mono_s + left_s)  # planted
    utc_s + utc_s  # planted
    utc_s - mono_s  # planted
    left_s - utc_s  # planted
    utc_s < mono_s  # planted
    utc_s < left_s  # planted
    utc_s == mono_s  # planted
    if 0 < utc_s:  # planted
        utc_s = mono_s  # planted
    Bucket(utc_s, mono_s)  # planted
    Bucket(utc_s, utc_s).passed_s(mono_s)  # planted
    Bucket(utc_s, utc_s).since = left_s  # planted
    return mono_s  # planted
"""


@pytest.mark.slow
def test_mypy_finds_each_mix_up_of_clocks(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    options = ["--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'clocks'}"]
    told, trouble, _ = api.run([*options, str(path)])
    found = {int(line) for line in re.findall(r"code\.py:(\d+): error", told)}
    planted = {
        number
        for number, line in enumerate(CODE.splitlines(), start=1)
        if line.endswith("# planted")
    }
    assert found == planted, told + trouble


def test_an_instant_is_a_float_at_run_time():
    assert UtcS is float
    assert MonoS is float


# The present; a moment; a bound of a time.
BOUNDS = "since|until|from|to|before|after|by|deadline|expires|as_of"
INSTANT = re.compile(rf"(^|_)(utc|mono|at|{BOUNDS})_s$")
KEYS = {"issued_s", "checked_s", "oldest_s"}  # on the wire, in files and answers


def fields():
    """Yield class, name and type of each field: annotated, or set to an instant."""
    for path in sorted(each for root in PRODUCT for each in (ROOT / root).rglob("*.py")):
        for owner in ast.walk(ast.parse(path.read_text())):
            for node in ast.walk(owner) if isinstance(owner, ast.ClassDef) else ():
                where = f"{path.relative_to(ROOT)}: {owner.name}"
                if isinstance(node, ast.AnnAssign) and (node in owner.body or is_own(node.target)):
                    types = ast.unparse(node.annotation).removesuffix(" | None")
                    yield where, ast.unparse(node.target).removeprefix("self."), types
                elif isinstance(node, ast.Assign) and (types := type_of(node.value)):
                    for target in filter(is_own, node.targets):
                        yield where, target.attr, types


def parameters():
    """Yield function, name and type of each annotated parameter whose name ends in `_s`."""
    for path in sorted(each for root in PRODUCT for each in (ROOT / root).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{path.relative_to(ROOT)}: {function.name}"
                for each in ast.walk(function.args):
                    if isinstance(each, ast.arg) and each.annotation and each.arg.endswith("_s"):
                        yield where, each.arg, ast.unparse(each.annotation).removesuffix(" | None")


def is_own(target):
    """Whether it is an attribute of `self`."""
    return isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"


def type_of(value):
    """The clock of a value that is an instant by its own form; empty for any other."""
    text = ast.unparse(value)
    found = re.match(r"(UtcS|MonoS)\([^()]*\)$", text)
    return found[1] if found else {"utc_s": "UtcS", "mono_s": "MonoS"}.get(text, "")


@pytest.mark.parametrize("named", [fields, parameters])
def test_the_name_of_a_field_or_parameter_tells_an_instant_from_a_duration(named):
    found = []
    for where, name, types in named():
        if types in ("UtcS", "MonoS") and name not in KEYS and not INSTANT.search(name):
            found.append(f"{where}.{name} is an instant")
        if types == "float" and re.search(r"(^|_)(utc|mono|at)_s$", name):
            found.append(f"{where}.{name} is a number of seconds")
    assert not found
