"""Answers questions about the site: one method per verb, found by its name.

An answer is plain data. A question that can't be answered gets a code and a sentence.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any, Final

import trio
from sqlalchemy.exc import SQLAlchemyError

from federation.clocks import UtcS
from federation.errors import GridError, ProtocolError
from federation.messages.messages import Answer, Ask
from federation.messages.wire import unpack
from federation.reasons import Reason
from federation.sessions.task_passes import ABOUT
from gateway.alerts.watch import NoSuchAlert
from gateway.api import (
    books_desk,
    budgets_desk,
    can,
    consequences,
    drain_desk,
    federation_desk,
    job_desk,
    object_desk,
    report_desk,
    reservation_desk,
    rules_desk,
)
from gateway.api.context import SEE_JOBS, BadQuestion, SiteContext, no_job
from gateway.api.job_search import JobSearch, read_filter
from gateway.api.log_desk import LogDesk
from gateway.api.past import PastJob, explain_past, explain_refused
from gateway.api.problems_desk import find_problems
from gateway.api.rule_keeper import RuleKeeper
from gateway.api.rules_desk import NOT_POSSIBLE
from gateway.api.views import job_choices, job_limits, work_views, worker_views
from gateway.api.views.order_words import in_words
from gateway.api.views.wait_reasons import inputs_reason, wait_reason
from gateway.api.views.worker_views import WorkerFilter
from gateway.base.details import DetailReader
from gateway.base.tags import check_tags
from gateway.base.values import SettingError, number, suggest
from gateway.checking.kept import KeptFindings
from gateway.config.groups import owner_of
from gateway.config.site import SiteConfig
from gateway.grids.scaling.opening import probe_engine
from gateway.ledger.accounting.older_books import OlderBooks
from gateway.ledger.db.errors import StoreError
from gateway.ledger.db.jobs.records import STORED_BYTES_MAX, JobRow, may_return
from gateway.ledger.db.usage.records import Dimension
from gateway.ledger.page.facts import PageFacts, to_plain
from gateway.ledger.page.gathering import gather
from gateway.peering import orders
from gateway.runtime.user_pace import (
    OPERATOR_BURST,
    OPERATOR_BURST_S,
    OPERATOR_ORDERS_PER_S,
    OPERATOR_SHARE,
    OrderPace,
    QuestionPace,
)
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.stored_terms import stored_terms
from gateway.sessions.listener import PeerSession
from gateway.settlement.context import NoSuchEntry
from gateway.trust.rights import ALL_USERS, Asker, Denied, RowScope, asker_of, right_to
from policies.parties import Owner, Party
from policies.reservations.reservations import CantReserve

WORKERS_MAX: Final = 10_000  # of one answer
JOBS_MAX: Final = 1000
OUTCOME_BUNDLES_MAX: Final = 64
WAIT_MAX_S: Final = 30.0
READ: Final = DetailReader(BadQuestion)
PROBE_S: Final = 300.0  # the default time that a pool test waits for a worker, …
PROBE_MAX_S: Final = 86_400.0  # … and at most
_SPAN: Final = ("start_s", "end_s")
# The details that each verb accepts. Other verbs (`explain`, those about trust) check their own.
TAKES: Final[Mapping[str, frozenset[str]]] = {
    verb: frozenset(names)
    for verb, names in {
        **dict.fromkeys(("status", "sites", "pools", "deals", "alerts", "disputes"), ()),
        **dict.fromkeys(("budgets", "shares"), (ALL_USERS,)),
        "workers": ("limit", "pool", "host", "state", "after", ALL_USERS),
        "write_off": ("name", "site"),
        "consequences": ("order", "details"),
        "scale": (),
        "object_host": ("project",),
        "large_arguments": (),
        "object": ("project", "digest", "name", "user"),
        "hold_objects": ("project", "digests"),
        "drop_object": ("project", "name", "user"),
        "objects": ("project", "by", "lost", ALL_USERS),
        "probe_pool": ("pool", "tag", "wait_s"),
        "jobs": ("limit", "user", "project", "name", "state", "after", ALL_USERS),
        "job": ("job", "for_order"),
        "running": ("job",),
        "results": ("job", "after", "limit", "wait_s"),
        "logs": ("job", "task", "after", "wait_s"),
        **dict.fromkeys(("forget", "hold", "release"), ("job",)),
        "prioritise": ("job", "priority"),
        "test_alert": ("name",),
        "drain": ("worker", "on"),
        "drain_host": ("host", "on"),
        "drains": (),
        "reload": ("dry_run",),
        "rules": ("at_s", "version", "kind", "pool"),
        "rule_history": ("kind", "pool", "name", "limit"),
        "change_rules": ("edits", "from_s", "until_s", "reason", "source", "dry_run", "version"),
        "cancel_change": ("change", "dry_run"),
        "can": ("user", "project", "group", "site", "pool", "at_s"),
        "reserve": ("slots", "from_s", "lasts_s", "pool", "who", "project", "sites", "dry_run"),
        "reservations": ("all", ALL_USERS),
        "unreserve": ("reservation",),
        "report": ("kind", "by", "where", *_SPAN, "static_price", "whose", ALL_USERS),
        "page": _SPAN,
        "statement": ("sites", *_SPAN),
        "margin": ("by_job", *_SPAN),
        "deliveries": ("site", "contract", "state", *_SPAN),
        "payments": ("site",),
        "reconcile": ("site", "accept", *_SPAN),
        "dispute": ("contract", "deliveries", "reason"),
        "answer_dispute": ("contract", "deliveries", "accept", "reason"),
        "settle": (
            *("site", "direction", "amount_nanos", "currency", "through", "into_nanos"),
            *("into_currency", "reference", "note"),
        ),
        "undo_payment": ("site", "reference", "note"),
    }.items()
}


# Logged orders, with their author and the result. Those about trust are logged by
# gateway.peering.peers, except for refused ones; cancels by gateway.scheduler.tasks.withdrawals.
LOGGED: Final = frozenset(
    {
        *("drain", "reload", "change_rules", "cancel_change", "write_off", "reserve", "unreserve"),
        *("drop_object", *job_desk.VERBS, *books_desk.ORDERS),
    }
)
# Orders of which those of one user are limited in their rate.
PACED: Final = frozenset({"forget", "drop_object", "reserve", "unreserve", *job_desk.VERBS})


class Desk:
    """Answers the questions of clients and the command line."""

    def __init__(self, site: SiteContext, keeper: RuleKeeper) -> None:
        self._site = site
        self._keeper = keeper
        self._log_desk = LogDesk(site)
        self._search = JobSearch(site)
        self._findings = KeptFindings()
        self._pace = OrderPace()
        self._operator_order_pace = OrderPace(OPERATOR_ORDERS_PER_S, OPERATOR_BURST)
        self._question_pace = QuestionPace()
        self._operator_pace = QuestionPace(OPERATOR_SHARE, OPERATOR_BURST_S)
        self._heavy_turn = trio.Lock()
        self._under_way: Counter[int] = Counter()  # questions, by peer
        self._verbs: dict[str, Callable[[Asker, dict[str, Any]], Awaitable[Any]]] = {
            "status": self._status,
            "jobs": self._jobs,
            "job": self._job,
            "running": self._running,
            "results": self._results,
            "logs": self._logs,
            "forget": self._forget,
            **{verb: partial(self._job_order, verb) for verb in job_desk.VERBS},
            "workers": partial(self._in_turn, self._workers),
            **{verb: partial(each, self._site) for verb, each in drain_desk.VERBS.items()},
            "reload": self._reload,
            **{verb: partial(self._ruled, each) for verb, each in rules_desk.VERBS.items()},
            "can": self._can,
            "report": self._report,
            "page": self._page,
            "sites": partial(self._in_turn, self._sites),
            "pools": partial(self._in_turn, self._pools),
            "deals": self._deals,
            "explain": self._explain,
            "shares": partial(self._in_turn, self._shares),
            "scale": self._scale,
            "probe_pool": self._probe_pool,
            "reserve": self._reserve,
            "reservations": self._reservations,
            "unreserve": self._unreserve,
            "alerts": self._alerts,
            "test_alert": self._test_alert,
            "budgets": self._budgets,
            "write_off": self._write_off,
            **{verb: partial(each, self._site) for verb, each in object_desk.VERBS.items()},
            "consequences": self._consequences,
        }

    def takes(self, peer: PeerSession, ask: Ask) -> bool:
        """Whether this peer may ask one more question: then call `answer`. Else refuse it.

        Raises ProtocolError for a peer that keeps asking and reads nothing.
        """
        limit = self._site.config.rules.questions_max
        unread_bytes, unread_max = peer.session.backlog_bytes, self._site.config.unread_bytes
        if unread_bytes > 2 * unread_max:
            raise ProtocolError(f"too many questions, and {unread_bytes:,} bytes of unread answers")
        if self._under_way[peer.handle] < limit and unread_bytes <= unread_max:
            self._under_way[peer.handle] += 1
            return True
        reason = f"{limit} of your questions are unanswered already"
        if unread_bytes > unread_max:
            reason = f"{unread_bytes:,} bytes for you are unread already"
        self._site.listener.post(peer, Answer(ask.request, Reason.BUSY, reason, None))
        return False

    async def answer(self, peer: PeerSession, ask: Ask) -> None:
        """Answer one question; errors in it go into the answer."""
        try:
            reply = await self._answer(peer, ask)
        finally:
            self._under_way[peer.handle] -= 1
            if not self._under_way[peer.handle]:
                del self._under_way[peer.handle]
        if peer.handle in self._site.listener.peers:
            try:
                self._site.listener.post(peer, reply)
            except Exception as error:  # noqa: BLE001 - see _answer
                self._site.listener.post(peer, self._fault(ask, error))
            self._site.listener.flush(self._site.runtime.mono_s())

    async def _answer(self, peer: PeerSession, ask: Ask) -> Answer:
        server = self._site.server
        try:
            found = await self._find(peer, ask)
            if ask.verb in LOGGED and ask.details.get("dry_run") is not True:
                is_about = ask.verb in job_desk.VERBS and isinstance(found, dict)
                if not is_about or found.get("changed", True):
                    job = str(found["job"]) if is_about else ""
                    text = in_words(ask.verb, ask.details, found)
                    server.order_log.done(server.title(peer), text, job, ask.verb)
            return Answer(ask.request, "", "", found)
        except (BadQuestion, Denied) as error:
            is_order = ask.verb in LOGGED or ask.verb in orders.VERBS
            if is_order or (ask.verb == "job" and ask.details.get("for_order") is True):
                what = f"{in_words(ask.verb, ask.details)}: {error}"
                server.order_log.refused(server.title(peer), what)
            return Answer(ask.request, error.code, str(error), None)
        except (StoreError, SQLAlchemyError) as error:
            # A page of the database that can't be read is no reason to stop all work.
            reason = self._site.tell_store_trouble(error)
            return Answer(ask.request, Reason.STORE_TROUBLE, reason, None)
        except Exception as error:  # noqa: BLE001 - no question may end all others' work
            return self._fault(ask, error)

    def _fault(self, ask: Ask, error: Exception) -> Answer:
        """The answer to a question that caused a fault of ours."""
        self._site.tell_fault(f"question {ask.verb[:60]!r}", error)
        return Answer(ask.request, Reason.FAULT, "internal error of the gateway: see its log", None)

    async def _find(self, peer: PeerSession, ask: Ask) -> Any:
        right = right_to(ask.verb, ask.details)
        _check_known(ask)
        held = self._site.server.token_of(peer)
        asker = asker_of(peer, held.token if held is not None else None, right, ask.details)
        if right.at_home:
            _check_home(peer, ask.verb)
        verb = self._verbs.get(ask.verb)
        if verb is not None:
            if ask.verb in PACED:
                await self._keep_pace(asker)
            return await verb(asker, ask.details)
        if ask.verb in orders.VERBS:
            return await self._order(peer, ask)
        if ask.verb in books_desk.QUESTIONS or ask.verb in books_desk.ORDERS:
            return await self._about_books(ask)
        known = ", ".join((*self._verbs, *books_desk.QUESTIONS))
        raise BadQuestion(f"no question {ask.verb[:60]!r}; known questions: {known}")

    async def _keep_pace(self, asker: Asker) -> None:
        """Let a user's order wait its turn; BadQuestion if too many wait already."""
        pace = self._operator_order_pace if asker.is_operator else self._pace
        wait_s = pace.wait_s(asker.user, self._site.runtime.mono_s())
        if wait_s is None:
            raise BadQuestion(
                f"too many orders by {asker.user} wait already: this site carries out "
                f"{pace.per_s:g} a second of one user; give fewer at a time",
                Reason.BUSY,
            )
        if wait_s:
            await trio.sleep(wait_s)

    async def _in_turn(
        self,
        verb: Callable[[Asker, dict[str, Any]], Any],
        asker: Asker,
        details: dict[str, Any],
    ) -> Any:
        """Answer a question that takes the loop for milliseconds, in its user's turn.

        One user's have a share of the loop, an operator's a larger one. Two are never answered in
        one pass of it: thirty that are ready together would keep it for as long as all of them
        take. A verb that yields leaves the loop to others there, and goes on in the next pass. The
        turn is of all users, so `verb` can't wait in it: it reads the store before or after.
        """
        clock = self._site.runtime.mono_s
        pace = self._operator_pace if asker.is_operator else self._question_pace
        wait_s = pace.wait_s(asker.user, clock())
        if wait_s is None:
            raise BadQuestion(pace.refusal(asker.user, clock()), Reason.BUSY)
        if wait_s:
            await trio.sleep(wait_s)
        async with self._heavy_turn:
            loop_s, began_s = 0.0, time.thread_time()
            try:
                found = verb(asker, details)
                if not isinstance(found, Generator):
                    return found
                while True:
                    try:
                        next(found)
                    except StopIteration as end:
                        return end.value
                    loop_s += time.thread_time() - began_s
                    await trio.lowlevel.checkpoint()
                    began_s = time.thread_time()
            finally:
                loop_s += time.thread_time() - began_s
                pace.took(asker.user, loop_s, clock())

    async def _job_order(self, verb: str, asker: Asker, details: dict[str, Any]) -> Any:
        """Hold, release or prioritise a job."""
        name = await self._id_for_order(asker, details)
        return await job_desk.VERBS[verb](self._site, asker, {**details, "job": name})

    async def _order(self, peer: PeerSession, ask: Ask) -> Any:
        """Carry out an order about keys and trust."""
        peers = self._site.peers
        if peers is None:
            raise BadQuestion("this site is in no federation: create one with `gridfed init`")
        try:
            found = await peers.order(ask.verb, ask.details, self._site.server.title(peer))
            self._site.server.end_revoked()
            return found
        except GridError as error:
            raise BadQuestion(str(error)) from None

    async def _about_books(self, ask: Ask) -> Any:
        """Answer a question or order about debts between sites."""
        verb = books_desk.QUESTIONS.get(ask.verb) or books_desk.ORDERS[ask.verb]
        try:
            return await verb(self._site, ask.details)
        except (books_desk.BadBooksQuestion, NoSuchEntry) as error:
            raise BadQuestion(str(error)) from None

    async def _status(self, asker: Asker, details: dict[str, Any]) -> Any:
        found = await self._in_turn(self._status_now, asker, details)
        problems = await find_problems(self._site, self._findings, is_for_all=asker.may_see_all)
        found["problems"] = [each.to_plain() for each in problems]
        return found

    def _status_now(self, asker: Asker, _details: dict[str, Any]) -> dict[str, Any]:
        site = self._site
        clients = sum(peer.role == "client" for peer in site.listener.peers.values())
        found = work_views.status(site.broker, site.config.name, site.addresses, clients)
        found["zone"] = site.config.zone
        older = site.peers.older_books if site.peers is not None else OlderBooks()
        found["older_books"] = [older.why_not(each) for each in sorted(older.behind)]
        # Shown only to askers that may see all, like other dealings between sites.
        found["lapsed"] = site.exchange.sales.lapsed() if asker.may_see_all else []
        return found

    async def _jobs(self, asker: Asker, details: dict[str, Any]) -> Any:
        limit = READ.whole(details, "limit", 0, JOBS_MAX, 50)
        return await self._search.listed(asker, read_filter(details), limit)

    async def _id_of(self, asker: Asker, details: dict[str, Any]) -> str:
        """Return the id of the job that the detail `job` means; BadQuestion if it means several."""
        return await self._search.resolve(asker, READ.text(details, "job"))

    async def _id_for_order(self, asker: Asker, details: dict[str, Any]) -> str:
        """Return the id of the job that an order means; BadQuestion if that has ended."""
        name = await self._search.resolve(asker, READ.text(details, "job"), for_order=True)
        if name not in self._site.broker.jobs:
            row: JobRow | None = await self._site.read(self._site.store.jobs.get, name)
            if row is None:
                self._check_accepted(asker, name)
            if row is None or may_return(row):
                return name
            if asker.may_see(row.user, row.project) or asker.is_operator:
                utc_s = self._site.runtime.utc_s()
                reason = job_choices.ended(work_views.stored_job(row), utc_s)
                raise BadQuestion(reason, Reason.JOB_NOT_FOUND)
        return name

    def _check_accepted(self, asker: Asker, name: str) -> None:
        """Raise BadQuestion if a job that is in no books was refused."""
        refused = self._search.refused(asker, name)
        if refused is not None:
            raise BadQuestion(job_choices.refused(refused), Reason.JOB_NOT_FOUND)

    async def _job(self, asker: Asker, details: dict[str, Any]) -> Any:
        """Show one job; with `for_order` only one that goes on, as an order means it."""
        is_order = details.get("for_order", False)
        if not isinstance(is_order, bool):
            raise BadQuestion("for_order must be true or false")
        find = self._id_for_order if is_order else self._id_of
        name = await find(asker, details)
        job = self._site.broker.jobs.get(name)
        if job is not None and _may_see(asker, job):
            utc_s = self._site.runtime.utc_s()
            view = work_views.live_job(job, utc_s) | {"notes": work_views.notes(job)}
            return view | self._waits(job, utc_s) | self._stages(name) | await self._rules_of(name)
        if job is not None and is_order and asker.is_operator:
            # An admin's token may order about each job, and sees its rows only with audit.
            whose = {"user": job.whose.user, "project": job.whose.project}
            return {"id": name, "name": job.spec.name, **whose}
        refused = await self._refused_job(asker, name)
        if refused is not None:
            return refused
        row = await self._ended_job(asker, name, is_live=job is not None)
        return work_views.stored_job(row) | self._stages(name) | await self._rules_of(name)

    def _stages(self, job: str) -> dict[str, Any]:
        """Return the stages of the graph of a job; empty if it is in none."""
        stages = self._site.broker.graphs.stages.of(job)
        for row in stages:
            live = self._site.broker.jobs.get(row["id"])
            if live is not None:  # of those at workers, some have not begun
                running = work_views.running_count(live)
                row["waiting"] += row["running"] - running
                row["running"] = running
        return {"stages": stages} if stages else {}

    def _waits(self, job: Job, utc_s: UtcS) -> dict[str, Any]:
        """Say why tasks of a job wait: all reasons, and one sentence; empty if none waits."""
        broker = self._site.broker
        if job.blocked and not job.waiting:
            return {"why_waiting": [], "waits_for": inputs_reason(broker, job)}
        if not job.waiting:
            return {}
        reasons = work_views.why_waiting(broker, job, utc_s)
        sentence = wait_reason(broker, job, reasons, utc_s, is_nested=self._is_of_task(job))
        if job.places is not None and job_limits.is_left_out(reasons):
            exchange = self._site.exchange
            exchange.refresh(utc_s, without=job, is_question=True)
            decision = exchange.deciding.decide_for(job, job.waiting, utc_s)
            sentence = job_limits.why_no_place(decision) or sentence
        return {"why_waiting": reasons, "waits_for": sentence}

    def _is_of_task(self, job: Job) -> bool:
        """Whether the client of a job is a running task."""
        peer = self._site.listener.peers.get(job.client)
        return peer is not None and peer.role == "client" and ABOUT in peer.about

    async def _rules_of(self, job: str) -> dict[str, Any]:
        """Return the versions of the rules that the runs of a job name, with their beginnings."""
        versions = await self._site.read(self._site.store.usage.rules_of, job)
        return {"rules": self._keeper.beginnings(versions)}

    async def _running(self, asker: Asker, details: dict[str, Any]) -> Any:
        """Say which tasks of a job run now; none of a job that has ended."""
        job = self._site.broker.jobs.get(await self._id_of(asker, details))
        if job is None or not _may_see(asker, job):
            return {"running": []}
        return {"running": [list(pair) for pair in work_views.running(job)]}

    async def _results(self, asker: Asker, details: dict[str, Any]) -> Any:
        """Outcomes of a detached job from task `after` on, waiting up to `wait_s` for one."""
        name, after = await self._id_of(asker, details), READ.whole(details, "after", 0, 1 << 62, 0)
        limit = READ.whole(details, "limit", 0, OUTCOME_BUNDLES_MAX, 16)
        until_s = self._site.runtime.mono_s() + READ.seconds(details, "wait_s", WAIT_MAX_S, 0.0)
        store = self._site.store
        while True:
            # Registered before the store is read, so that results in between are not missed.
            more = self._site.results_of(name)
            live = name in self._site.broker.jobs
            row = await self._site.read(store.jobs.get, name)
            if row is None and live:  # it has just arrived, and is being written
                await self._site.record()
                row = await self._site.read(store.jobs.get, name)
            is_theirs = row is not None and asker.owns(row.user, row.project)
            if row is not None and not is_theirs and asker.may_see(row.user, row.project):
                raise BadQuestion(
                    f"job {name!r} belongs to another user: results are for the job's user alone",
                    Reason.JOB_NOT_FOUND,
                )
            if row is None and not live:
                self._check_accepted(asker, name)
            if row is None or not is_theirs:
                reason = f"no detached job {name!r} found here: {SEE_JOBS}"
                raise BadQuestion(reason, Reason.JOB_NOT_FOUND)
            why_none = work_views.why_no_results(row, self._site.config.results_s)
            if why_none:
                raise BadQuestion(why_none, Reason.JOB_NOT_FOUND)
            kept = await self._site.read(store.jobs.outcomes, name, after, limit)
            ended = not live and row.ended_at_s is not None
            left_s = until_s - self._site.runtime.mono_s()
            is_next = bool(kept) and kept[0][0] <= after  # later results are of no use yet
            if is_next or ended or left_s <= 0 or asker.handle not in self._site.listener.peers:
                outcomes, streams = _bounded(kept) if is_next else ([], [])
                return {
                    "outcomes": outcomes,
                    "streams": streams,
                    "ended": ended,
                    "state": row.state,
                    "total": row.total,
                }
            await self._site.wait_for_results(more, left_s)

    async def _logs(self, asker: Asker, details: dict[str, Any]) -> Any:
        """What tasks of a job have printed after a piece, waiting up to `wait_s` for more."""
        name, after = await self._id_of(asker, details), READ.whole(details, "after", 0, 1 << 62, 0)
        task = None if details.get("task") is None else READ.whole(details, "task", 0, 1 << 62, 0)
        job = self._site.broker.jobs.get(name)
        if job is None or not _may_see(asker, job):
            await self._ended_job(asker, name, is_live=job is not None)
        return await self._log_desk.logs(
            asker, name, task, after, READ.seconds(details, "wait_s", WAIT_MAX_S, 0.0)
        )

    async def _ended_job(self, asker: Asker, name: str, *, is_live: bool = False) -> JobRow:
        """Return a job from the books; BadQuestion if it is none of the asker's."""
        row: JobRow | None = await self._site.read(self._site.store.jobs.get, name)
        if row is None and not is_live:
            self._check_accepted(asker, name)
        if is_live or row is None or not asker.may_see(row.user, row.project):
            raise no_job(asker, name)
        return row

    async def _refused_job(self, asker: Asker, name: str) -> dict[str, Any] | None:
        """Return the view of a refused job that an asker may see; the books have none of its id."""
        refused = self._search.refused(asker, name)
        if refused is None or name in self._site.broker.jobs:
            return None
        row = await self._site.read(self._site.store.jobs.get, name)
        return refused if row is None else None

    async def _forget(self, asker: Asker, details: dict[str, Any]) -> Any:
        """Drop the results of an ended job of this asker; its row and its cost stay."""
        name = await self._id_of(asker, details)
        job = self._site.broker.jobs.get(name)
        if job is not None and asker.owns(job.spec.user, job.spec.project):
            raise BadQuestion(work_views.why_not_forgotten(job))
        row = await self._site.read(self._site.store.jobs.get, name) if job is None else None
        if row is None or not asker.owns(row.user, row.project):
            reason = f"no job {name!r} of yours found here: {SEE_JOBS}"
            raise BadQuestion(reason, Reason.JOB_NOT_FOUND)
        if not row.forgotten:  # else nothing is left to write
            await self._site.forget([name])
        return {"job": name, "forgotten": True}

    def _workers(self, asker: Asker, details: dict[str, Any]) -> Any:
        site, peers = self._site, self._site.listener.peers
        wanted = WorkerFilter(
            **{key: READ.text(details, key, least=0) for key in ("pool", "host", "state", "after")},
            limit=READ.whole(details, "limit", 0, WORKERS_MAX, 0),
        )
        if wanted.state not in ("", *worker_views.STATES):
            either = " or ".join(worker_views.STATES)
            raise BadQuestion(f"state {wanted.state!r:.40}: must be {either}")
        here = (each for handle, each in site.broker.workers.items() if handle in peers)
        return [
            worker_views.worker_view(
                worker,
                site.uptime_s(peers[worker.handle]),
                [self._slot_view(asker, each) for each in site.pulses.get(worker.handle, [])],
                lambda job: (asker.sees_all and asker.projects is None) or _sees(asker, job),
            )
            for worker in wanted.page(here)
        ]

    def _slot_view(self, asker: Asker, slot: dict[str, Any]) -> dict[str, Any]:
        """Show the activity of a slot; its job only to askers that see that job."""
        name = slot.get("job")
        job = self._site.broker.jobs.get(name) if isinstance(name, str) else None
        is_shown = asker.sees_all and asker.projects is None
        if not name or is_shown:
            return slot
        if job is not None and _sees(asker, job):
            return slot
        return slot | {"job": "", "task": None}

    async def _reload(self, asker: Asker, details: dict[str, Any]) -> Any:
        """Read the configuration file again and apply it; with `dry_run` only list the changes."""
        is_dry = details.get("dry_run", False)
        if not isinstance(is_dry, bool):
            raise BadQuestion("dry_run must be true or false")
        return await self.reload_from_file(asker.user, is_dry=is_dry)

    async def reload_from_file(self, author: str, *, is_dry: bool) -> dict[str, Any]:
        """Read the configuration file again and apply it, or only list the changes.

        Raises BadQuestion for a file with a mistake; nothing is changed then.
        """
        try:
            found = await self._keeper.reload(author, is_dry=is_dry)
        except NOT_POSSIBLE as error:
            raise BadQuestion(f"{error}; nothing was changed") from None
        known = await self._known_users(found.change.config)
        unknown = can.unknown_users(found.change.config.entitlements, known)
        warnings = [*found.warnings, *unknown]
        return rules_desk.told(found, is_dry=is_dry) | {"warnings": warnings}

    async def _ruled(self, verb: Any, asker: Asker, details: dict[str, Any]) -> Any:
        try:
            return await verb(self._keeper, asker, details)
        except NOT_POSSIBLE as error:
            raise BadQuestion(f"{error}; nothing was changed") from None

    async def _can(self, asker: Asker, details: dict[str, Any]) -> Any:
        """Say what a user may do here, by which rule of which file, and the current usage.

        Without a user, a group and a site the asker is meant: see `right_to`.
        """
        is_own = right_to("can", details).rows is RowScope.OWN
        if is_own:
            details = {**details, "user": asker.user}
        site = self._site
        entitling = site.broker.entitling
        utc_s = site.runtime.utc_s()
        try:
            question = can.read_question(details, utc_s)
            trust = await site.runtime.read(can.load_trust, site.config)
            is_now = details.get("at_s") is None
            usage = can.Usage(entitling.slots_used, entitling.queued) if is_now else None
            uncovered = asker.uncovered(question.project) if is_own else None
            return can.answer(site.config, trust, question, usage, uncovered)
        except GridError as error:
            raise BadQuestion(str(error)) from None

    async def _known_users(self, config: SiteConfig) -> frozenset[str]:
        """The users known to this site, if rules name any."""
        if not any(config.entitlements.users):
            return frozenset()
        ran = await self._site.read(self._site.store.usage.totals, (Dimension.USER,))
        here = (peer.user for peer in self._site.listener.peers.values())
        return frozenset((*config.groups, *here, *(str(each.key[0]) for each in ran)))

    def _sites(self, _asker: Asker, _details: dict[str, Any]) -> Any:
        return federation_desk.sites(self._site)

    def _pools(self, _asker: Asker, _details: dict[str, Any]) -> Any:
        return federation_desk.pools(self._site)

    async def _deals(self, _asker: Asker, _details: dict[str, Any]) -> Any:
        return await federation_desk.deals(self._site)

    async def _explain_past(self, asker: Asker, name: str) -> Any:
        """Explain an ended job from the books; BadQuestion if the asker sees none of this name."""
        site = self._site
        refused = await self._refused_job(asker, name)
        if refused is not None:
            return explain_refused(name, job_choices.refused(refused))
        row = await self._ended_job(asker, name, is_live=name in site.broker.jobs)
        places = await site.read(site.store.usage.places_of, name)
        contracts = await site.read(site.store.contracts.of_job, "buy", name)
        terms = stored_terms(row.spec)
        group, more = terms.get("group", ""), frozenset(terms["more_groups"])
        whose = Owner(row.user, group, row.project, more_groups=more)
        about = float(terms.get("priority", 0.0)), terms["wishes"].data
        shown = work_views.stored_job(row)
        counts = {key: shown[key] for key in ("done", "failed", "cancelled", "first_error")}
        job = PastJob(name, shown["state"], shown["reason"], whose, *about, **counts)
        versions = {each.rules for each in places}
        configs = await site.runtime.read(
            lambda: {each: self._keeper.config_of(each) for each in versions}
        )
        found = explain_past(job, places, contracts, configs)
        found["rules"] = self._keeper.beginnings(sorted(versions - {0}))
        return found

    async def _explain(self, asker: Asker, details: dict[str, Any]) -> Any:
        name = details.get("job")
        if isinstance(name, str):
            name = await self._id_of(asker, details)
            details = {**details, "job": name}
        if not name:
            return await self._in_turn(self._explain_present, asker, details)
        job = self._site.broker.jobs.get(name) if isinstance(name, str) else None
        if job is None or not _may_see(asker, job):
            return await self._explain_past(asker, str(name))
        found = await self._in_turn(self._explain_present, asker, details)
        # It may have ended while this question waited for its turn.
        return found if found is not None else await self._explain_past(asker, str(name))

    def _explain_present(
        self, asker: Asker, details: dict[str, Any]
    ) -> Generator[None, None, dict[str, Any] | None]:
        """Explain an unfinished or a hypothetical job, in parts; None: it is unfinished no more."""
        found = yield from federation_desk.explain(self._site, details, asker)
        if found is None or "job" not in found:
            return found
        yield
        job = self._site.broker.jobs.get(found["job"])
        if job is None:
            return None
        return found | self._waits(job, self._site.runtime.utc_s())

    def _shares(self, asker: Asker, _details: dict[str, Any]) -> Any:
        broker = self._site.broker
        if broker.shares is None:
            return {
                "shares": [],
                "note": "fair share is off: the configuration has no [fair_share]",
            }
        utc_s = self._site.runtime.utc_s()
        return work_views.shares(broker, broker.shares, utc_s, self._is_shown_to(asker))

    def _is_shown_to(self, asker: Asker) -> Callable[[Party], bool]:
        """A test whether a rule about a party is shown to an asker."""
        whose = owner_of(self._site.config.groups, asker.user)
        return lambda party: asker.concerns(party, whose)

    async def _scale(self, _asker: Asker, _details: dict[str, Any]) -> Any:
        """The state of the pools whose workers are started by grids."""
        return {"pools": [controller.view() for controller in self._site.controllers]}

    async def _probe_pool(self, _asker: Asker, details: dict[str, Any]) -> Any:
        """Check a pool's grid, and start a pilot that carries a tag of its own."""
        name = details.get("pool", "")
        for pool in self._site.config.pools:
            if pool.name == name and pool.is_delegated:
                return await probe_engine(self._site.config, pool)
        found = [
            controller for controller in self._site.controllers if controller.pool.name == name
        ]
        if not found:
            grown = sorted(each.pool.name for each in self._site.controllers)
            meant = suggest(str(name), grown)
            raise BadQuestion(
                f"pool {name!r:.60}{meant} has no workers that a grid starts; pools that have: "
                f"{', '.join(grown) or 'none'}"
            )
        try:
            tags = check_tags({details.get("tag", ""): True})
            wait_s = float(number("wait_s", details.get("wait_s", PROBE_S), 0.0, PROBE_MAX_S))
        except (ValueError, SettingError) as error:
            raise BadQuestion(str(error)) from None
        return await found[0].probe(tags, wait_s)

    async def _reserve(self, asker: Asker, details: dict[str, Any]) -> Any:
        try:
            return await reservation_desk.reserve(self._site, asker, details)
        except CantReserve as error:
            raise BadQuestion(str(error)) from None

    async def _reservations(self, asker: Asker, details: dict[str, Any]) -> Any:
        return await reservation_desk.reservations(self._site, asker, details)

    async def _unreserve(self, asker: Asker, details: dict[str, Any]) -> Any:
        try:
            return await reservation_desk.unreserve(self._site, asker, details)
        except CantReserve as error:
            raise BadQuestion(str(error)) from None

    async def _alerts(self, _asker: Asker, _details: dict[str, Any]) -> Any:
        return await self._site.watch.standing()

    async def _test_alert(self, _asker: Asker, details: dict[str, Any]) -> Any:
        try:
            return await self._site.watch.test(READ.text(details, "name"))
        except NoSuchAlert as error:
            raise BadQuestion(str(error)) from None

    async def _budgets(self, asker: Asker, _details: dict[str, Any]) -> Any:
        return budgets_desk.budgets(self._site, self._is_shown_to(asker))

    async def _write_off(self, _asker: Asker, details: dict[str, Any]) -> Any:
        try:
            return await budgets_desk.write_off(self._site, details)
        except GridError as error:
            raise BadQuestion(str(error)) from None

    async def _consequences(self, _asker: Asker, details: dict[str, Any]) -> Any:
        try:
            return await consequences.consequences(self._site, details)
        except GridError as error:
            raise BadQuestion(str(error)) from None

    async def _report(self, asker: Asker, details: dict[str, Any]) -> Any:
        try:
            return await report_desk.report(self._site, details, asker)
        except ValueError as error:
            raise BadQuestion(str(error)) from None

    async def _page(self, _asker: Asker, details: dict[str, Any]) -> Any:
        """The facts of a page over [start_s, end_s)."""
        start_at_s, end_at_s = details.get("start_s"), details.get("end_s")
        if not all(type(at) in (int, float, type(None)) for at in (start_at_s, end_at_s)):
            raise BadQuestion("start_s and end_s must be seconds since 1970, UTC")
        site, present = self._site, report_desk.present(self._site)
        try:
            facts: PageFacts = await site.read(
                gather, site.store, site.config.name, present, start_at_s, end_at_s
            )
        except ValueError as error:
            raise BadQuestion(str(error)) from None
        return to_plain(facts)


