"""What a broker asks about other sites. Pure.

The broker decides about its own site; whoever knows the others answers these. In no federation
nothing is elsewhere.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from gateway.events import JobSpec
from gateway.jobs import Job
from policies.offers import Unmet
from policies.tariffs import Tariff


@dataclass(slots=True)
class Elsewhere:
    """The questions, with the answers of a site that is alone.

    Attributes:
        may_run: whether another site may be able to run what none of our own pools can.
        may_be_made: whether a known one offers what a job is to run in that workers here could not
            make.
        why_nowhere: why none of the sites that a job's user allows may ever run it; empty when one
            may.
        unmet: why a job of so many tasks can't keep its limits, as far as is known; None when it
            can. Asked with its name, what it is, how many tasks, and the time (UTC).
        currencies: those that other sites' pools charge in, as far as they are known.
        tariffs: what other sites charge that are known, and may be able to run a job. Asked with
            what it is, and the time (UTC).
    """

    may_run: Callable[[JobSpec], bool] = lambda _: False
    may_be_made: Callable[[Job], bool] = lambda _: False
    why_nowhere: Callable[[JobSpec], str] = lambda _: ""
    unmet: Callable[[str, JobSpec, int, float], Unmet | None] = lambda *_: None
    currencies: Callable[[], Set[str]] = frozenset
    tariffs: Callable[[JobSpec, float], Iterable[Tariff]] = lambda *_: ()
