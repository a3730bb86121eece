"""Writes the results of a run of pytest to a file: the number of passed tests, the failed ones."""

import json
from pathlib import Path

import pytest


class Outcomes:
    """A plugin of the process that controls the run, which hears the reports of all workers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: set[str] = set()
        self._skipped: set[str] = set()
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of a test: a failure in any of them is one of the test."""
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.skipped:
            self._skipped.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        counts = {
            "passed": len(self._passed - self._failed),
            "skipped": len(self._skipped - self._failed),
            "failed": sorted(self._failed),
        }
        self._path.write_text(json.dumps(counts))
