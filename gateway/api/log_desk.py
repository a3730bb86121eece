"""Questions for the output of tasks."""

import sqlite3
from typing import Any, Final

import trio

from gateway.api.context import BadQuestion, SiteContext
from gateway.trust.rights import Asker

ANSWER_BYTES_MAX: Final = 1 << 20
READERS: Final = 2  # threads that read the file at a time: a read may wait for the disk


class LogDesk:
    """Reads the output of tasks for those that may see their job."""

    def __init__(self, site: SiteContext) -> None:
        self._site = site
        self._readers = trio.CapacityLimiter(READERS)

    async def logs(
        self, asker: Asker, job: str, task: int | None, after: int, wait_s: float
    ) -> dict[str, Any]:
        """Return output of a job after a piece; wait so long for some while the job goes on.

        The asker may see the job. Raises BadQuestion.
        """
        site = self._site
        if site.logs is None:
            raise BadQuestion("this site keeps no output of tasks: see site_log_bytes in [limits]")
        until_s = site.surroundings.mono_s() + wait_s
        while True:
            more = site.output_of(job)  # before the read, so that output in between is not missed
            is_live = job in site.broker.jobs
            try:
                async with self._readers:
                    page = await site.surroundings.read(
                        site.logs.read, job, task, after, ANSWER_BYTES_MAX
                    )
            except sqlite3.Error as error:
                raise BadQuestion(f"the output of tasks can't be read: {error}") from None
            left_s = until_s - site.surroundings.mono_s()
            is_here = asker.handle in site.listener.guests
            if page.pieces or not is_live or left_s <= 0 or not is_here:
                rows = [
                    [each.number, each.at_s, each.task, each.stream, each.text]
                    for each in page.pieces
                ]
                return {
                    "job": job,
                    "pieces": rows,
                    "after": page.pieces[-1].number if rows else after,
                    "more": page.more,
                    "cut_bytes": page.cut_bytes,
                    "ended": not is_live,
                }
            await site.wait_for_results(more, left_s)
