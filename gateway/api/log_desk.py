"""Questions for the output of tasks."""

import sqlite3
from typing import Any, Final

from federation.objects.labels import UNLABELLED, DataLabel
from gateway.api.context import BadQuestion, SiteContext
from gateway.api.views.output_notes import no_output, unknown_task
from gateway.ledger.db.jobs.records import JobRow
from gateway.logs.limits import LogPage
from gateway.logs.reading_turns import ReadingTurns
from gateway.scheduler.model.stored_terms import spec_of
from gateway.trust.rights import Asker

ANSWER_BYTES_MAX: Final = 1 << 20
READERS: Final = 2  # threads that read the file at a time: a read may wait for the disk
READERS_OF_USER: Final = 1  # so that one user's slow reads leave a thread to others


class LogDesk:
    """Reads the output of tasks for those that may see their job."""

    def __init__(self, site: SiteContext) -> None:
        self._site = site
        self._turns = ReadingTurns(READERS, READERS_OF_USER)

    async def logs(
        self, asker: Asker, job: str, task: int | None, after: int, wait_s: float
    ) -> dict[str, Any]:
        """Return output of a job after a piece; wait so long for some while the job goes on.

        The asker may see the job. Raises BadQuestion, also where it has no such task.
        """
        site = self._site
        if why := site.server.why_not_here(await self._label(job)):
            raise BadQuestion(f"the output of job {job} is not shown at this site: {why}")
        tasks = None if task is None else await self._tasks(job)
        if task is not None and tasks is not None and task >= tasks:
            raise BadQuestion(unknown_task(job, task, tasks))
        if site.logs is None:
            raise BadQuestion("this site keeps no output of tasks: see site_log_bytes in [limits]")
        until_s = site.runtime.mono_s() + wait_s
        while True:
            more = site.output_of(job)  # before the read, so that output in between is not missed
            is_live = job in site.broker.jobs
            try:
                async with self._turns.of(asker.user):
                    page = await site.runtime.read(
                        site.logs.read, job, task, after, ANSWER_BYTES_MAX
                    )
            except sqlite3.Error as error:
                raise BadQuestion(f"the output of tasks can't be read: {error}") from None
            left_s = until_s - site.runtime.mono_s()
            is_here = asker.handle in site.listener.peers
            if page.pieces or not is_live or left_s <= 0 or not is_here:
                rows = [
                    [each.number, each.at_s, each.task, each.stream, each.text]
                    for each in page.pieces
                ]
                if task is not None and tasks is None and not (rows or after or is_live):
                    await self._check_counted(job, task)
                return {
                    "job": job,
                    "pieces": rows,
                    "after": page.pieces[-1].number if rows else after,
                    "more": page.more,
                    "cut_bytes": page.cut_bytes,
                    "ended": not is_live,
                    "note": "" if rows or after else await self._note(job, task, page, is_live),
                }
            await site.wait_for_results(more, left_s)

    async def _label(self, job: str) -> DataLabel:
        """Return the label of the data of a job, and so of its output."""
        live = self._site.broker.jobs.get(job)
        if live is not None:
            return live.spec.wishes.label
        row: JobRow | None = await self._site.read(self._site.store.jobs.get, job)
        return UNLABELLED if row is None else spec_of(row).wishes.label

    async def _tasks(self, job: str) -> int | None:
        """Return how many tasks a job has, as far as known; None: unknown."""
        live = self._site.broker.jobs.get(job)
        if live is not None:
            return max(live.total or 0, max((stop for _, stop in live.known), default=0))
        row: JobRow | None = await self._site.read(self._site.store.jobs.get, job)
        return None if row is None else row.total

    async def _check_counted(self, job: str, task: int) -> None:
        """Raise BadQuestion for a task beyond those that an ended job without a total has had.

        An attached job has none in the books. A task that ran at another gateway, from which its
        client came, has left no output here.
        """
        row: JobRow | None = await self._site.read(self._site.store.jobs.get, job)
        if row is None or row.ended_at_s is None:
            return
        tasks = row.done + row.failed + row.cancelled
        if task >= tasks:
            raise BadQuestion(unknown_task(job, task, tasks))

    async def _note(self, job: str, task: int | None, page: LogPage, is_live: bool) -> str:
        """Return why nothing was read, in words."""
        row: JobRow | None = await self._site.read(self._site.store.jobs.get, job)
        is_forgotten = row is not None and row.forgotten
        keep_s = self._site.config.results_s
        if row is not None and row.ended_at_s is not None and keep_s:
            is_forgotten |= row.ended_at_s < self._site.runtime.utc_s() - keep_s
        return no_output(task, page.cut_bytes, is_live=is_live, is_forgotten=is_forgotten)
