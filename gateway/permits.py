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
        self._kept: dict[str, tuple[float, Set[str]]] = {}
        self._readable: tuple[float, Set[str]] = -inf, frozenset()

    def runners(self, project: str) -> Set[str]:
        """See Permits: sites, and single pools of sites as "site/pool"."""
        now_s = self._now_s()
        kept = self._kept.get(project)
        if kept is not None and now_s - kept[0] < KEPT_S:
            return kept[1]
        if len(self._kept) >= PROJECTS_MAX:
            self._kept.clear()
        found = frozenset(
            name
            for site in self._registry.approved
            for name in self._names(site)
            if self._may_run(site, name.partition("/")[2] or ANY, project)
        )
        self._kept[project] = now_s, found
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

    def _may_run(self, site: str, pool: str, project: str) -> bool:
        request = Request(Verb.RUN, site, pool, project, DATA_CLASS, site, 1, 0, "")
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
