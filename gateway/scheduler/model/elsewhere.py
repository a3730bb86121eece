"""The broker's questions about other sites. Pure.

The broker decides about its own site; a component that knows the other sites answers these
questions. Without a federation nothing is elsewhere.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from gateway.scheduler.model.events import JobSpec
from gateway.scheduler.model.jobs import Job
from policies.placement.offers import Unmet
from policies.tariffs import Tariff


@dataclass(slots=True)
class Elsewhere:
    """The questions, with the answers of a single site.

    Attributes:
        may_run: whether another site may be able to run work that none of our own pools can run.
        may_be_made: whether a known site offers the environment of a job that workers here failed
            to make.
        why_nowhere: why none of the sites that a job's user allows may ever run it; empty when one
            may.
        unmet: why a job of so many tasks can't keep its limits, as far as is known; None when it
            can. Its arguments: the job's name, its spec, the number of tasks, and the time (UTC).
        currencies: the known currencies of other sites' pools.
        tariffs: the tariffs of known other sites that may be able to run a job. Its arguments: the
            spec, and the time (UTC).
    """

    may_run: Callable[[JobSpec], bool] = lambda _: False
    may_be_made: Callable[[Job], bool] = lambda _: False
    why_nowhere: Callable[[JobSpec], str] = lambda _: ""
    unmet: Callable[[str, JobSpec, int, float], Unmet | None] = lambda *_: None
    currencies: Callable[[], Set[str]] = frozenset
    tariffs: Callable[[JobSpec, float], Iterable[Tariff]] = lambda *_: ()
