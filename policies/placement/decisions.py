"""The decision on an ask, with its reasons: all candidates with verdict, reason and figures.

`to_plain` bounds a decision over thousands of pools for storage and display: the best candidates
one by one, the refused grouped by reason with a few examples. Keep that, not the decision.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from federation.clocks import UtcS
from federation.money import format_money
from federation.reasons import NEVER, Reason, reason_text
from federation.words import duration_text
from policies.placement.asks import Demand, Preferences, WhenClosed
from policies.placement.deferral import Deferral
from policies.placement.estimates import fits
from policies.placement.market import Candidate, Key
from policies.placement.placement import Refusal
from policies.placement.ranking import Ranked, Ranking
from policies.placement.splitting import Lane, Split

SHOWN: Final = 20  # accepted candidates
EXAMPLES: Final = 3  # refused ones of a reason


class DecisionReason(StrEnum):
    """The rule that settled the decision."""

    NOBODY = "nobody"
    HOME_FIRST = "home-first"
    DRAWN = "drawn"
    BEST = "best"


@dataclass(frozen=True, slots=True)
class Decision:
    """The destination of an ask, according to adverts: ask for quotes before work is sent."""

    ask: Demand
    preferences: Preferences
    made_at_s: UtcS
    why: DecisionReason
    ranking: Ranking | None  # of the accepted; None when all were refused
    refused: Sequence[tuple[Candidate, Refusal]]
    near: int  # how many of the accepted are as good as the best
    preferred: Sequence[Ranked]  # the lanes of the plan, in order of preference
    plan: Split | None  # None: nowhere to go
    deferral: Deferral | None = None  # for a deferrable ask: the plan is the part that starts now

    @property
    def is_hopeless(self) -> bool:
        """Whether no known pool can ever run it."""
        return not self.ranking and all(r.reason in NEVER for _, r in self.refused)

    @property
    def puts_off(self) -> bool:
        """Whether some of it waits for better hours."""
        return self.deferral is not None and self.deferral.waits > 0

    @property
    def quotes_from(self) -> list[Key]:
        """The pools to ask for a quote: all that share the plan, or rivals for the whole of it.

        This site's own pools are not asked, nor is a pool whose window the job waits for.
        """
        if self.plan is None:
            return []
        shares = [lane.key for lane, _ in self.plan.shares]
        left_out = {
            one.key for one in self.preferred if one.candidate.is_own or self._awaits(one.candidate)
        }
        if len(shares) != 1 or self.puts_off:
            return [key for key in shares if key not in left_out]
        if shares[0] in left_out:
            return []
        rivals = [one.key for one in self.preferred if one.key not in left_out]
        return [*shares, *(key for key in rivals if key != shares[0])][
            : self.preferences.quotes_max
        ]

    def _awaits(self, candidate: Candidate) -> bool:
        """Whether the job waits for this pool's window."""
        return self.ask.when_closed is WhenClosed.WAIT and candidate.is_closed(self.made_at_s)

    def verdict(self, key: Key) -> Ranked | Refusal | None:
        """Return the verdict on one candidate; None when it was not known."""
        found = self.ranking.of(key) if self.ranking else None
        return found or next((why for candidate, why in self.refused if candidate.key == key), None)

    def to_plain(self, shown: int = SHOWN) -> dict[str, Any]:
        """Convert to plain data for people and scripts, bounded for any number of candidates."""
        plan = self.plan
        return {
            "made_s": self.made_at_s,
            "why": self.why.value,
            "text": self._text(),
            "objective": asdict(self.ask.objective),
            "tasks": self.ask.tasks,
            "task_s": self.ask.task_s,
            "when_closed": str(self.ask.when_closed or ""),
            "finish_s": self.made_at_s + plan.finish_s if plan and plan.shares else None,
            "cost": _costs(plan.shares) if plan else {},
            "carbon_g": plan.carbon_g if plan else None,
            "short": plan.short if plan else 0,
            "short_reason": plan.reason.value if plan and plan.reason else "",
            "short_text": reason_text(plan.reason) if plan and plan.reason else "",
            "assumed_task_s": self.preferences.task_s_unknown if self.ask.task_s is None else None,
            "shares": [self._share(lane, n) for lane, n in plan.shares] if plan else [],
            "quotes_from": [list(key) for key in self.quotes_from],
            "candidates": _rows(self, shown),
            "candidates_left_off": max(0, len(self.ranking or ()) - shown),
            "deferral": self._deferral(shown),
            "refused": _grouped(self.refused),
        }

    def _deferral(self, shown: int) -> dict[str, Any] | None:
        deferral, currency = self.deferral, self.preferences.currency
        return deferral.to_plain(currency, shown) if deferral is not None else None

    def _text(self) -> str:
        band = f"{self.preferences.band:.0%}"
        match self.why:
            case DecisionReason.NOBODY:
                return self._nowhere() + self._unpayable()
            case DecisionReason.HOME_FIRST:
                soon = duration_text(self.preferences.prefer_own_s)
                return f"at home, as it starts there within {soon}"
            case DecisionReason.DRAWN:
                return f"drawn at random from {self.near} pools within {band} of the best"
            case DecisionReason.BEST:
                pools = len(self.ranking or ())
                if pools <= 1:
                    return "the only pool that can run it"
                return f"the best of {pools} pools, by more than {band}"

    def _nowhere(self) -> str:
        match len(self.refused):
            case 0:
                return "no pool is known"
            case 1 if self.is_hopeless:
                return "the only known pool can never run it"
            case 1:
                return "the only known pool can't run it now"
            case pools:
                can = "can ever run it" if self.is_hopeless else "can run it now"
                return f"none of the {pools} known pools {can}"

    def _unpayable(self) -> str:
        """Say that no pool charges in the currency of the cost limit, besides other reasons."""
        wanted = self.ask.terms.need.currency
        charged = {candidate.advert.currency for candidate, _ in self.refused}
        if wanted is None or wanted in charged:
            return ""
        what = "budget" if self.ask.budget_nanos is None else "cost limit"
        return f", and none charges in {wanted}, the currency of its {what}"

    def _share(self, lane: Lane, tasks: int) -> dict[str, Any]:
        one = next(one for one in self.preferred if one.key == lane.key)
        currency = one.candidate.advert.currency
        opens_s = one.candidate.opens_at_s(self.made_at_s)
        return {
            "site": lane.key[0],
            "pool": lane.key[1],
            "tasks": tasks,
            "opens_s": opens_s if opens_s > self.made_at_s else None,
            "begin_s": self.made_at_s + lane.start_s,
            "finish_s": self.made_at_s + lane.finish_s(tasks),
            "cost_nanos": lane.cost_nanos(tasks),
            "cost": format_money(lane.cost_nanos(tasks), currency),
        }


