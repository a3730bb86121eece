"""A plugin of pytest: it learns which tests run which lines, and tries these on each mutant.

A mutant lives in a process of its own, forked when all tests are collected and have run once: that
costs milliseconds, and nothing of a mutant is left behind.
"""

import ast
import functools
import gc
import os
import resource
import select
import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import pytest
from coverage import Coverage

from tests.mutants.planting import Mutant, codes_of

MEMORY_BYTES: Final = 4 << 30  # more than there was: a loop without an end may collect something
FAILED: Final = 1  # the exit code of a process in which a test failed


class Verdict(Enum):
    """The result of a mutant."""

    KILLED = "killed"
    LIVES = "lives"
    NOT_RUN = "no test runs it"
    NOT_PLANTED = "can't be planted"


@dataclass(frozen=True)
class Finding:
    """The result of a mutant, and how many of the tests that run it were tried."""

    mutant: Mutant
    verdict: Verdict
    tried: int = 0
    known: int = 0
    killer: str = ""


@dataclass(eq=False)
class Judge:
    """Tries mutants; a plugin of pytest.

    Args:
        mutants: all of them.
        patience_s: how much processor time the tests may take that are tried on a mutant; the
            fastest go first. Not how long: on a busy machine fewer tests would be tried.
        wait_s: for a test that does not end, above ten times what it took before.
        tell: is called with each finding.

    Attributes:
        findings: one for each mutant.
        failures: tests that fail without any mutant, at once or when they run again.
    """

    mutants: Sequence[Mutant]
    patience_s: float
    wait_s: float
    tell: Callable[[Finding], None]
    findings: list[Finding] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _has_failed: bool = False
    _took_s: list[float] = field(default_factory=list)
    _kills: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Learn that a test failed."""
        self._has_failed = self._has_failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once, and then those that run a mutant on each mutant."""
        if session.testsfailed or session.config.option.collectonly:
            return False  # pytest says what it is
        runs = self._run_once(session)
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            self._judge(session, runs)
        self.failures = [session.items[index].nodeid for index in sorted(self._broken)]
        return True

    def _run_once(self, session: pytest.Session) -> "Runs":
        files = sorted({os.path.abspath(each.file) for each in self.mutants})
        self._broken: set[int] = set()
        coverage = Coverage(data_file=None, include=files, config_file=False, messages=False)
        coverage.set_option("run:disable_warnings", ["no-data-collected", "module-not-measured"])
        coverage.start()
        try:
            for index, item in enumerate(session.items):
                coverage.switch_context(str(index))
                began_s = time.process_time()
                if not self._passes(item, _after(session.items, index)):
                    self._broken.add(index)
                self._took_s.append(time.process_time() - began_s)
        finally:
            coverage.stop()
        data = coverage.get_data()
        return {name: data.contexts_by_lineno(name) for name in files}

    def _passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        self._has_failed = False
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._has_failed

    def _judge(self, session: pytest.Session, runs: "Runs") -> None:
        functions = _functions(runs)
        originals = {path: _original_codes(path) for path in runs}
        caches = [each for each in gc.get_objects() if _is_cache(each)]
        gc.collect()
        gc.freeze()  # pages that a collection does not touch need not be copied

        for path in runs:  # as it is
            tests = {int(each) for found in runs[path].values() for each in found if each}
            while (chosen := self._choose(path, tests - self._broken, session)) and (
                broken := self._try(session, chosen, [], caches)
            ) is not None:
                self._broken.add(broken)

        for mutant in self.mutants:
            path = os.path.abspath(mutant.file)
            known = _tests_of(mutant, runs[path]) - self._broken
            chosen = self._choose(path, known, session)
            if not chosen:
                finding = Finding(mutant, Verdict.NOT_RUN)
            elif not (codes := _changed_codes(functions[path], originals[path], mutant.compile())):
                finding = Finding(mutant, Verdict.NOT_PLANTED)
            else:
                killer = self._try(session, chosen, codes, caches)
                finding = Finding(
                    mutant,
                    Verdict.LIVES if killer is None else Verdict.KILLED,
                    len(chosen),
                    len(known),
                    "" if killer is None else session.items[killer].nodeid,
                )
                if killer is not None:
                    self._kills[path][killer] += 1
            self.findings.append(finding)
            self.tell(finding)

    def _choose(self, path: str, known: Iterable[int], session: pytest.Session) -> list[int]:
        """The module's own tests, those that killed others of it, the fastest: by patience."""
        own = f"test_{Path(path).name}"
        kills, took_s = self._kills[path], self._took_s

        def rank(test: int) -> tuple[bool, int, float]:
            return session.items[test].path.name != own, -kills[test], took_s[test]

        chosen: list[int] = []
        left_s = self.patience_s
        for each in sorted(known, key=rank):
            left_s -= took_s[each]
            if chosen and left_s < 0:
                break
            chosen.append(each)
        return chosen

    def _try(
        self,
        session: pytest.Session,
        chosen: Sequence[int],
        codes: "Codes",
        caches: Iterable["functools._lru_cache_wrapper[object]"],
    ) -> int | None:
        """The test that fails with the mutant, or does not end; None when all pass."""
        base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        before = set(base.iterdir())
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = FAILED
            try:
                os.close(told)
                for function, changed in codes:
                    function.__code__ = changed
                for cache in caches:
                    cache.cache_clear()
                code = self._test(session, chosen, tell)
            finally:
                os._exit(code)
        os.close(tell)
        try:
            return self._watch(pid, told, chosen)
        finally:
            os.close(told)
            for each in set(base.iterdir()) - before:
                shutil.rmtree(each, ignore_errors=True)

    def _test(self, session: pytest.Session, chosen: Sequence[int], tell: int) -> int:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = _memory_bytes() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        session.config.pluginmanager.unregister(name="terminalreporter")
        items = [session.items[each] for each in chosen]
        for index, item in enumerate(items):
            os.write(tell, b".")
            if not self._passes(item, _after(items, index)):
                return FAILED
        return 0

    def _watch(self, pid: int, told: int, chosen: Sequence[int]) -> int | None:
        begun = 0
        wait_s = self.wait_s + 10 * max(self._took_s[each] for each in chosen)
        while True:
            if not select.select([told], [], [], wait_s)[0]:
                os.kill(pid, signal.SIGKILL)
            if not (dots := os.read(told, 4096)):
                break
            begun += len(dots)
        _, status = os.waitpid(pid, 0)
        return None if status == 0 else chosen[max(0, begun - 1)]


