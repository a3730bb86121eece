"""Finds jobs for those that may see them: lists of them, and one by a name or a part of its id."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Any, Final

from federation.clocks import UtcS
from federation.ids import ALPHABET, id_time_ms
from federation.reasons import Reason
from gateway.api.context import BadQuestion, SiteContext, no_job
from gateway.api.views import work_views
from gateway.api.views.job_choices import CANDIDATES_MAX, PREFIX_CHARS_MIN, several, too_short
from gateway.base.job_states import CHOICES, HELD, REJECTED, spelled
from gateway.ledger.db.jobs.records import ALL_JOBS, JobRow, JobsWanted
from gateway.scheduler.model.jobs import Job
from gateway.trust.rights import Asker

TEXT_CHARS_MAX: Final = 200  # of a filter


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The jobs that a list shows; an empty field: all. `after` is the id of a job before them."""

    user: str = ""
    project: str = ""
    name: str = ""
    state: str = ""
    after: str = ""


def read_filter(details: dict[str, Any]) -> JobFilter:
    """Read the filter of a list of jobs. Raises BadQuestion."""
    found = {key: details.get(key, "") for key in JobFilter.__slots__}
    for key, value in found.items():
        if type(value) is not str or len(value) > TEXT_CHARS_MAX:
            raise BadQuestion(f"{key} must be text of at most {TEXT_CHARS_MAX} characters")
    found["state"] = spelled(found["state"])
    if found["state"] not in ("", *CHOICES):
        raise BadQuestion(f"state {found['state']!r:.40}: must be one of {', '.join(CHOICES)}")
    return JobFilter(**found)


