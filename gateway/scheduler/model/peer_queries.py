"""The broker's questions about other sites. Pure.

The broker decides about its own site. At its birth it is given an object that answers these
questions: `gateway.runtime.kernel` puts them to the exchange.
"""

from collections.abc import Iterable, Set
from typing import Protocol

from federation.clocks import UtcS
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobSpec
from policies.placement.offers import Unmet
from policies.tariffs import Tariff


class PeerQueries(Protocol):
    """The questions, with the answers where no other site is known.

    All answers are by what is known now, and may differ the next time.
    """

    def may_run(self, spec: JobSpec) -> bool:
        """Whether another site may be able to run work that none of our own pools can run."""
        return False

    def may_be_made(self, job: Job) -> bool:
        """Whether a known site offers the environment of a job that workers here failed to make."""
        return False

    def why_nowhere(self, spec: JobSpec) -> str:
        """Return why no site that a job's user allows may ever run it; empty when one may."""
        return ""

    def unmet(self, job: str, spec: JobSpec, tasks: int, utc_s: UtcS) -> Unmet | None:
        """Return why a job of so many tasks can't keep its limits; None if, by all that is known,
        it can.
        """
        return None

    def currencies(self) -> Set[str]:
        """Return the known currencies of other sites' pools."""
        return frozenset()

    def tariffs(self, spec: JobSpec, utc_s: UtcS) -> Iterable[Tariff]:
        """Return the tariffs of known other sites that may be able to run a job."""
        return ()


class NoPeers(PeerQueries):
    """A broker by itself: nothing is known of other sites."""
