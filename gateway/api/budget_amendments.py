"""Changes of budgets and credit while they count: those that a reload applies, and the others.

A reload applies changes of amounts, and of the rules for work when nothing is left. It does not
apply changes of the work that counts, the unit or the period: the amounts that were spent and lent
under the old budget would suddenly be of another one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from federation.money import format_amount
from gateway.config.budgets import Credit
from policies.costs.budgets import Budget

T = TypeVar("T")

# The parts of a budget that a reload applies, and the others, by the keys of the file.
_TAKEN: Final = ("amount_nanos", "running", "waiting", "factor", "unknown_s", "sites", "slice_s")
_KEPT: Final = {
    "party": "who",
    "unit": "amount, in another unit",
    "span": "period",
    "zone": "zone",
    "is_hard": "hard",
    "owner": "owner",
}


class Told(NamedTuple):
    """A change from now on, for people."""

    budget: str
    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Amended(Generic[T]):
    """The values from now on, their changes, and the changes that count only after a restart."""

    taken: T
    told: list[Told]
    later: list[str]


def amend(now: Iterable[Budget], new: Iterable[Budget]) -> Amended[tuple[Budget, ...]]:
    """Change budgets to others of the same names."""
    known, others = ({each.name: each for each in budgets} for budgets in (now, new))
    taken: list[Budget] = []
    told: list[Told] = []
    later: list[str] = []
    for name, budget in known.items():
        other = others.get(name)
        if other is None:
            later.append(f"[[budget]] {name}, which is removed")
            taken.append(budget)
            continue
        kept = [key for each, key in _KEPT.items() if _differs(each, budget, other)]
        later += [f"[[budget]] {name}: {key}" for key in kept]
        changed: dict[str, Any] = {each: getattr(other, each) for each in _TAKEN}
        # A budget that would be another altogether stays as it is: half of it would be neither.
        taken.append(budget if kept else replace(budget, **changed))
        told += [
            Told(name, _key(each, budget), _shown(each, budget), _shown(each, taken[-1]))
            for each in _TAKEN
            if _differs(each, budget, taken[-1])
        ]
    later += [f"[[budget]] {name}, which is new" for name in others if name not in known]
    return Amended(tuple(taken), told, later)


def amend_credit(now: Credit, new: Credit) -> Amended[Credit]:
    """Change credit limits to others of the same sites, each in the same currencies."""
    if _currencies(now) != _currencies(new):
        return Amended(now, [], ["[credit]"])
    told = [
        Told(f"credit of {site}", "amount", _money(before), _money(after))
        for site, limits in now.items()
        for before, after in zip(limits, new[site], strict=True)
        if before != after
    ]
    return Amended(new, told, [])


def _currencies(credit: Credit) -> dict[str, list[str]]:
    return {site: [currency for _, currency in limits] for site, limits in credit.items()}


def _money(limit: tuple[int, str]) -> str:
    return f"{format_amount(limit[0])} {limit[1]}"


def _differs(each: str, budget: Budget, other: Budget) -> bool:
    return bool(getattr(budget, each) != getattr(other, each))


def _key(each: str, budget: Budget) -> str:
    """Return the key of a budget's attribute in the file."""
    if each == "amount_nanos":
        return "slice" if budget.owner else "amount"
    return each


def _shown(each: str, budget: Budget) -> str:
    value = getattr(budget, each)
    if each == "amount_nanos":
        return budget.show(value)
    return ", ".join(sorted(value)) or "none" if isinstance(value, frozenset) else str(value)
