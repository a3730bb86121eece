"""Why a job waits, in one sentence for a progress bar; made from `views.why_waiting`. Pure."""

from collections.abc import Sequence
from typing import Any

from federation.clocks import UtcS
from federation.reasons import Reason
from federation.words import count, duration_text
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.matching import BOUGHT
from gateway.scheduler.model.present_slots import slots_once
from gateway.scheduler.tasks.end_texts import sources_text

NO_TAG = "has no tag "  # how a worker's refusal for a missing tag begins (policies.placement)
# The verbs with which refusals of a worker begin, for several workers.
_PLURALS = {
    "is": "are",
    "has": "have",
    "runs": "run",
    "gets": "get",
    "stands": "stand",
    "starts": "start",
    "charges": "charge",
    "gives": "give",
}
_SURE = {Reason.BUDGET_EXHAUSTED, Reason.COST_LIMIT}  # reasons that no other worker removes


def wait_reason(
    broker: Broker, job: Job, reasons: Sequence[dict[str, Any]], utc_s: UtcS, *, is_nested: bool
) -> str:
    """Return why a job's tasks wait, in one sentence; empty if none of them waits.

    Args:
        reasons: as from `views.why_waiting`.
        is_nested: the client of the job is itself a task, which keeps its slot while it waits.
    """
    if not job.waiting or not reasons:
        return ""
    sure = [each for each in reasons if not each["workers"] or each["reason"] in _SURE]
    busy = [each for each in reasons if each["reason"] == Reason.BUSY]
    if sure:
        text = str(sure[0]["text"])
        if sure[0]["reason"] == Reason.BUDGET_EXHAUSTED:
            text = next(iter(broker.spending.used_up(job)), text)
    elif busy:
        text = _busy(broker, job, utc_s)
        if is_nested:
            text += (
                ". Its client is a task, which keeps a slot while it waits: if such tasks have all "
                "slots, none proceeds until one ends at its timeout_s"
            )
    elif all(each["reason"] == Reason.TAG_MISSING for each in reasons):
        tags = sorted({str(each["text"]).removeprefix(NO_TAG) for each in reasons})
        text = f"no worker has {' or '.join(tags)}"
    elif all(each["reason"] == Reason.ELSEWHERE for each in reasons):
        text = _elsewhere(broker, job, utc_s)
    else:
        # Contracts of other jobs are no answer where there is another.
        own = [each for each in reasons if each["text"] != BOUGHT]
        text = "; ".join(str(each["sentence"]) for each in own)
    return text


def inputs_reason(broker: Broker, job: Job) -> str:
    """Return the reason why a job waits whose tasks all need results of others."""
    names = broker.graphs.inputs_of(job)
    of = sources_text(job, (each for each in map(broker.jobs.get, names) if each is not None))
    return f"{count(job.blocked, 'task')} of it wait{'s' * (job.blocked == 1)} for results of {of}"


def of_workers(number: int, text: str, everyone: int = 0, noun: str = "worker") -> str:
    """Say of workers what a reason says of one: "1 worker is draining", "all 2 workers are …".

    Args:
        number: of workers that refuse for the reason; 0: it is the job's, and a sentence by itself.
        text: what one of them does, from its verb on.
        everyone: how many there are.
        noun: "worker", or "contract" for slots at another site.
    """
    if not number:
        return text
    verb, _, rest = text.partition(" ")
    if number != 1 and verb in _PLURALS:
        text = f"{_PLURALS[verb]} {rest}"
    if number != everyone:
        return f"{count(number, noun)} {text}"
    return f"all {count(number, noun)} {text}" if number > 1 else f"the only {noun} {text}"


def _elsewhere(broker: Broker, job: Job, utc_s: UtcS) -> str:
    """Say that a job waits for the pools of its plan: own ones, or slots at other sites."""
    own = sorted(each for each in broker.tariffs if (job.places or {}).get(each, 0) >= 1)
    if own:
        return _unmanned(broker, own)
    if not broker.peers.may_run(job.spec):
        return "its plan gives no pool of this site a task of it now: `gridfed explain` says why"
    text = "its plan sends it to other sites, and no slot there is bought for it yet"
    bought = [each for each in broker.workers.values() if each.job not in ("", job.id)]
    if not bought:
        return text
    left_s = [
        assignment.task_s - (utc_s - assignment.given_at_s)
        for worker in bought
        for assignment in worker.assignments.values()
    ]
    soonest_s = min((each for each in left_s if each >= 1), default=None)
    pools = ", ".join(sorted({each.offer.pool for each in bought}))
    text += f"; those bought at {pools} serve other jobs"
    return text if soonest_s is None else f"{text}, the first about {duration_text(soonest_s)} more"


def _unmanned(broker: Broker, pools: Sequence[str]) -> str:
    """Say that a job waits for the first workers of own pools."""
    named = " and ".join(pools)
    text = f"its plan sends it to {named}, which {'has' if len(pools) == 1 else 'have'} no worker"
    if set(pools) <= broker.growth.keys():
        return f"{text} yet: workers are started there on demand (`gridfed scale --why`)"
    return f"{text} now: `gridfed status` says what happened"


def _busy(broker: Broker, job: Job, utc_s: UtcS) -> str:
    """Say how many slots that may take the job are busy, and about when the first is free."""
    able = [each for each in broker.workers.values() if broker.refusal(job, each, utc_s) is None]
    left_s = [
        assignment.task_s - (utc_s - begun_s)
        for worker in able
        for assignment in worker.assignments.values()
        for task, begun_s in assignment.begun.items()
        if task in assignment.left
    ]
    soonest_s = min((each for each in left_s if each >= 1), default=None)
    slots = slots_once(able)
    text = f"all {count(slots, 'slot')} are busy" if slots != 1 else "the only slot is busy"
    return text if soonest_s is None else f"{text}, about {duration_text(soonest_s)}"
