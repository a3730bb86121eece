"""The sites that this site deals with, by its trust book; for offering, purchases and exchange."""

from collections.abc import Callable, Hashable, Set
from typing import Final, Generic, TypeVar

from federation.clocks import MonoS, UtcS
from federation.signed.identity import TrustRefusal
from gateway.ledger.accounting.older_books import OlderBooks
from gateway.scheduler.model.job_grants import GrantTerms, JobGrant, NotGranted
from gateway.trust.book import TrustBook
from gateway.trust.identity_store import Registry
from gateway.trust.permissions import ANY, PermissionRequest, Verb, explain
from policies.tariffs import Tariff

KEPT_S: Final = 1.0  # how long an answer is cached
KEPT_MAX: Final = 1_000
DATA_CLASS: Final = "internal"  # of all work, while users can't choose one

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CachedAnswers(Generic[K, V]):
    """Cached answers: they hold until the trust book changes, and for a second at most.

    Args:
        find: computes an answer.
        mono_s: now.
        version: returns the version of the trust book; answers of another one are dropped.
    """

    def __init__(
        self, find: Callable[[K], V], mono_s: Callable[[], MonoS], version: Callable[[], object]
    ) -> None:
        self._find = find
        self._mono_s = mono_s
        self._version = version
        self._of_version: object = None
        self._answers: dict[K, tuple[MonoS, V]] = {}  # with the time of each

    def __call__(self, key: K) -> V:
        """Return the answer for a key."""
        mono_s, version = self._mono_s(), self._version()
        if version != self._of_version:
            self._answers.clear()
            self._of_version = version
        kept = self._answers.get(key)
        if kept is not None and mono_s - kept[0] < KEPT_S:
            return kept[1]
        if len(self._answers) >= KEPT_MAX:
            self._answers.clear()
        found = self._find(key)
        self._answers[key] = mono_s, found
        return found


class Nobody:
    """The permits of a single site, and its grant signer."""

    def issue(self, _grant_terms: GrantTerms) -> bytes:
        """Refuse: there is no federation."""
        raise NotGranted(TrustRefusal.UNKNOWN_SITE, "this site is in no federation")

    def narrow(self, _given: JobGrant, grant_terms: GrantTerms, _utc_s: UtcS) -> bytes:
        """Refuse: there is no federation."""
        return self.issue(grant_terms)

    def check(self, _buyer: str, _raw: bytes, _utc_s: UtcS) -> JobGrant:
        """Refuse: there is no federation."""
        raise NotGranted(TrustRefusal.UNKNOWN_SITE, "this site is in no federation")

    def runners(self, _project: str) -> Set[str]:
        """Return no sites."""
        return frozenset()

    def barred(self, _project: str) -> Set[str]:
        """Return no pools."""
        return frozenset()

    def reach(self, _target: str, _project: str) -> Set[str]:
        """Return no sites."""
        return frozenset()

    def readable(self) -> Set[str]:
        """Return no sites."""
        return frozenset()

    def may_send(
        self, _site: str, _origin: str, _pool: str, _project: str, _slots: int, _price: Tariff
    ) -> str:
        """Refuse: there is no federation."""
        return "this site is in no federation"


class BookPermits:
    """The permits of a member.

    Args:
        registry: the registry whose trust book decides.
        mono_s: now.
        older: the sites without new contracts, because our books are an older copy.
    """

    def __init__(
        self,
        registry: Registry,
        mono_s: Callable[[], MonoS],
        older: OlderBooks | None = None,
    ) -> None:
        self._registry = registry
        self._older = older or OlderBooks()
        self._judged = CachedAnswers(self._judge, mono_s, self._version)
        self._reach = CachedAnswers(self._find_reach, mono_s, self._version)
        self._readable = CachedAnswers(self._find_readable, mono_s, self._version)

    def _version(self) -> tuple[TrustBook, int]:
        book = self._registry.book  # another one once this site moves to another federation
        return book, book.changes

    def runners(self, project: str) -> Set[str]:
        """See Permits: sites, and single pools of sites as "site/pool"."""
        return self._judged(project)[0]

    def barred(self, project: str) -> Set[str]:
        """See Permits."""
        return self._judged(project)[1]

    def _judge(self, project: str) -> tuple[Set[str], Set[str]]:
        """Return the named sites and pools that may run a project, and the pools that may not."""
        sites = [each for each in self._registry.approved if not self._older.why_not(each)]
        names = {name for site in sites for name in self._names(site)}
        may = frozenset(name for name in names if self._may_run(name, project))
        return may, frozenset(name for name in names - may if "/" in name)

    def reach(self, target: str, project: str) -> Set[str]:
        """See Permits."""
        return self._reach((target, project))

    def _find_reach(self, key: tuple[str, str]) -> Set[str]:
        target, project = key
        others = self.readable() - {target}
        return {target, *(each for each in others if self._may_run(target, project, each))}

    def readable(self) -> Set[str]:
        """See Permits."""
        return self._readable(None)

    def _find_readable(self, _key: None) -> Set[str]:
        book = self._registry.book
        return frozenset(site for site in self._registry.approved if book.accepts_pickles([site]))

    def _names(self, site: str) -> set[str]:
        """Return a site's name, and its pools that rules name."""
        rules = self._registry.book.rules_of(site)
        pools = {pool for rule in rules for pool in rule.pools if rule.verb is Verb.RUN}
        return {site} | {f"{site}/{pool}" for pool in pools - {ANY}}

    def _may_run(self, name: str, project: str, other: str = "") -> bool:
        site, _, pool = name.partition("/")
        request = PermissionRequest(
            Verb.RUN, site, pool or ANY, project, DATA_CLASS, other or site, 1, 0, ""
        )
        return self._registry.book.decide(request).is_yes

    def may_send(
        self, site: str, origin: str, pool: str, project: str, slots: int, price: Tariff
    ) -> str:
        """See Permits. The hourly cost of all these slots counts as open."""
        if self._older.why_not(site):  # gaps in our books are no business of the other site
            return f"{site} has newer books: nothing more is sold to it until the books agree"
        request = PermissionRequest(
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
        book = self._registry.book
        answer = book.decide(request)
        return "" if answer.is_yes else explain(book.rules_of(site), request, answer)
