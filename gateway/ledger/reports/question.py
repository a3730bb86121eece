"""The question that a report answers: keys, conditions and period; and the totals read for it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, attrgetter, sub
from typing import Any, Final

from federation.clocks import CALENDAR_END_S, UNIX_EPOCH_S, UtcS
from gateway.ledger.db.usage.records import Dimension, UsageTotal
from gateway.ledger.db.usage.store import UsageStore
from gateway.ledger.db.usage.tables import SUMMED
from gateway.ledger.reports.keys import Key, key_of

HOUR_S: Final = 3_600
_DAY_HOURS: Final = 24
# The amounts of a UsageTotal, in its order; all are sums, except the largest peak of memory.
_AMOUNTS: Final = ("records", "peak_memory_bytes", *SUMMED)
_PEAK: Final = _AMOUNTS.index("peak_memory_bytes")
_amounts: Final[Callable[[UsageTotal], tuple[int, ...]]] = attrgetter(*_AMOUNTS)
KEYS_MAX: Final = 8
VALUES_MAX: Final = 100
OURS: Final = "ours"
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class UsageQuestion:
    """A question about usage that ended in [start, end), UTC epoch seconds, None: no bound.

    Attributes:
        by: the keys of its rows, in this order.
        where: the usage to count: for each key any of these values, and all keys together.
        site: our own name, which stands for "here".
        whose: OURS: our own users' work; ALL: other sites' work as well.
    """

    by: tuple[Key, ...]
    where: Mapping[Key, frozenset[str]] = field(default_factory=dict)
    start_at_s: UtcS | None = None
    end_at_s: UtcS | None = None
    site: str = ""
    whose: str = OURS

    @classmethod
    def of(
        cls,
        by: Iterable[str],
        where: Iterable[tuple[str, str]] = (),
        start_at_s: UtcS | None = None,
        end_at_s: UtcS | None = None,
        site: str = "",
        whose: str | None = None,
    ) -> "UsageQuestion":
        """Parse a question from texts. Raises ValueError, with the choices, for an invalid one.

        `whose` defaults to our own users' work, and to all work if the question refers to the
        origin.
        """
        keys = tuple(key_of(name) for name in dict.fromkeys(by))
        found: dict[str, tuple[Key, set[str]]] = {}
        for name, value in where:
            key = key_of(name)
            key.check(value)
            found.setdefault(name, (key, set()))[1].add(value)
        if len(keys) > KEYS_MAX or len(found) > KEYS_MAX:
            raise ValueError(f"at most {KEYS_MAX} keys to report by, and {KEYS_MAX} to filter by")
        if any(len(values) > VALUES_MAX for _, values in found.values()):
            raise ValueError(f"at most {VALUES_MAX} values of a key to filter by")
        if any(
            at is not None and not UNIX_EPOCH_S <= at < CALENDAR_END_S
            for at in (start_at_s, end_at_s)
        ):
            raise ValueError("a period must be between the years 1970 and 9999")
        if start_at_s is not None and end_at_s is not None and start_at_s >= end_at_s:
            raise ValueError("the period ends before it begins")
        asked = {key: frozenset(values) for key, values in found.values()}
        if whose is None:
            by_origin = any(key.dimension is Dimension.ORIGIN for key in (*keys, *asked))
            whose = ALL if by_origin else OURS
        if whose not in (OURS, ALL):
            raise ValueError(f'whose must be "{OURS}" or "{ALL}", not {str(whose)[:60]!r}')
        return cls(keys, asked, start_at_s, end_at_s, site, whose)

    @property
    def is_whole_hours(self) -> bool:
        """Whether it begins and ends on a full hour."""
        bounds = [at for at in (self.start_at_s, self.end_at_s) if at is not None]
        return all(at % HOUR_S == 0 for at in bounds)

    @property
    def only(self) -> Mapping[Dimension, str | int]:
        """The store's condition for `whose`."""
        return {Dimension.ORIGIN: ""} if self.whose == OURS else {}

    @property
    def chosen_origins(self) -> Mapping[Key, frozenset[str]]:
        """The part of `where` that chooses by the sender of the work."""
        return {
            key: values for key, values in self.where.items() if key.dimension is Dimension.ORIGIN
        }

    def admits(self, cells: Mapping[Key, str]) -> bool:
        """Whether usage with these cells is counted: each key of `where` must match."""
        return all(cells[key] in values for key, values in self.where.items())


def read(
    usage: UsageStore,
    question: UsageQuestion,
    extra: Sequence[Dimension] = (),
    only: Mapping[Dimension, str | int] | None = None,
) -> list[UsageTotal]:
    """Read totals from the store, and fold them into the question's keys.

    The keys of the totals are the cells of `question.by` and then the store's values of `extra`.
    """
    dimensions, chosen = _asked(question, extra, only)
    found = usage.totals(dimensions, question.start_at_s, question.end_at_s, chosen)
    return fold(question, dimensions, extra, found)


