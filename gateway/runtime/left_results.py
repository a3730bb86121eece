"""Results that a worker says it has left at the object host: counted only where they are. Pure.

A report names a result by its digest. A worker may invent one, or the object host may have ended
in between: then the task has no result, however its worker puts it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from federation.messages.deals import Deliver
from federation.objects.left import LEFT, read_left
from federation.objects.manifests import digest_text
from gateway.objects.catalogue import ObjectCatalogue
from gateway.scheduler.model.events import Reported
from gateway.scheduler.model.jobs import Job


def proven(
    report: Reported, job: Job, catalogue: ObjectCatalogue | None, site: str
) -> tuple[Reported, dict[int, str]]:
    """Return a report with those results as failures that are not here, and texts about them.

    Its time counts for nothing then: the user would pay for a result that is nowhere.
    """
    failed = {each[0] for each in report.failures if isinstance(each[0], int)}
    if len(failed) < len(report.failures):
        return report, {}  # it is not sound: the broker expels its worker
    objects = catalogue if job.spec.results else None
    lost = unproven(report.values, failed, job.id, job.spec.scope, objects)
    if not lost:
        return report, {}
    values = [b"" if at in lost else value for at, value in enumerate(report.values)]
    added = [[at, "object", f"site {site}: {text}", b""] for at, text in lost.items()]
    failures = sorted([*report.failures, *added], key=itemgetter(0))
    return replace(report, values=values, failures=failures, wall_ns=0, cpu_ns=0), lost


def lost_results(message: Deliver, job: Job | None, catalogue: ObjectCatalogue) -> dict[int, str]:
    """Return the offsets of a delivery's results that are not here, each with a text about it.

    `job` is ours; None: it is over, and the delivery comes too late.
    """
    failed = {each[0] for each in message.failures}
    objects = catalogue if job is not None and job.spec.results else None
    id_, scope = (job.id, job.spec.scope) if job is not None else ("", "")
    return unproven(message.values, failed, id_, scope, objects)


def without_results(
    message: Deliver, lost: Mapping[int, str], why: str, kind: str = "object"
) -> Deliver:
    """Return a delivery with these results as failures, and `why` they did not come.

    Tasks with failures of kind "object" run again; those of kind "result" don't.
    """
    if not lost:
        return message
    values = [b"" if at in lost else value for at, value in enumerate(message.values)]
    added = [[at, kind, f"{text}: {why}", b""] for at, text in lost.items()]
    failures = sorted([*message.failures, *added], key=itemgetter(0))
    return replace(message, values=values, failures=failures)


def unproven(
    values: Sequence[bytes],
    failed: Collection[int],
    job: str,
    scope: str,
    catalogue: ObjectCatalogue | None,
) -> dict[int, str]:
    """Return the offsets of results that are not held for their job, each with a text about it.

    Args:
        values: of one report.
        failed: the offsets of tasks that failed.
        job, scope: the job that they are results of, and its project.
        catalogue: the objects of this site; None: the job takes no objects as results.
    """
    found: dict[int, str] = {}
    claimed: Counter[bytes] = Counter()
    for at, value in enumerate(values):
        if value[:1] != LEFT or at in failed:
            continue
        claim = read_left(value)
        if claim is None:
            found[at] = "its worker reported a result that can't be read"
            continue
        digest, size = claim
        claimed[digest] += 1
        held = None if catalogue is None else catalogue.find(scope, digest)
        if held is None or held.size != size or held.results[job] < claimed[digest]:
            found[at] = f"its result, object {digest_text(digest)} of {size:,} bytes, is not held"
    return found
