"""The hosts and workers that operators drain. Pure.

A drain is a rule, and not a state of a session: it holds for each worker of that host or name that
is here, that comes back, and that comes later, until an operator ends it.
"""

from typing import Final

from gateway.scheduler.model.events import DrainKind, DrainOrdered
from gateway.scheduler.model.jobs import Worker

DRAINS_MAX: Final = 10_000


class StandingDrains:
    """The drains that are in force."""

    def __init__(self) -> None:
        self._drains: set[tuple[DrainKind, str]] = set()

    def __len__(self) -> int:
        return len(self._drains)

    def take(self, event: DrainOrdered) -> None:
        """Begin or end a drain."""
        rule = event.target, event.name
        (self._drains.add if event.on else self._drains.discard)(rule)

    def has(self, target: DrainKind, name: str) -> bool:
        """Whether exactly this drain is in force."""
        return (target, name) in self._drains

    def cover(self, worker: Worker) -> bool:
        """Whether a worker of this site is drained; a contract with another site never is."""
        if not self._drains or worker.job:
            return False
        hosts = host_names(worker.host)
        return (DrainKind.WORKER, worker.name) in self._drains or any(
            (DrainKind.HOST, each) in self._drains for each in hosts
        )


def host_names(host: str) -> tuple[str, ...]:
    """Return the names by which a host can be drained: its own, and that without its domain."""
    own = host.lower().rstrip(".")
    short = own.partition(".")[0]
    return tuple(dict.fromkeys(each for each in (own, short) if each))
