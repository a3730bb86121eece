"""Runs the test suite: the pure tests first, and then those that are marked `real`.

    python -m tests.suite [--thorough] [--flaky FILE] [pytest options]

A pure test that fails fails the run. A `real` test that fails runs once more, at the end and by
itself: when it passes then, the run passes and its name is listed as flaky. More than
`FLAKY_MAX` such names fail the run all the same. Nothing else is tried again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FLAKY_MAX: Final = 3
PASSED, FAILED = 0, 1  # of pytest's exit codes


@dataclass(frozen=True)
class SuiteOutcome:
    """The result of one run of pytest: its exit code, its counts, and the failed tests."""

    code: int
    passed: int
    skipped: int
    failed: list[str]


def run_pytest(*options: str) -> SuiteOutcome:
    """Run pytest in a process of its own; its output goes to ours."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", "pytest", "--tb=short", f"--outcome={told}", *options]
        code = subprocess.run(command, check=False).returncode
        found = json.loads(told.read_text()) if told.exists() else {}
    return SuiteOutcome(
        code, found.get("passed", 0), found.get("skipped", 0), found.get("failed", [])
    )


def run_suite(options: list[str], *, thorough: bool) -> tuple[bool, list[str]]:
    """Run both groups; whether all is well, and the names of flaky tests."""
    which = "thorough" if thorough else "not thorough"
    pure = run_pytest("-n2", *_only(f"{which} and not real and not stress"), *options)
    real = run_pytest(
        f"-n{3 if thorough else 4}", *_only(f"{which} and real and not stress"), *options
    )
    runs = [pure, real]
    flaky: list[str] = []
    broken = sorted(real.failed)
    if real.code == FAILED and 0 < len(broken) <= FLAKY_MAX:
        print(f"\nOnce more, by themselves: {', '.join(broken)}", flush=True)
        again = run_pytest("-n0", "-m", "", *broken)
        runs.append(again)
        flaky = [name for name in broken if name not in again.failed]
        broken = again.failed
        is_well = pure.code == PASSED == again.code
    else:
        is_well = pure.code == PASSED == real.code
    # No test at all is a failure too: pytest says 5 then.
    failed = len(pure.failed) + len(broken)
    passed = pure.passed + real.passed + len(flaky)
    print(f"\n{passed} passed, {failed} failed, {sum(run.skipped for run in runs)} skipped")
    return is_well and failed == 0, flaky


def _only(expression: str) -> list[str]:
    return ["-m", expression, "--dist", "worksteal"]


def main() -> int:
    """Run the suite as the command line says; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("--thorough", action="store_true", help="the long tests, not the others")
    parser.add_argument("--flaky", type=Path, help="add the names of flaky tests to this file")
    ours, options = parser.parse_known_args()
    is_well, flaky = run_suite(options, thorough=ours.thorough)
    print(f"flaky: {', '.join(flaky) or 'none'}")
    if ours.flaky is not None:
        with ours.flaky.open("a") as file:
            file.writelines(f"{name}\n" for name in flaky)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