Runs = Mapping[str, Mapping[int, list[str]]]  # file, line, the numbers of the tests that run it
Functions = Mapping[tuple[str, int], list[FunctionType]]
Originals = Mapping[tuple[str, int], list[CodeType]]
Codes = list[tuple[FunctionType, CodeType]]


def _after(items: Sequence[pytest.Item], index: int) -> pytest.Item | None:
    return items[index + 1] if index + 1 < len(items) else None


def _tests_of(mutant: Mutant, runs: Mapping[int, list[str]]) -> set[int]:
    found = {each for line in mutant.lines for each in runs.get(line, ())}
    return {int(each) for each in found or runs.get(mutant.statement, ()) if each}


def _functions(files: Iterable[str]) -> dict[str, Functions]:
    """All functions that live, by file, qualified name and first line."""
    found: dict[str, Functions] = {name: defaultdict(list) for name in files}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (code := each.__code__).co_filename in found:
            found[code.co_filename][code.co_qualname, code.co_firstlineno].append(each)
    return found


def _original_codes(path: str) -> Originals:
    """The code of each function of a file as it is, compiled as mutants are."""
    found: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    tree = ast.parse(Path(path).read_text())
    for key, code in codes_of(compile(tree, path, "exec", dont_inherit=True)):
        found[key].append(code)
    return found


def _changed_codes(functions: Functions, originals: Originals, code: CodeType) -> Codes:
    """The changes to make; empty when the change is in no function that lives."""
    return [
        (function, fitted)
        for key, changed in codes_of(code)
        if changed not in originals.get(key, ())
        for function in functions.get(key, ())
        if (fitted := _fitted(changed, function.__code__.co_freevars)) is not None
    ]


def _fitted(code: CodeType, free: tuple[str, ...]) -> CodeType | None:
    """The code with the free variables of the function that it is set in: it may need fewer.

    Without its `super()` call a method needs no `__class__`.
    """
    if code.co_freevars == free:
        return code
    return None if code.co_freevars else code.replace(co_freevars=free)


def _is_cache(found: object) -> bool:
    return isinstance(found, functools._lru_cache_wrapper) and str(
        getattr(found, "__module__", "")
    ).startswith(("federation.", "gateway.", "policies."))


def _memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")