class JobSearch:
    """Jobs of the scheduler and of the books, as one list: the last submitted first."""

    def __init__(self, site: SiteContext) -> None:
        self._site = site

    async def listed(self, asker: Asker, wanted: JobFilter, limit: int) -> list[dict[str, Any]]:
        """Return up to `limit` jobs that an asker sees, as views. Raises BadQuestion.

        A filter for another user asks for that user's rows, which not everyone may see.
        """
        if wanted.user and wanted.user != asker.user and not asker.sees_all:
            if not asker.may_see_all:
                reason = f"the jobs of user {wanted.user!r} are not yours: that needs a token with "
                raise BadQuestion(f"{reason}the scope audit", Reason.SCOPE_MISSING)
            asker = replace(asker, sees_all=True)
        after = await self._place_of(asker, wanted.after) if wanted.after else None
        in_books = JobsWanted(name=wanted.name, state=wanted.state, after=after)
        shown = await self._found(asker, in_books, limit, wanted.user, wanted.project)
        known = {view["id"] for view in shown}
        refused = self._refused(asker, in_books, limit, wanted.user, wanted.project)
        shown += [view for view in refused if view["id"] not in known]
        return work_views.latest(shown, limit)

    async def resolve(self, asker: Asker, text: str, *, for_order: bool = False) -> str:
        """Return the id of the job that is meant: by its id, the beginning of it, or its name.

        A text that means no job is returned as it is. An order is about a job that goes on: of
        several jobs the only unfinished one is meant, and the last of those that have all ended.

        An asker that may see, or order about, the jobs of all users by their ids may name them as
        well. To those whose lists have their own jobs alone, a name means these first; for an order
        of the operator all jobs of a name count alike.

        Raises BadQuestion if the text means several jobs of those, or is too short for the
        beginning of an id.
        """
        if id_time_ms(text) is not None or text in self._site.broker.jobs or not text:
            return text
        if len(text) > TEXT_CHARS_MAX:
            return text
        if await self._site.read(self._site.store.jobs.get, text) is not None:
            return text  # an id of another form
        is_prefix = set(text) <= set(ALPHABET)
        wanted = [JobsWanted(name=text)]
        if is_prefix and len(text) >= PREFIX_CHARS_MIN:
            wanted.append(JobsWanted(prefix=text))
        everybody = replace(asker, sees_all=True)
        if for_order and asker.is_operator:
            asker = everybody
        found = await self._meant(asker, text, wanted, for_order=for_order)
        if not found and asker.may_see_all and not asker.sees_all:
            found = await self._meant(everybody, text, wanted, for_order=for_order)
        if not found and is_prefix and len(text) < PREFIX_CHARS_MIN:
            raise BadQuestion(too_short(text), Reason.JOB_NOT_FOUND)
        return found or text

    async def _meant(
        self, asker: Asker, text: str, wanted: list[JobsWanted], *, for_order: bool
    ) -> str:
        """Return the id of the job that is meant among those in the lists of an asker, or ""."""
        utc_s = self._site.runtime.utc_s()
        if for_order:
            live = (job for each in wanted for job in self._live(asker, each))
            going_on = {job.id: job for job in live if not job.leaving}
            if len(going_on) > 1:
                views = [self._view(job, utc_s) for job in going_on.values()]
                raise BadQuestion(several(text, views, utc_s, "unfinished"))
            if going_on:
                return next(iter(going_on))
        meant: dict[str, dict[str, Any]] = {}
        for each in wanted:
            found = await self._found(asker, each, CANDIDATES_MAX + 1)
            meant |= {str(view["id"]): view for view in found}
        for each in [] if meant else wanted:  # a refused job only if no other is meant
            found = self._refused(asker, each, CANDIDATES_MAX + 1)
            meant |= {str(view["id"]): view for view in found}
        if len(meant) > 1 and not for_order:
            raise BadQuestion(several(text, list(meant.values()), utc_s))
        return str(work_views.latest(list(meant.values()), 1)[0]["id"]) if meant else ""

    def refused(self, asker: Asker, name: str) -> dict[str, Any] | None:
        """Return the view of a refused job that an asker may see; None if there is none."""
        found = self._site.broker.refusals.get(name, self._site.runtime.utc_s())
        if found is None or not asker.may_see(found.user, found.project):
            return None
        return work_views.refused_job(found)

    async def _place_of(self, asker: Asker, text: str) -> tuple[UtcS, str]:
        """Return the place in the list of the job before the wanted ones."""
        job = self._site.broker.jobs.get(text)
        if job is not None:
            return job.opened_at_s, job.id
        refused = self.refused(asker, text)
        if refused is not None:
            return UtcS(refused["submitted_at_s"]), text
        row: JobRow | None = await self._site.read(self._site.store.jobs.get, text)
        if row is None or not asker.may_see(row.user, row.project):
            raise no_job(asker, text)
        return row.submitted_at_s, row.job

    async def _found(
        self,
        asker: Asker,
        wanted: JobsWanted = ALL_JOBS,
        limit: int = CANDIDATES_MAX,
        user: str = "",
        project: str = "",
    ) -> list[dict[str, Any]]:
        rows = await self._site.read(self._stored, asker, wanted, limit, user, project)
        live, utc_s = self._site.broker.jobs, self._site.runtime.utc_s()
        # One client may have 50,000 jobs: show the latest alone.
        present = nsmallest(
            limit,
            self._live(asker, wanted, user, project),
            key=lambda job: (-job.opened_at_s, job.id),
        )
        shown = [self._view(job, utc_s) for job in present]
        shown += [work_views.stored_job(row) for row in rows if row.job not in live]
        return work_views.latest(shown, limit)

    def _stored(
        self, asker: Asker, wanted: JobsWanted, limit: int, user: str, project: str
    ) -> list[JobRow]:
        """The latest jobs in the books that an asker sees, up to `limit` of each project."""
        of_user = user or (None if asker.sees_all else asker.user)
        projects: list[str | None] = [project or None]
        if asker.projects is not None:
            named = sorted(asker.projects)
            projects = [each for each in named if project in ("", each)]
        find = self._site.store.jobs.latest
        return [row for each in projects for row in find(limit, of_user, each, wanted)]

    def _live(
        self, asker: Asker, wanted: JobsWanted, user: str = "", project: str = ""
    ) -> Iterator[Job]:
        after_s, after = wanted.after or (UtcS(float("inf")), "")
        for job in self._site.broker.jobs.values():
            whose = job.whose
            if (
                asker.sees(whose.user, whose.project, whose.site)
                and user in ("", whose.user)
                and project in ("", job.spec.project)
                and wanted.name in ("", job.spec.name)
                and job.id.startswith(wanted.prefix)
                and _is_in(wanted.state, job)
                and (-after_s, after) < (-job.opened_at_s, job.id)
            ):
                yield job

    def _refused(
        self, asker: Asker, wanted: JobsWanted, limit: int, user: str = "", project: str = ""
    ) -> list[dict[str, Any]]:
        """Return up to `limit` refused jobs that an asker sees, the last refused first."""
        after_s, after = wanted.after or (UtcS(float("inf")), "")
        live = self._site.broker.jobs
        found = [
            each
            for each in self._site.broker.refusals.latest(self._site.runtime.utc_s())
            if (
                wanted.state in ("", REJECTED)
                and asker.sees(each.user, each.project)
                and user in ("", each.user)
                and project in ("", each.project)
                and wanted.name in ("", each.name)
                and each.job.startswith(wanted.prefix)
                and each.job not in live
                and (-after_s, after) < (-each.refused_at_s, each.job)
            )
        ]
        found.sort(key=lambda each: (-each.refused_at_s, each.job))
        return [work_views.refused_job(each) for each in found[:limit]]

    def _view(self, job: Job, utc_s: UtcS) -> dict[str, Any]:
        """Show a job in a list, with the reason for waiting where it may wait for ever."""
        view, broker = work_views.live_job(job, utc_s), self._site.broker
        if job.waiting and (job.spec.hold or job.unmet or broker.admission.unpayable(job.spec)):
            view["why_waiting"] = work_views.why_waiting(broker, job, utc_s)
        return view


def _is_in(state: str, job: Job) -> bool:
    """Whether an unfinished job is in a state, or in any if none is given."""
    if state == HELD:
        return job.spec.hold is not None
    return state in ("", work_views.live_state(job))