def _bounded(kept: list[tuple[int, int, bytes]]) -> tuple[list[list[Any]], list[list[int]]]:
    """Outcomes as sent, [first, values, failures, prints, sites], and the streams of the prints.

    They are some megabytes at most.
    """
    outcomes: list[list[Any]] = []
    streams: list[list[int]] = []
    size = 0
    for first, _count, body in kept:
        size += len(body)
        if outcomes and size > 8 << 20:
            break
        values, failures, prints, *more = unpack(body, STORED_BYTES_MAX)
        outcomes.append([first, values, failures, prints, more[0] if more else []])
        streams.append(more[1] if len(more) > 1 else [])
    return outcomes, streams


def _check_home(peer: PeerSession, verb: str) -> None:
    """Refuse a peer that did not connect to our own socket."""
    if not peer.is_local:
        raise BadQuestion(
            f"{verb} is only for the gateway's own host, through its ipc:// address "
            "(--gateway ipc://PATH); if it has none, add one to listen in [site], as in "
            '"ipc:///run/gridfed/gateway.sock"'
        )


def _sees(asker: Asker, job: Job) -> bool:
    """Whether a job appears in the lists of an asker."""
    return asker.sees(job.whose.user, job.whose.project, job.whose.site)


def _may_see(asker: Asker, job: Job) -> bool:
    """Whether an asker may see a job that it names."""
    return asker.may_see(job.whose.user, job.whose.project, job.whose.site)


def _check_known(ask: Ask) -> None:
    """Refuse unknown details: ignoring a misspelt filter would answer for all users."""
    takes = TAKES.get(ask.verb, ask.details.keys())
    for unknown in sorted(ask.details.keys() - takes):
        known = ", ".join(sorted(takes)) or "none"
        raise BadQuestion(f"{ask.verb} has no detail {unknown[:60]!r}; its details: {known}")
