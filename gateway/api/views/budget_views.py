"""The standing of budgets, as `gridfed budgets` shows them. Pure.

The keys are an interface (`--json`): they are only ever added to.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.contracts.slices.lending import LentShare, calendar
from gateway.scheduler.model.jobs import Job
from policies.costs.budgets import BudgetAccount


def standing(
    budget_account: BudgetAccount, shares: Iterable[LentShare], lasts_s: float | None
) -> dict[str, Any]:
    """Return one budget, quota or credit.

    Args:
        budget_account: at this site.
        shares: other sites' shares of it.
        lasts_s: how long this site may use its slice of another's; None: it is this site's own.
    """
    budget, period = budget_account.budget, budget_account.period
    span, zone = calendar(budget_account)
    by_site = _by_site(shares)
    # With the amount of silent holders, which the budget counts as spent.
    leased = sum(row["unspent_nanos"] for row in by_site)
    elsewhere = sum(row["spent_nanos"] for row in by_site)
    amounts = {
        "amount": budget_account.limit_nanos,
        "spent": budget_account.spent_nanos,
        "held": budget_account.held_nanos,
        "leased": leased,
        "spent_elsewhere": elsewhere,
        "left": budget_account.free_nanos if budget_account.is_open else budget_account.room_nanos,
    }
    return {
        "name": budget.name,
        "kind": "credit" if budget.is_credit else "slice" if budget.owner else "budget",
        "whose": str(budget.party),
        "unit": budget.unit,
        "period": span,
        "zone": zone,
        "period_key": period.key if period is not None else "",
        "start_s": period.start_at_s if period is not None else None,
        "renews_s": period.end_at_s if period is not None else None,
        "hard": budget.is_hard,
        "running": budget.running.value,
        "waiting": budget.waiting.value,
        **{f"{key}_nanos": nanos for key, nanos in amounts.items()},
        **{key: budget.show(nanos) for key, nanos in amounts.items()},
        "exhausted": budget_account.is_exhausted(),
        "owner": budget.owner,
        "slice_nanos": budget.amount_nanos if budget.owner else None,
        "lasts_s": None if lasts_s is None else round(lasts_s, 1),
        "refused": budget_account.refused,
        "sites": by_site,
    }


def _by_site(shares: Iterable[LentShare]) -> list[dict[str, Any]]:
    """Return each site's share of a budget, all its accounts together."""
    rows: dict[str, dict[str, Any]] = {}
    for share in shares:
        empty = {"site": share.site, "unspent_nanos": 0, "spent_nanos": 0, "heard_at_s": 0.0}
        row = rows.setdefault(share.site, empty)
        row["unspent_nanos"] += share.unspent
        row["spent_nanos"] += share.spent_now
        row["heard_at_s"] = max(row["heard_at_s"], share.heard_at_s)
    return [rows[site] for site in sorted(rows)]


def of_job(job: Job, why: Mapping[BudgetAccount, str]) -> list[dict[str, Any]]:
    """Return the budgets that pay for a job, and their standing; `why` is why there is no room."""
    return [
        {
            "name": budget_account.budget.name,
            "whose": str(budget_account.budget.party),
            "hard": budget_account.budget.is_hard,
            "left": budget_account.budget.show(budget_account.room_nanos),
            "left_nanos": budget_account.room_nanos,
            "why_not": why.get(budget_account, ""),
        }
        for budget_account in job.budget_accounts
    ]
