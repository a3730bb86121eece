"""Budgets and credit that are changed while they count: what of it is taken in, and what is not.

How much there is, and what becomes of work when there is none, is taken in. What says whose work
counts, in what unit and since when, is not: what was spent and given to other sites of one budget
would be of another all at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from federation.money import format_amount
from gateway.budgets.settings import Credit
from policies.budgets import Budget

T = TypeVar("T")

# What is taken in of a budget, and what is not, by the keys of the file.
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
    """Something that is otherwise from now on, for people."""

    budget: str
    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Amended(Generic[T]):
    """What is to hold from now on, how that differs, and what counts only after a restart."""

    taken: T
    told: list[Told]
    later: list[str]


def amend(now: Iterable[Budget], new: Iterable[Budget]) -> Amended[tuple[Budget, ...]]:
    """What becomes of budgets by others of the same names."""
    known, others = ({each.name: each for each in budgets} for budgets in (now, new))
    taken: list[Budget] = []
    told: list[Told] = []
    later: list[str] = []
    for name, budget in known.items():
        other = others.get(name)
        if other is None:
            later.append(f"[[budget]] {name}, which is gone")
            taken.append(budget)
            continue
        kept = [key for each, key in _KEPT.items() if _differs(each, budget, other)]
        later += [f"[[budget]] {name}: {key}" for key in kept]
        changed: dict[str, Any] = {each: getattr(other, each) for each in _TAKEN}
        # One that is to be another altogether stays what it is: half of it would be neither.
        taken.append(budget if kept else replace(budget, **changed))
        told += [
            Told(name, _key(each, budget), _shown(each, budget), _shown(each, taken[-1]))
            for each in _TAKEN
            if _differs(each, budget, taken[-1])
        ]
    later += [f"[[budget]] {name}, which is new" for name in others if name not in known]
    return Amended(tuple(taken), told, later)


def amend_credit(now: Credit, new: Credit) -> Amended[Credit]:
    """What becomes of limits by others of the same sites, each in the same currencies."""
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
    """The key of the file that says something of a budget."""
    if each == "amount_nanos":
        return "slice" if budget.owner else "amount"
    return each


def _shown(each: str, budget: Budget) -> str:
    value = getattr(budget, each)
    if each == "amount_nanos":
        return budget.show(value)
    return ", ".join(sorted(value)) or "none" if isinstance(value, frozenset) else str(value)
