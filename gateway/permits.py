"""Whom this site deals with, as its trust book says; for gateway.offering, purchases, exchange."""

from collections.abc import Callable, Set
from math import inf
from typing import Final

from federation.identity import Refusal
from gateway.errands import Allowance, Errand, NotGranted
from gateway.permissions import ANY, Request, Verb
from gateway.registry import Registry
from policies.tariffs import Tariff

KEPT_S: Final = 1.0  # an answer about a project is worked out again after so long
PROJECTS_MAX: Final = 1_000
DATA_CLASS: Final = "internal"  # of all work, as long as users can't say


class Nobody:
    """The permits of a single site, and its notary."""

    def issue(self, _errand: Errand) -> bytes:
        """Never."""
        raise NotGranted(Refusal.UNKNOWN_SITE, "this site is in no federation")

    def narrow(self, _given: Allowance, errand: Errand, _utc_s: float) -> bytes:
        """Never."""
        return self.issue(errand)

    def check(self, _buyer: str, _raw: bytes, _utc_s: float) -> Allowance:
        """Never."""
        raise NotGranted(Refusal.UNKNOWN_SITE, "this site is in no federation")

    def runners(self, _project: str) -> Set[str]:
        """Nobody."""
        return frozenset()

    def barred(self, _project: str) -> Set[str]:
        """Nobody's."""
        return frozenset()

    def reach(self, _target: str, _project: str) -> Set[str]:
        """Nowhere."""
        return frozenset()

    def readable(self) -> Set[str]:
        """Nobody's."""
        return frozenset()

    def may_send(
        self, _site: str, _origin: str, _pool: str, _project: str, _slots: int, _price: Tariff
    ) -> str:
        """Nobody."""
        return "this site is in no federation"


class BookPermits:
    """The permits of a member.

    Args:
        registry: whose book answers.
        now_s: monotonic.
    """

    def __init__(self, registry: Registry, now_s: Callable[[], float]) -> None:
        self._registry = registry
        self._now_s = now_s
        self._kept: dict[str, tuple[float, tuple[Set[str], Set[str]]]] = {}
        self._reach: dict[tuple[str, str], tuple[float, Set[str]]] = {}
        self._readable: tuple[float, Set[str]] = -inf, frozenset()

    def runners(self, project: str) -> Set[str]:
        """See Permits: sites, and single pools of sites as "site/pool"."""
        return self._judged(project)[0]

    def barred(self, project: str) -> Set[str]:
        """See Permits."""
        return self._judged(project)[1]

    def _judged(self, project: str) -> tuple[Set[str], Set[str]]:
        """Sites and pools that rules name: those that may run a project, and pools that may not."""
        now_s = self._now_s()
        kept = self._kept.get(project)
        if kept is not None and now_s - kept[0] < KEPT_S:
            return kept[1]
        if len(self._kept) >= PROJECTS_MAX:
            self._kept.clear()
        names = {name for site in self._registry.approved for name in self._names(site)}
        may = frozenset(name for name in names if self._may_run(name, project))
        found = may, frozenset(name for name in names - may if "/" in name)
        self._kept[project] = now_s, found
        return found

    def reach(self, target: str, project: str) -> Set[str]:
        """See Permits."""
        now_s = self._now_s()
        kept = self._reach.get((target, project))
        if kept is not None and now_s - kept[0] < KEPT_S:
            return kept[1]
        if len(self._reach) >= PROJECTS_MAX:
            self._reach.clear()
        others = self.readable() - {target}
        found = {target, *(each for each in others if self._may_run(target, project, each))}
        self._reach[target, project] = now_s, found
        return found

    def readable(self) -> Set[str]:
        """See Permits."""
        now_s = self._now_s()
        if now_s - self._readable[0] >= KEPT_S:
            book = self._registry.book
            found = {site for site in self._registry.approved if book.accepts_pickles([site])}
            self._readable = now_s, frozenset(found)
        return self._readable[1]

    def _names(self, site: str) -> set[str]:
        """A site, and the pools of it that rules name."""
        rules = self._registry.book.rules_of(site)
        pools = {pool for rule in rules for pool in rule.pools if rule.verb is Verb.RUN}
        return {site} | {f"{site}/{pool}" for pool in pools - {ANY}}

    def _may_run(self, name: str, project: str, other: str = "") -> bool:
        site, _, pool = name.partition("/")
        request = Request(Verb.RUN, site, pool or ANY, project, DATA_CLASS, other or site, 1, 0, "")
        return self._registry.book.decide(request).is_yes

    def may_send(
        self, site: str, origin: str, pool: str, project: str, slots: int, price: Tariff
    ) -> str:
        """See Permits. What an hour of all those slots costs counts as open."""
        request = Request(
            Verb.SEND,
            site,
            pool,
            project,
            DATA_CLASS,
            origin,
            slots,
            slots * price.price_nanos,
            price.currency,
        )
        answer = self._registry.book.decide(request)
        return "" if answer.is_yes else answer.why.value
