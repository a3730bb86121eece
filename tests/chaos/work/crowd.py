"""Many clients at once: `python -m tests.chaos.work.crowd ADDRESS CLIENTS`; each has one task done.

Exit code 1, and a line on stderr for each, where one of them did not get its result.
"""

import resource
import sys

from tests.chaos.work import tasks
from tests.chaos.work.reaching import connected

RESULT_S = 300.0


def main() -> int:
    """Open the clients, have each submit a task, and close them."""
    address, count = sys.argv[1], int(sys.argv[2])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each has several descriptors
    wrong = 0
    clients = [connected(address, "crowd") for _ in range(count)]
    try:
        futures = [
            each.options(tags={"work": True}, name="crowd").submit(tasks.probe, at)
            for at, each in enumerate(clients)
        ]
        for at, future in enumerate(futures):
            error = future.exception(timeout=RESULT_S)
            if error is not None or future.result() != at:
                print(f"client {at}: {error or future.result()!r}", file=sys.stderr)
                wrong += 1
    finally:
        for each in clients:
            each.shutdown(wait=False)
    return wrong and 1


if __name__ == "__main__":
    sys.exit(main())