def _rows(decision: Decision, shown: int) -> list[dict[str, Any]]:
    """Return the best of the accepted, with all the figures behind their rank."""
    if decision.ranking is None:
        return []
    rows = []
    for one in decision.ranking[:shown]:
        site, pool = one.key
        currency = one.candidate.advert.currency
        found = one.estimate
        rows.append(
            {
                "site": site,
                "pool": pool,
                "utility": one.utility,
                "parts": decision.ranking.scale.parts(one),
                "price": format_money(found.price_nanos, currency),
                "price_nanos": found.price_nanos,
                "currency": currency,
                "wait_s": found.wait_s,
                "begin_s": found.begin_at_s,
                "finish_s": found.finish_at_s,
                "cost_nanos": found.cost_nanos,
                "cost": format_money(found.cost_nanos, currency),
                "moves_nanos": found.moves_nanos,
                "moved_bytes": decision.ask.moved_bytes if found.moves_nanos else 0,
                "moves": format_money(found.moves_nanos, currency) if found.moves_nanos else "",
                "carbon_g": found.carbon_g,
                "fits": fits(decision.ask, found),
                "slots": found.slots,
                "age_s": max(0.0, decision.made_at_s - one.candidate.as_of_s),
            }
        )
    return rows


def _costs(shares: Sequence[tuple[Lane, int]]) -> dict[str, int]:
    """Sum nano-units by currency: charges in two currencies have no common sum."""
    costs: dict[str, int] = {}
    for lane, tasks in shares:
        costs[lane.currency] = costs.get(lane.currency, 0) + lane.cost_nanos(tasks)
    return costs


def _grouped(refused: Sequence[tuple[Candidate, Refusal]]) -> list[dict[str, Any]]:
    """Group the refused by reason, the most frequent first, with a few examples in words."""
    groups: dict[Reason, list[tuple[Candidate, Refusal]]] = {}
    for candidate, refusal in refused:
        groups.setdefault(refusal.reason, []).append((candidate, refusal))
    rows = []
    for reason, group in sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])):
        examples = sorted(group, key=lambda each: each[0].key)[:EXAMPLES]
        rows.append(
            {
                "reason": reason.value,
                "never": reason in NEVER,
                "count": len(group),
                "examples": [
                    {"site": c.key[0], "pool": c.key[1], "text": refusal.text}
                    for c, refusal in examples
                ],
            }
        )
    return rows
