"""The tables [[budget]] and [credit]: limits on spending, and on other sites' debts."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from federation.money import NANOS_LIMIT, parse_money
from federation.signed.identity import site_id
from gateway.base.toml_lines import Path as Place
from gateway.base.toml_lines import at_line, line_about, located
from gateway.base.values import SettingError, check_known, flag, guarded, number
from policies.calendar.periods import PeriodLength, read_zone
from policies.costs.budgets import SLOT_TIME, Budget, Running, Waiting
from policies.parties import read_party

BUDGETS_MAX: Final = 1_000
SITES_MAX: Final = 256
NAME_CHARS_MAX: Final = 60
EVER: Final = "ever"  # the period of a budget that is for good
ANY_SITE: Final = "*"
# Other units of a quota, in slot-seconds.
_TIMES: Final = {SLOT_TIME: 1, "slot-h": 3_600}
_NUMBERS: Final = {
    "factor": (1.0, 1_000.0),
    "unknown_s": (0.001, 1e6),
    "slice_s": (1.0, 86_400.0),
}
BUDGET_KEYS: Final = frozenset(
    {
        *("name", "who", "amount", "period", "zone", "hard", "running", "waiting"),
        *("owner", "slice", "sites", *_NUMBERS),
    }
)
# The limits of debts, by site: amounts in nano-units, each in a currency of its own.
Credit = Mapping[str, tuple[tuple[int, str], ...]]
NO_CREDIT: Final[Credit] = MappingProxyType({})


def read_budgets(tables: Any, places: Mapping[Place, int]) -> tuple[Budget, ...]:
    """Read the [[budget]] tables. Raises SettingError with line, table and key in its text."""
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise SettingError("[[budget]] must be an array of tables, written with two brackets")
    if len(tables) > BUDGETS_MAX:
        raise SettingError(f"[[budget]] too many: at most {BUDGETS_MAX:,} are allowed")
    found: dict[str, Budget] = {}
    for at, table in enumerate(tables):
        name = table.get("name")
        is_shown = isinstance(name, str) and name.isprintable()
        titled = f" {name[:NAME_CHARS_MAX]}" if is_shown else ""
        place: Place = ("budget", at)
        budget = located(places, place, table, f"[[budget]]{titled}", partial(_budget, table))
        if budget.name in found:
            line = at_line(places, (*place, "name"))
            raise SettingError(f"{line}[[budget]] {budget.name}: the name is used twice")
        found[budget.name] = budget
    return tuple(found.values())


def check_budgets(
    budgets: tuple[Budget, ...],
    site: str,
    places: Mapping[Place, int],
    *,
    is_federated: bool,
) -> None:
    """Raise SettingError for a budget that this site owns or shares, or without a federation."""
    for at, budget in enumerate(budgets):
        place: Place = ("budget", at)
        named = f"[[budget]] {budget.name}"
        if budget.owner == site:
            line = line_about(places, place, ("owner",))
            raise SettingError(
                f"{line}{named}: owner is {site!r}, which is this site: omit it, "
                "and write amount in place of slice"
            )
        if (budget.owner or budget.sites) and not is_federated:
            line = line_about(places, place, ("owner" if budget.owner else "sites",))
            raise SettingError(
                f"{line}{named}: it is shared with other sites, but the "
                "configuration has no [federation]"
            )
        if site in budget.sites:
            line = line_about(places, place, ("sites",))
            raise SettingError(f"{line}{named}: sites: {site!r} is this site: remove it")


def read_credit(table: dict[str, Any], places: Mapping[Place, int]) -> Credit:
    """Read [credit]. Raises SettingError, with line and site in its text."""
    if len(table) > BUDGETS_MAX:
        raise SettingError(f"[credit] too many: at most {BUDGETS_MAX:,} sites are allowed")
    return {
        site: guarded(
            f"{at_line(places, ('credit', site))}[credit] {site[:60]!r}",
            partial(_limits, site, value),
        )
        for site, value in table.items()
    }


def _limits(site: str, value: Any) -> tuple[tuple[int, str], ...]:
    if site != ANY_SITE:
        _site("it", site)
    texts = value if isinstance(value, list) else [value]
    limits = tuple(parse_money(_as_text(text)) for text in texts)
    if not limits or len({currency for _, currency in limits}) < len(limits):
        raise SettingError("needs an amount, or a list of amounts in different currencies")
    return limits


def read_amount(text: Any, key: str = "amount") -> tuple[int, str]:
    """Read an amount of money, or of time of slots, in nano-units, and its unit. SettingError."""
    example = 'write "1000 USD", "36000 slot-s" or "500 slot-h"'
    words = text.split() if isinstance(text, str) else []
    if len(words) == 2 and words[1] in _TIMES:
        try:
            # Decimals exactly, as for money.
            nanos = parse_money(f"{words[0]} XXX")[0] * _TIMES[words[1]]
        except ValueError:
            raise SettingError(f"{key} is {text!r:.60}: {example}") from None
        if nanos > NANOS_LIMIT:
            raise SettingError(
                f"{key} is {text!r:.60}: it is too large; the maximum is 2,562,047 slot-h"
            )
        return nanos, SLOT_TIME
    try:
        return parse_money(text if isinstance(text, str) else "")
    except ValueError as error:
        raise SettingError(f"{key}: {error}; {example}") from None


def _budget(table: dict[str, Any]) -> Budget:
    name = table.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise SettingError(f"needs a name of 1 to {NAME_CHARS_MAX} printable characters")
    check_known(table, BUDGET_KEYS)
    owner = table.get("owner", "")
    if owner != "":
        _site("owner", owner)
    size = "slice" if owner else "amount"
    for key in ("amount", "sites", "slice_s") if owner else ("slice",):
        if key in table:
            whose = (
                f"a slice from {owner}, which sets it"
                if owner
                else "this site's own, with an amount"
            )
            raise SettingError(f"{key} is not allowed: the budget is {whose}")
    nanos, unit = read_amount(table.get(size), size)
    if not nanos:
        raise SettingError(f"{size} must be above zero")
    is_hard = flag("hard", table.get("hard", True))
    sites = table.get("sites", [])
    if not isinstance(sites, list) or len(sites) > SITES_MAX:
        raise SettingError(f"sites must be a list of up to {SITES_MAX} sites")
    for each in sites:
        _site("each value of sites", each)
    if not is_hard and (owner or sites):
        raise SettingError("a soft budget can't be shared with other sites: set hard = true")
    numbers: dict[str, Any] = {
        key: number(key, table[key], *_NUMBERS[key]) for key in _NUMBERS if key in table
    }
    span, zone = _calendar(table)
    return Budget(
        name,
        guarded("who", partial(read_party, _as_text(table.get("who", "ours")))),
        unit,
        nanos,
        span,
        zone,
        is_hard,
        Running(_choice(table, "running", Running.FINISH, list(Running))),
        Waiting(_choice(table, "waiting", Waiting.WAIT, list(Waiting))),
        owner=owner,
        sites=frozenset(sites),
        **numbers,
    )


def _calendar(table: dict[str, Any]) -> tuple[PeriodLength | None, Any]:
    period = _choice(table, "period", PeriodLength.MONTH, [*PeriodLength, EVER])
    zone = _as_text(table.get("zone", "UTC"))
    found = guarded("zone", partial(read_zone, zone))
    return None if period == EVER else PeriodLength(period), found


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _site(key: str, value: Any) -> None:
    try:
        site_id(value)
    except ValueError as error:
        raise SettingError(
            f"{key} is {value!r:.60}, which is not a site name: it {error}"
        ) from None


def _choice(table: dict[str, Any], key: str, default: str, known: list[str]) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or value not in known:
        raise SettingError(f"{key} is {value!r:.60}: it must be {' or '.join(map(str, known))}")
    return str(value)
