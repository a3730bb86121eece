"""The command line: `python -m tests.fuzz --help`."""

import argparse
import random
import sys

from tests.fuzz import run

ROLES = ("client", "worker", "buyer", "seller", "stranger")
SOAK_S = 60.0  # between two looks
DESCRIPTION = """\
Starts two sites that work for each other, and sends messages to all ports of one of them: by the
tokens of clients and workers, by the keys of members, and without either. Meanwhile honest users go
on with their work. Prints a table, and what the gateways did not withstand; exit code 1 if there is
anything. See tests/fuzz/README.md.
"""


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=DESCRIPTION)
    add = parser.add_argument
    add("--messages", type=int, default=10_000_000, help="in all [10000000]")
    add("--minutes", type=float, default=60.0, help="at most [60]")
    add("--seed", type=int, help="of what is said; drawn and printed if not given")
    add("--roles", default=",".join(ROLES), help=f"only these [{','.join(ROLES)}]")
    add("--soak", type=float, metavar="MINUTES", help="honest work alone, looked at each minute")
    add("--keep", action="store_true", help="keep logs and books of a run without violations")
    given = parser.parse_args()
    roles = given.roles.split(",")
    for each in roles:
        if each not in ROLES:
            parser.error(f"there is no role {each!r}: {', '.join(ROLES)}")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 31)
    settings = run.FuzzSettings(seed, given.messages, given.minutes, roles, keep=given.keep)
    if given.soak:
        settings = run.FuzzSettings(seed, sys.maxsize, given.soak, (), SOAK_S, keep=given.keep)
    try:
        _, violations = run.perform(settings)
    except KeyboardInterrupt:
        print("interrupted; all that was started has ended", file=sys.stderr)
        return 130
    return 1 if any(violations.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
