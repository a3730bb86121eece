"""The jobs that were refused, for a while, so that their users can look up the reasons. Pure.

A refused job is in no books: a client that submits in a loop would fill them. It is remembered in
memory, until the gateway restarts, within bounds for each user and for all together.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.model.intake import JOB_ID_CHARS_MAX

OF_USER_MAX: Final = 100
OF_ALL_MAX: Final = 5_000
AGE_S_MAX: Final = 7 * 86_400.0
TEXT_CHARS_MAX: Final = 2_000  # of a reason
NAME_CHARS_MAX: Final = 200  # of each other text


@dataclass(frozen=True, slots=True)
class RefusedJob:
    """A job that was refused when its client opened it.

    Attributes:
        tasks: the number of calls, if its client said it.
        code: as in federation.reasons.
        reason: in one sentence or more.
    """

    job: str
    name: str
    user: str
    project: str
    detached: bool
    tasks: int | None
    code: str
    reason: str
    refused_at_s: UtcS


class Refusals:
    """The last refused jobs: OF_USER_MAX of a user, OF_ALL_MAX in all, none older than AGE_S_MAX.

    An id that is known for one user is not taken over by another user's refused job.
    """

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, RefusedJob] = OrderedDict()  # the earliest first
        self._of_user: dict[str, OrderedDict[str, None]] = {}

    def note(self, refused: RefusedJob) -> None:
        """Remember a refused job; one that was refused before counts as refused now."""
        before = self._by_id.get(refused.job)
        if before is not None and before.user != refused.user:
            return
        if not refused.job or len(refused.job) > JOB_ID_CHARS_MAX or not refused.job.isprintable():
            return  # no job can have such an id
        self._drop(refused.job)
        self._by_id[refused.job] = replace(
            refused,
            name=_printable(refused.name),
            project=_printable(refused.project),
            reason=refused.reason[:TEXT_CHARS_MAX],
        )
        ids = self._of_user.setdefault(refused.user, OrderedDict())
        ids[refused.job] = None
        if len(ids) > OF_USER_MAX:
            self._drop(next(iter(ids)))
        if len(self._by_id) > OF_ALL_MAX:
            self._drop(next(iter(self._by_id)))

    def accepted(self, job: str, user: str) -> None:
        """Forget the refusal of a job that was accepted at another attempt."""
        before = self._by_id.get(job)
        if before is not None and before.user == user:
            self._drop(job)

    def get(self, job: str, utc_s: UtcS) -> RefusedJob | None:
        """Return a refused job, if it is remembered at this moment."""
        self._age(utc_s)
        return self._by_id.get(job)

    def latest(self, utc_s: UtcS) -> Iterator[RefusedJob]:
        """Yield the refused jobs that are remembered at this moment, the last refused first."""
        self._age(utc_s)
        return reversed(self._by_id.values())

    def _age(self, utc_s: UtcS) -> None:
        while self._by_id:
            first = next(iter(self._by_id.values()))
            if utc_s - first.refused_at_s <= AGE_S_MAX:
                return
            self._drop(first.job)

    def _drop(self, job: str) -> None:
        refused = self._by_id.pop(job, None)
        if refused is None:
            return
        ids = self._of_user[refused.user]
        del ids[job]
        if not ids:
            del self._of_user[refused.user]


def _printable(text: str) -> str:
    """Return a client's text, which nobody has checked, cut and without control characters."""
    return "".join(each for each in text[:NAME_CHARS_MAX] if each.isprintable())