def read_taken_back(
    usage: UsageStore, question: UsageQuestion, extra: Sequence[Dimension] = ()
) -> list[UsageTotal]:
    """Read the part of `read` that other sites do not pay: their deliveries were taken back.

    Nothing for a question of our own users' work: its charges stay, and a refund is the site's.
    """
    if question.whose == OURS:
        return []
    dimensions, chosen = _asked(question, extra)
    found = usage.taken_back(dimensions, question.start_at_s, question.end_at_s, chosen)
    return fold(question, dimensions, extra, found)


def _asked(
    question: UsageQuestion,
    extra: Sequence[Dimension],
    only: Mapping[Dimension, str | int] | None = None,
) -> tuple[tuple[Dimension, ...], dict[Dimension, str | int]]:
    """Return the dimensions to read, and the conditions that the store applies."""
    keys = dict.fromkeys((*question.by, *question.where))
    wanted = dict.fromkeys((*(key.dimension for key in keys), *extra))
    if Dimension.HOUR in wanted:
        wanted.pop(Dimension.DAY, None)  # an hour determines its day
    return tuple(wanted), {**_only(question), **question.only, **(only or {})}


def less(found: Iterable[UsageTotal], taken_back: Iterable[UsageTotal]) -> list[UsageTotal]:
    """Return totals without what was taken back of them; both are by the same keys. Pure."""
    back = {(each.key, each.currency): _amounts(each) for each in taken_back}
    rest = []
    for each in found:
        parts = back.get((each.key, each.currency))
        if parts is None:
            rest.append(each)
            continue
        amounts = list(map(sub, _amounts(each), parts))
        amounts[_PEAK] = each.peak_memory_bytes
        rest.append(UsageTotal(each.key, each.currency, *amounts))
    return [each for each in rest if each.records]


def fold(
    question: UsageQuestion,
    dimensions: Sequence[Dimension],
    extra: Sequence[Dimension],
    found: Iterable[UsageTotal],
) -> list[UsageTotal]:
    """Fold totals by `dimensions` into ordered totals by the question's keys and `extra`. Pure."""
    at = {dimension: place for place, dimension in enumerate(dimensions)}
    chosen = [(_picker(key, at, question.site), values) for key, values in question.where.items()]
    pick = [_picker(key, at, question.site) for key in question.by]
    extras = [at[dimension] for dimension in extra]
    folded: dict[tuple[tuple[Any, ...], str], list[int]] = {}
    for total in found:
        values = total.key
        if not all(show(values) in wanted for show, wanted in chosen):
            continue
        cells = (*[show(values) for show in pick], *[values[place] for place in extras])
        known = folded.get((cells, total.currency))
        if known is None:
            folded[cells, total.currency] = list(_amounts(total))
        else:
            folded[cells, total.currency] = _added(known, _amounts(total))
    ordered = sorted(folded, key=lambda each: (order(question.by, each[0]), each[1]))
    return [UsageTotal(*each, *folded[each]) for each in ordered]


def order(by: Sequence[Key], cells: Sequence[Any]) -> tuple[Any, ...]:
    """Return the sort key of a row: its keys, and then the other cells."""
    if not any(key.is_ordered for key in by):
        return tuple(cells)
    ordered = [key.order(cell) for key, cell in zip(by, cells, strict=False)]
    return (*ordered, *cells[len(by) :])


def merged(totals: Sequence[UsageTotal]) -> UsageTotal:
    """Return the sum of some totals, under the key and the currency of the first."""
    first, *rest = totals
    if not rest:
        return first
    amounts = list(_amounts(first))
    for each in rest:
        amounts = _added(amounts, _amounts(each))
    return UsageTotal(first.key, first.currency, *amounts)


def _added(known: list[int], more: tuple[int, ...]) -> list[int]:
    peak = max(known[_PEAK], more[_PEAK])
    sums = list(map(add, known, more))
    sums[_PEAK] = peak
    return sums


def _only(question: UsageQuestion) -> dict[Dimension, str | int]:
    """Return the part of `where` that the store can apply, so that it reads less."""
    return {
        key.dimension: "" if key.is_place and value == question.site else value
        for key, values in question.where.items()
        if key.is_plain and len(values) == 1
        for value in values
    }


def _picker(
    key: Key, at: Mapping[Dimension, int], site: str
) -> Callable[[tuple[str | int, ...]], str]:
    show = key.show
    if key.is_time and Dimension.HOUR not in at:
        day = at[Dimension.DAY]
        return lambda values: show(int(values[day]) * _DAY_HOURS, site)
    place = at[Dimension.HOUR if key.is_time else key.dimension]
    return lambda values: show(values[place], site)
