"""Answers questions about the federation: sites, pools, deals, explain."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, Final

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.messages import MESSAGES, OpenJob
from federation.users import check_user
from federation.wishes import USUAL_PROJECT
from gateway.api.context import BadQuestion, SiteContext
from gateway.api.views import federation_views, work_views
from gateway.api.views.budget_views import of_job
from gateway.api.views.job_limits import limits_of
from gateway.api.views.pool_loads import note_waits, with_causes
from gateway.config.groups import owner_of
from gateway.config.site import python_minor
from gateway.contracts.planning.limits import is_too_late
from gateway.scheduler.model.intake import BadJob, job_event
from gateway.scheduler.model.terms import JobSpec
from gateway.trust.rights import Asker
from policies.costs.alerts import PoolPrice

TASKS_MAX: Final = 1 << 40
OPENING_BYTES_MAX: Final = 1 << 20
# The terms that a question about a hypothetical job may set, with their defaults.
_TERMS: Final[dict[str, Any]] = {
    "name": "dry run",
    "function": bytes(32),
    "project": USUAL_PROJECT,
    "priority": 0.0,
    "tags": {},
    "timeout_s": None,
    "max_cost_nanos": None,
    "currency": "",
    "python": python_minor(),
    "wishes": {},
    "preemptible": False,
}


def sites(site: SiteContext) -> Any:
    """Every site of the federation, as we see it."""
    expelled_by = site.peers.registry.expelled_by if site.peers is not None else {}
    return federation_views.sites(
        *(site.exchange.market, site.exchange.show(_utc_s(site)), states_of(site), _utc_s(site)),
        expelled_by,
    )


def pools(site: SiteContext) -> Any:
    """Every pool of the federation, as advertised."""
    return federation_views.pools(
        site.exchange.market, site.exchange.show(_utc_s(site)), states_of(site), _utc_s(site)
    )


def prices(site: SiteContext) -> list[PoolPrice]:
    """The current price of every pool of the federation, our own included."""
    own = site.exchange.show(_utc_s(site))
    others = (each for each in site.exchange.market.adverts if each.site != own.site)
    return [
        PoolPrice(advert.site, pool.pool, pool.price_nanos, pool.currency)
        for advert in (own, *others)
        for pool in advert.pools
    ]


async def deals(site: SiteContext) -> Any:
    """Our purchases and sales."""
    totals = await site.runtime.read(site.store.contracts.totals)
    disputes = await site.runtime.read(site.store.settlement.disputes)
    return federation_views.deals(totals, disputes)


def explain(
    site: SiteContext, details: Mapping[str, Any], asker: Asker
) -> Generator[None, None, dict[str, Any] | None]:
    """Explain where a job goes, or where one would go, in parts; BadQuestion.

    With thousands of jobs and workers it takes tens of milliseconds: it yields where the loop may
    do other things meanwhile. None: the asker sees no unfinished job of this name.
    """
    utc_s = _utc_s(site)
    name = details.get("job", "")
    job = site.broker.jobs.get(name) if isinstance(name, str) else None
    if job is not None and not asker.may_see(job.whose.user, job.whose.project, job.whose.site):
        job = None
    if name:
        if job is None:
            return None
        site.exchange.refresh(utc_s, without=job, is_question=True)
        approved = site.peers.registry.approved if site.peers is not None else None
        explaining = federation_views.explain_job(job, site.exchange, site.broker, utc_s, approved)
        found = yield from explaining
        if job.id not in site.broker.jobs:
            return None
        found["residency"] = _residency(site, job.spec)
        found["data"] = _data(site, job.id, job.spec)
        found["budgets"] = of_job(job, site.broker.spending.why_waiting(job))
        shares = site.broker.shares
        if shares is not None and job.waiting:
            whose = owner_of(site.config.groups, asker.user)
            found["fair_share"] = work_views.share_of(
                job, shares, utc_s, lambda party: asker.concerns(party, whose)
            )
        places = job.places or {}
        found["growing"] = [each.view() for each in site.controllers if places.get(each.pool.name)]
        return found
    return (yield from _dry_run(site, details, _user(asker, details), utc_s))


def _user(asker: Asker, details: Mapping[str, Any]) -> str:
    """Return the user for whom a question about no job is answered. Raises BadQuestion.

    Others than the asker are for those who may see their rows: the answer has their rules.
    """
    user = details.get("user", "")
    if user in ("", asker.user):
        return asker.user
    if not (asker.is_operator or asker.may_see_all) or asker.projects is not None:
        raise BadQuestion(
            "to explain for another user takes the gateway's own socket, or a token of the scope "
            "admin or audit that names no projects"
        )
    try:
        return check_user(user if type(user) is str else "")
    except ValueError as error:
        raise BadQuestion(str(error)) from None


def _dry_run(
    site: SiteContext, details: Mapping[str, Any], user: str, utc_s: UtcS
) -> Generator[None, None, dict[str, Any]]:
    tasks, task_s = details.get("tasks", 1), details.get("task_s")
    if type(tasks) is not int or not 1 <= tasks <= TASKS_MAX:
        raise BadQuestion("tasks must be a whole number of at least 1")
    if task_s is not None and (type(task_s) not in (int, float) or not 0 < task_s < 1e9):
        raise BadQuestion("task_s must be above zero")
    given = {key: details[key] for key in _TERMS if details.get(key) not in (None, "")}
    terms = {**_TERMS, **given}
    try:
        opening = OpenJob(job="dry", detached=False, retries=0, prints=False, again=False, **terms)
        # Decoded like a real message, so that values of a wrong type are refused by name.
        groups = site.config.groups
        spec = job_event(_read(opening), 0, user or "nobody", groups).spec
    except (BadJob, ProtocolError, TypeError, ValueError) as error:
        raise BadQuestion(f"invalid job description: {error}") from None
    # Windows and claims as they are for them.
    site.exchange.refresh(utc_s, whose=spec.whose, is_question=True)
    spending = site.broker.spending
    spec = spending.denominated(spec)
    decision = site.exchange.deciding.decide(spec, tasks, utc_s, task_s)
    own, broker = site.config.name, site.broker
    found = with_causes(decision, spec, broker, own, utc_s).to_plain()
    yield
    note_waits(found, broker, own)
    yield
    found["user"] = spec.user
    found["residency"] = _residency(site, spec)
    found |= limits_of(spec, decision, site.exchange)
    given_s = spec.task_s if task_s is None else float(task_s)
    yield
    # Meanwhile the market may have been shown for another owner's work.
    site.exchange.refresh(_utc_s(site), whose=spec.whose, is_question=True)
    stated = replace(spec, task_s=given_s)
    unmet = site.exchange.deciding.explain_refusal(stated, tasks, utc_s)
    found["refused_by_limits"] = unmet.text if unmet is not None else ""
    found["begins_late"] = given_s is None and is_too_late(spec, decision)
    refusal = spending.refusal(spec)
    found["refused_for_money"] = refusal[1] if refusal is not None else ""
    barred = site.broker.entitling.objection(spec, site.broker.peers.may_run)
    nowhere = site.exchange.reach.why_nowhere(spec)
    found["refused_by_rule"] = barred[1] if barred is not None else nowhere
    return found


def _data(site: SiteContext, job: str, spec: JobSpec) -> dict[str, Any]:
    """Return what another site would fetch for a job's calls, for how much, and its label."""
    held = site.objects.catalogue.of_job(job) if site.objects is not None else []
    used = [each for each in held if job in each.jobs]
    label = spec.wishes.label
    return {
        "objects": len(used),
        "bytes": sum(each.size for each in used),
        "cost_nanos": 0,  # what is moved has no price yet
        "label": list(label.words),
        "label_text": label.title if label else "",
    }


def _residency(site: SiteContext, spec: JobSpec) -> list[dict[str, Any]]:
    """Return the rules about places that bind a job."""
    rules = site.broker.entitling.residence(spec).rules if not spec.path else ()
    return [{"line": each.line, "change": each.change, "rule": str(each)} for each in rules]


def _read(opening: OpenJob) -> OpenJob:
    found = MESSAGES.decode(MESSAGES.encode(opening), OPENING_BYTES_MAX)
    assert isinstance(found, OpenJob)
    return found


def states_of(site: SiteContext) -> dict[str, str]:
    """What gossip says of each site, as a word; empty for a single site."""
    gossip = site.gossip
    if gossip is None:
        return {}
    return {each: gossip.word(each) for each in gossip.known}


def _utc_s(site: SiteContext) -> UtcS:
    return site.runtime.utc_s()
