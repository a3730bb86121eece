"""The command line: `python -m tests.chaos --help`."""

import argparse
import random
import shlex
import sys
from collections.abc import Sequence

from tests.chaos import run
from tests.chaos.faults import Fault
from tests.chaos.sites import Times

DESCRIPTION = """\
Starts three sites (London buys of Paris, Paris of Tokyo; London's books are in PostgreSQL), lets
clients work at them, and faults happen by a schedule that the seed gives. Then it waits until all
is quiet, and compares what clients were promised, what tasks left on the disk, and what the books
of all sites say. Prints a table of faults with recovery times, and every violation; exit code 1 if
there is any, and then the logs and books are kept. What a fault needs and this host has not is
said, and the fault is left out: partitions (root, ip, nft), a full disk (root), clock steps
(libfaketime), another version (git and that revision). See tests/chaos/README.md.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=DESCRIPTION)
    add = parser.add_argument
    add("--minutes", type=float, default=20.0, help="how long faults happen [20]")
    add("--seed", type=int, help="of schedule and clients; drawn and printed if not given")
    add("--faults", default="", help="only these, names with commas between them")
    add("--without", default="", help="all but these, names with commas between them")
    add("--list", action="store_true", help="list the kinds of faults, and end")
    add("--pace", type=float, default=2.0, help="seconds between two faults of a lane [2]")
    add("--quiet", type=float, default=300.0, help="seconds that all may take to settle [300]")
    add("--heartbeat", type=float, default=0.5, help="of sessions, seconds [0.5]")
    add("--grace", type=float, default=3.0, help="that a worker may be silent, seconds [3]")
    add("--lease", type=float, default=7.0, help="of contracts, seconds, over 2 x grace [7]")
    add("--tasks", type=int, default=5000, help="of one large map at London; 0: none [5000]")
    add("--crowd", type=int, default=100, help="clients of the fault `crowd` [100]")
    add("--old-version", default="af22feb", help="the other version, or none [af22feb]")
    add("--sqlite", action="store_true", help="London's books are in SQLite, too")
    add("--keep", action="store_true", help="keep logs and books of a run without violations")
    return parser


def _chosen(parser: argparse.ArgumentParser, faults: str, without: str) -> Sequence[Fault]:
    named, left_out = (set(filter(None, each.split(","))) for each in (faults, without))
    known = {each.name for each in run.KINDS}
    for each in (named | left_out) - known:
        parser.error(f"there is no fault {each!r}; --list shows those there are")
    return [
        each
        for each in run.KINDS
        if (not named or each.name in named) and each.name not in left_out
    ]


def _list() -> None:
    for each in run.KINDS:
        lanes = ", ".join(each.lanes)
        print(f"{each.name:15} weight {each.weight:g}; {each.rule}; {lanes}\n{'':15} {each.about}")


def main() -> int:
    """Run the command line; return the exit code."""
    parser = _parser()
    given = parser.parse_args()
    if given.list:
        _list()
        return 0
    if given.lease <= 2 * given.grace:
        parser.error("--lease must be over twice --grace")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 31)
    settings = run.ChaosSettings(
        seed=seed,
        minutes=given.minutes,
        kinds=_chosen(parser, given.faults, given.without),
        times=Times(given.heartbeat, given.grace, given.lease),
        pace_s=given.pace,
        quiet_s=given.quiet,
        tasks=given.tasks,
        crowd=given.crowd,
        old_version=given.old_version,
        database=not given.sqlite,
        keep=given.keep,
        command=shlex.join(["python", "-m", "tests.chaos", *sys.argv[1:]]),
    )
    try:
        return 0 if run.perform(settings) else 1
    except KeyboardInterrupt:
        print("interrupted; all that was started has ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
