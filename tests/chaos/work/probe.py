"""Has a site do a small task at each of some sites, again and again.

`python -m tests.chaos.work.probe SETTINGS` runs until there is a file `quiet` in the run's folder.

Recovery is measured by it: each answer is a line with the times at which the task was submitted and
done, by the monotonic clock that all processes of a host share.
"""

import json
import sys
import threading
import time
from pathlib import Path

from federation import Client
from tests.chaos.journal import Journal
from tests.chaos.work import tasks
from tests.chaos.work.reaching import connected

EVERY_S = 0.25
OPEN_MAX = 8  # probes of one target that have no answer; then no further one is sent


class Target:
    """Sends probes to one site, as long as not too many are without an answer."""

    def __init__(self, client: Client, journal: Journal, site: str) -> None:
        self._view = client.options(
            sites=[site], tags={"probe": True}, name="probe", project="probe", priority=1e6
        )
        self._journal, self._site = journal, site
        self._open = threading.Semaphore(OPEN_MAX)

    def send(self) -> None:
        """Submit a probe, if it is time for one."""
        if not self._open.acquire(blocking=False):
            return
        sent_s = time.monotonic()
        future = self._view.submit(tasks.probe, 1)

        def answered(each):
            self._open.release()
            error = None if each.cancelled() else each.exception()
            self._journal.note(
                "failed" if error else "answered",
                to=self._site,
                sent_s=sent_s,
                done_s=time.monotonic(),
                at_s=time.time(),
                **({"error": f"{type(error).__name__}: {error}"[:300]} if error else {}),
            )

        future.add_done_callback(answered)


def main() -> None:
    """Send probes until there is a file `quiet` in the run's folder."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(settings["folder"])
    journal = Journal(folder / "journals" / f"probe-{settings['site']}.probes")
    client = connected(settings["address"], "probe")
    targets = [Target(client, journal, site) for site in settings["targets"]]
    while not (folder / "quiet").exists():
        for each in targets:
            each.send()
        time.sleep(EVERY_S)
    client.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
