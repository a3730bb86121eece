"""The command line: `python -m tests.mutants --help`."""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.mutants.changes import changed_since, read_places
from tests.mutants.judging import Finding, Judge, Verdict
from tests.mutants.planting import Mutant, find_mutants

DESCRIPTION = """\
Makes small changes to functions, one at a time, and prints those that no pure test notices. See
tests/mutants/README.md.
"""

SHOWN = 140  # characters of a statement
EXAMPLES = 40  # that a property is tried with, for each mutant
MEMORY = Path("/dev/shm")
OPTIONS = ["-q", "--tb=line", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=none"]
QUIET = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of Hypothesis, imported above
PURE = ["-m", "not real and not stress and not thorough"]
STEADY = ["--randomly-seed=1", "--randomly-dont-reorganize"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=DESCRIPTION)
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--base", help="mutants of the lines that differ from this branch")
    which.add_argument("--files", nargs="+", help="of these: FILE, or FILE:FIRST-LAST")
    add("--tests", nargs="+", default=["tests"], help="the tests, as for pytest [tests]")
    add("--sample", type=int, help="at most so many mutants of a file, drawn by the seed")
    add("--seed", type=int, default=1, help="of the sample [1]")
    add("--patience", type=float, default=60.0, help="seconds of the processor for one mutant [60]")
    add("--wait", type=float, default=20.0, help="seconds for a test that does not end [20]")
    add("--fail", action="store_true", help="exit with 1 when a mutant lives")
    add("--killed", action="store_true", help="print the killed ones too, with the test that did")
    return parser


def _mutants(ours: argparse.Namespace) -> list[Mutant]:
    changed = read_places(ours.files) if ours.files else changed_since(ours.base)
    draw = random.Random(ours.seed)
    found: list[Mutant] = []
    for name, lines in sorted(changed.items()):
        mutants = find_mutants(Path(name).read_text(), os.path.abspath(name), lines)
        if ours.sample is not None and len(mutants) > ours.sample:
            mutants = sorted(draw.sample(mutants, ours.sample), key=lambda each: each.line)
        found += mutants
    return found


def _show(finding: Finding) -> None:
    mutant = finding.mutant
    tests = ""
    if finding.verdict is Verdict.LIVES:
        tests = f" ({finding.tried} of {finding.known} tests)"
    elif finding.verdict is Verdict.KILLED:
        tests = f" by {finding.killer}"
    print(f"{os.path.relpath(mutant.file)}:{mutant.line}: {finding.verdict.value}{tests}")
    pairs = zip(mutant.before, mutant.after, strict=False)
    first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    begin = max(0, first - SHOWN // 2) if first + 20 > SHOWN else 0
    for sign, text in (("-", mutant.before), ("+", mutant.after)):
        print(f"    {sign} {' '.join(text[begin : begin + SHOWN].split())}")
    sys.stdout.flush()


def _table(findings: list[Finding]) -> None:
    files: dict[str, Counter[Verdict]] = {}
    for each in findings:
        for name in (os.path.relpath(each.mutant.file), "all"):
            files.setdefault(name, Counter())[each.verdict] += 1
    if "all" in files:
        files["all"] = files.pop("all")
    print(f"\n{'':34}{'mutants':>9}{'killed':>9}{'live':>9}{'not run':>9}{'no plant':>9}")
    for name, counts in files.items():
        columns = [counts.total(), *(counts[verdict] for verdict in Verdict)]
        print(f"{name:34}" + "".join(f"{each:9}" for each in columns))


def main() -> int:
    """Try the mutants that the command line names; the exit code."""
    ours = _parser().parse_args()
    mutants = _mutants(ours)
    if not mutants:
        print("there is nothing to change")
        return 0
    settings.register_profile(
        "mutants",
        deadline=None,
        derandomize=True,
        max_examples=EXAMPLES,
        phases=[Phase.explicit, Phase.generate],  # a failure is enough, it need not be small
    )
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"

    def tell(finding: Finding) -> None:
        if ours.killed or finding.verdict is not Verdict.KILLED:
            _show(finding)

    judge = Judge(mutants, ours.patience, ours.wait, tell)
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=memory) as folder:
        where = [f"--basetemp={folder}/tests"]
        code = pytest.main([*OPTIONS, *where, *QUIET, *PURE, *STEADY, *ours.tests], plugins=[judge])
    if len(judge.findings) < len(mutants):
        return int(code) or 1
    _table(judge.findings)
    for each in judge.failures:
        print(f"fails without a mutant, and was not used: {each}")
    lives = sum(each.verdict is not Verdict.KILLED for each in judge.findings)
    return 1 if lives and ours.fail else 0


if __name__ == "__main__":
    sys.exit(main())
