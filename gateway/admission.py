"""Whether work of some kind is taken here at all. Pure.

What no known offer can ever run is refused at once, with the reasons of all; what must only wait
is taken. Limits of one client are `accounts.py`'s, budgets `budgets/spending.py`'s.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from federation.reasons import Reason
from gateway.elsewhere import Elsewhere
from gateway.entitling import Entitling
from gateway.events import JobSpec
from gateway.roster import Roster
from policies.placement import Offer, judge, judge_all
from policies.tariffs import Tariff

JUDGED_MAX: Final = 1_000  # kinds of work that are remembered


@dataclass(frozen=True, slots=True)
class _Judgement:
    """Whether a known offer can run work of a kind; else why none can, None if there are none."""

    fits: bool
    refusal: tuple[str, str] | None = None


class Admission:
    """What may come in.

    Args:
        roster: what is offered here.
        tariffs: what each pool of ours charges now.
        entitling: who may use what.
        elsewhere: what other sites may do for it.
    """

    def __init__(
        self,
        roster: Roster,
        tariffs: Mapping[str, Tariff],
        entitling: Entitling,
        elsewhere: Elsewhere,
    ) -> None:
        self._roster = roster
        self._tariffs = tariffs
        self._entitling = entitling
        self._elsewhere = elsewhere
        # It takes a look at each of thousands of offers to see that none does. So what was found is
        # kept until they change.
        self._judged: dict[Hashable, _Judgement] = {}
        self._able: dict[Hashable, frozenset[str]] = {}  # the pools that can, likewise
        self._version = -1
        self._rules = entitling.rules

    def refusal(self, spec: JobSpec, *, is_early: bool = False) -> tuple[str, str] | None:
        """Why nobody here or elsewhere ever takes work of this kind, as code and sentence.

        `is_early`: no pool that is known need be able to run it, as not all of them may be.
        """
        barred = self._entitling.objection(spec, self._elsewhere.may_run)
        if barred is not None:
            return barred
        nowhere = self._elsewhere.why_nowhere(spec)
        if nowhere:
            return Reason.SITE_FORBIDDEN, f"no site can ever run it: {nowhere}"
        judged = self._judge(spec)
        if judged.fits or self._elsewhere.may_run(spec):
            return None  # somebody can run it
        if judged.refusal is None:  # nobody has joined yet; what they will charge in is known
            unpayable = self.unpayable(spec)
            return (Reason.CURRENCY_DIFFERS, unpayable) if unpayable else None
        return None if is_early else judged.refusal

    def looks(self, spec: JobSpec) -> int:
        """How many offers it has to look at to judge work of a kind; 0 if it has done so before."""
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
        """What was found of the offers and rules that there are now."""
        version, rules = self._roster.version, self._entitling.rules
        is_new = self._version != version or self._rules is not rules
        if is_new or max(len(self._judged), len(self._able)) >= JUDGED_MAX:
            self._version, self._rules = version, rules
            self._judged.clear()
            self._able.clear()
        return self._judged

    def pools(self, spec: JobSpec) -> frozenset[str]:
        """Our pools of which a known offer can run work of a kind, now or when it is back."""
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

    def _look(self, spec: JobSpec) -> _Judgement:
        refusals = judge_all(spec.need, self._entitling.may_use(spec, self._roster.offers.values()))
        if not refusals:
            return _Judgement(fits=refusals is None)
        # What there is to run in its workers know; until one has come, nobody else does.
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
        """Whether no worker has joined a pool of ours that may run it: nobody knows its tags."""
        known = {offer.pool for offer in self._roster.offers.values()}
        offers = [
            Offer(f"pool {name}", name, {}, "", tariff.currency)
            for name, tariff in self._tariffs.items()
            if name not in known
        ]
        return any(True for _ in self._entitling.may_use(spec, offers))

    def is_provisional(self, spec: JobSpec) -> bool:
        """Whether work is taken though no offer that is known here can run it.

        It is taken because a worker may still join, or another site may run it.
        """
        if spec.price is not None:
            return False  # what is sold to us was judged by its quote
        return not self._judge(spec).fits

    def unpayable(self, spec: JobSpec) -> str:
        """Why a job's cost limit can be kept nowhere that is known; empty when it can be."""
        charged = {each.currency for each in self._tariffs.values()} | self._elsewhere.currencies()
        wanted = spec.need.currency
        if wanted is None or wanted in charged:
            return ""
        known = f"; known pools charge in {', '.join(sorted(charged))}" if charged else ""
        what = "budget" if spec.max_cost_nanos is None else "cost limit"
        return f"no known pool charges in {wanted}, the currency of its {what}{known}"
