"""Decides whether a kind of work is accepted here at all. Pure.

Work that no known offer can ever run is refused at once, with the reasons of all offers. Work that
only has to wait is accepted. The limits of one client are in `accounts.py`, budgets in
`scheduler/quotas/spending.py`.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from federation.reasons import Reason
from gateway.scheduler.model.peer_queries import PeerQueries
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.entitling import Entitling
from gateway.scheduler.quotas.roster import WorkerRoster
from policies.placement.placement import CapacityOffer, judge, judge_all
from policies.tariffs import Tariff

JUDGED_MAX: Final = 1_000  # kinds of work whose judgement is cached


@dataclass(frozen=True, slots=True)
class _Judgement:
    """Whether a known offer can run a kind of work, and if not, why; None without offers."""

    fits: bool
    refusal: tuple[str, str] | None = None


class Admission:
    """The admission check for new work.

    Args:
        roster: the offers of this site.
        tariffs: the current tariff of each of our pools.
        entitling: the entitlements.
        peers: tells what other sites may do for the work.
    """

    def __init__(
        self,
        roster: WorkerRoster,
        tariffs: Mapping[str, Tariff],
        entitling: Entitling,
        peers: PeerQueries,
    ) -> None:
        self._roster = roster
        self._tariffs = tariffs
        self._entitling = entitling
        self._peers = peers
        # Finding that no offer fits means examining thousands of them, so cache each judgement
        # until the offers change.
        self._judged: dict[Hashable, _Judgement] = {}
        self._able: dict[Hashable, frozenset[str]] = {}  # pools that can run it, cached likewise
        self._shown: frozenset[str] | None = None  # pools with an offer, cached likewise
        self._version = -1
        self._rules = entitling.rules

    def refusal(self, spec: JobSpec, *, is_early: bool = False) -> tuple[str, str] | None:
        """Why no site will ever run work of this kind, as code and sentence.

        `is_early`: not all pools may be known yet, so no known pool needs to be able to run it.
        """
        barred = self._entitling.objection(spec, self._peers.may_run)
        if barred is not None:
            return barred
        nowhere = self._peers.why_nowhere(spec)
        if nowhere:
            return Reason.SITE_FORBIDDEN, f"no site can ever run it: {nowhere}"
        judged = self._judge(spec)
        if judged.fits or self._peers.may_run(spec):
            return None  # a known offer can run it
        if judged.refusal is None:  # no worker has joined yet; the currencies are known
            unpayable = self.unpayable(spec)
            return (Reason.CURRENCY_DIFFERS, unpayable) if unpayable else None
        return None if is_early else judged.refusal

    def looks(self, spec: JobSpec) -> int:
        """The number of offers to examine to judge a kind of work; 0 if its judgement is cached."""
        return 0 if self._kind(spec) in self._remembered() else len(self._roster.offers)

    def _judge(self, spec: JobSpec) -> _Judgement:
        kind = self._kind(spec)
        found = self._remembered().get(kind)
        if found is None:
            found = self._judged[kind] = self._look(spec)
        return found

    def _kind(self, spec: JobSpec) -> Hashable:
        return spec.need, spec.work if self._entitling.is_on else None

    def _remembered(self) -> dict[Hashable, _Judgement]:
        """Return the judgements of the current offers and rules."""
        version, rules = self._roster.version, self._entitling.rules
        is_new = self._version != version or self._rules is not rules
        if is_new or max(len(self._judged), len(self._able)) >= JUDGED_MAX:
            self._version, self._rules = version, rules
            self._judged.clear()
            self._able.clear()
            self._shown = None
        return self._judged

    def pools(self, spec: JobSpec) -> frozenset[str]:
        """Our pools with a known offer that can run this kind of work, now or when it is back."""
        kind = self._kind(spec)
        self._remembered()
        found = self._able.get(kind)
        if found is None:
            able: set[str] = set()
            for each in self._entitling.may_use(spec, self._roster.offers.values()):
                if each.pool not in able and judge(spec.need, each) is None:
                    able.add(each.pool)
            found = self._able[kind] = frozenset(able)
        return found

    def shown_pools(self) -> frozenset[str]:
        """Our pools with a known offer: of the others it is unknown which work they can run."""
        self._remembered()
        if self._shown is None:
            self._shown = frozenset(each.pool for each in self._roster.offers.values())
        return self._shown

    def _look(self, spec: JobSpec) -> _Judgement:
        refusals = judge_all(spec.need, self._entitling.may_use(spec, self._roster.offers.values()))
        if not refusals:
            return _Judgement(fits=refusals is None)
        # Only workers know which environments a pool has: skip that reason until one has joined.
        known = {f"pool {each.offer.pool}" for each in self._roster.workers.values()}
        lines = [
            f"{name} {refusal.text}"
            for name, refusal in sorted(refusals.items())
            if refusal.reason is not Reason.ENVIRONMENT_MISSING or name not in known
        ]
        more = f"; and {len(lines) - 8} more" if len(lines) > 8 else ""
        reasons = {refusal.reason for refusal in refusals.values()}
        code = next(iter(reasons)) if len(reasons) == 1 else Reason.NO_WORKER
        why = f"no pool here can ever run it: {'; '.join(lines[:8])}{more}"
        return _Judgement(fits=False, refusal=(code, why))

    def awaits_workers(self, spec: JobSpec) -> bool:
        """Whether a pool of ours that may run it has no workers yet: its tags are unknown."""
        known = {offer.pool for offer in self._roster.offers.values()}
        offers = [
            CapacityOffer(f"pool {name}", name, {}, "", tariff.currency)
            for name, tariff in self._tariffs.items()
            if name not in known
        ]
        return any(True for _ in self._entitling.may_use(spec, offers))

    def is_provisional(self, spec: JobSpec) -> bool:
        """Whether work is accepted although no offer known here can run it.

        It is accepted because a worker may still join, or another site may run it.
        """
        if spec.price is not None:
            return False  # another site's job was judged at its quote
        return not self._judge(spec).fits

    def unpayable(self, spec: JobSpec) -> str:
        """Why no known pool can honour a job's cost limit; empty when one can."""
        charged = {each.currency for each in self._tariffs.values()} | self._peers.currencies()
        wanted = spec.need.currency
        if wanted is None or wanted in charged:
            return ""
        known = f"; known pools charge in {', '.join(sorted(charged))}" if charged else ""
        what = "budget" if spec.max_cost_nanos is None else "cost limit"
        return f"no known pool charges in {wanted}, the currency of its {what}{known}"
