"""Placement rules: filters that decide which offers may run a job. Pure.

A filter returns the reason for a refusal, or None. The filters are a list, cheapest first; a new
rule is a new line. "Never here" is distinct from "not now": a job that every offer refuses for ever
is refused at once, one that must only wait is kept.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from federation.objects.labels import UNLABELLED, DataLabel
from federation.reasons import Reason
from policies.placement import environments

# A tag's value: True for a plain tag, a number for a counted one ("gpu=2").
TagValue = bool | int | float
Tags = Mapping[str, TagValue]


class FrozenTags(dict[str, TagValue]):
    """Tags that can be part of a dictionary's key. They must not be changed."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:  # the first time
            self._hash = hash(frozenset(self.items()))
            return self._hash


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Need:
    """A job's requirements of the place where it runs."""

    tags: Tags
    python: str
    currency: str | None  # of its cost limit; None when it has none
    environment: str = (
        ""  # its environment, in the notation of policies.placement.environments; "": any
    )
    is_others: bool = False  # it is another site's code: sent by it, or by a user of it
    has_inputs: bool = False  # its calls have results of other tasks among their arguments
    label: DataLabel = UNLABELLED  # where the data that its calls read may lie


@dataclass(frozen=True, slots=True)
class CapacityOffer:
    """The full capacity of a worker or a pool, used or not."""

    name: str
    pool: str
    tags: Tags
    python: str
    currency: str
    takes_others: bool = True  # it sandboxes work of other sites, or its owner accepts the risk
    takes_inputs: bool = True  # it opens calls with inputs: engines and older versions do not
    label: DataLabel | None = None  # of slots of another site: the label for which they were bought


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an offer does not fit, with the figures.

    The sentence is made on demand: a decision may refuse thousands of pools whose reasons are never
    read. Without figures `words` is the sentence; with them it is its template.
    """

    reason: Reason
    words: str
    figures: tuple[object, ...] = ()

    @property
    def text(self) -> str:
        """The reason in words."""
        return self.words.format(*self.figures) if self.figures else self.words


def counted(tags: Tags) -> dict[str, int | float]:
    """Return the counted tags: a running task holds that many."""
    return {name: value for name, value in tags.items() if not isinstance(value, bool)}


def check_python(need: Need, offer: CapacityOffer) -> Refusal | None:
    """Refuse another minor version of Python: it may crash on pickled code."""
    if need.python == offer.python or environments.has_own_python(need.environment):
        return None
    return Refusal(
        Reason.PYTHON_DIFFERS,
        f"runs Python {offer.python or 'unknown'}, the job requires {need.python}",
    )


def check_others(need: Need, offer: CapacityOffer) -> Refusal | None:
    """Refuse work of other sites without a sandbox, unless the owner accepted the risk."""
    if offer.takes_others or not need.is_others:
        return None
    return Refusal(Reason.NO_SANDBOX, "has no sandbox for work of other sites")


def check_inputs(need: Need, offer: CapacityOffer) -> Refusal | None:
    """Refuse calls with inputs at workers and sites of older versions, and at engines."""
    if offer.takes_inputs or not need.has_inputs:
        return None
    return Refusal(
        Reason.NO_INPUTS,
        "takes no calls that wait for other tasks: it is an engine, or of an older version",
    )


def check_label(need: Need, offer: CapacityOffer) -> Refusal | None:
    """Refuse slots of other sites that were bought before the label of the data was so narrow."""
    if offer.label is None or offer.label.is_within(need.label):
        return None
    words = "was bought for data that may lie {}, and {}"
    return Refusal(Reason.OUTSIDE_LABEL, words, (str(offer.label), need.label.title))


def check_tags(need: Need, offer: CapacityOffer) -> Refusal | None:
    """Refuse if a requested tag is missing, or a counted one is too small."""
    for name, wanted in need.tags.items():
        if name not in offer.tags:
            return Refusal(Reason.TAG_MISSING, f"has no tag {show_tag(name, wanted)}")
        has = offer.tags[name]
        if isinstance(wanted, bool):
            continue
        if isinstance(has, bool) or has < wanted:
            return Refusal(
                Reason.TAG_TOO_SMALL, f"has {show_tag(name, has)}, {show_tag(name, wanted)} needed"
            )
    return None


def check_environment(need: Need, offer: CapacityOffer) -> Refusal | None:
    """Refuse if the job's environment is not offered: an image, or packages."""
    if not need.environment or environments.offers(need.environment, offer.tags):
        return None
    words = environments.describe(need.environment, offer.tags)
    return Refusal(Reason.ENVIRONMENT_MISSING, words)


def check_currency(need: Need, offer: CapacityOffer) -> Refusal | None:
    """Refuse other currencies for a job with a cost limit: the limit holds only in its own."""
    if need.currency in (None, offer.currency):
        return None
    return Refusal(
        Reason.CURRENCY_DIFFERS,
        f"charges in {offer.currency}, the cost limit is in {need.currency}",
    )


FILTERS: tuple[Callable[[Need, CapacityOffer], Refusal | None], ...] = (
    check_python,
    check_currency,
    check_others,
    check_environment,
    check_inputs,
    check_label,
    check_tags,
)


def judge(need: Need, offer: CapacityOffer) -> Refusal | None:
    """Return the first reason why this offer can never meet that need, or None."""
    for check in FILTERS:
        refusal = check(need, offer)
        if refusal is not None:
            return refusal
    return None


def judge_all(need: Need, offers: Iterable[CapacityOffer]) -> dict[str, Refusal] | None:
    """Return each offer's refusal, or None as soon as one of them can run it."""
    refusals: dict[str, Refusal] = {}
    for offer in offers:
        refusal = judge(need, offer)
        if refusal is None:
            return None
        refusals[offer.name] = refusal
    return refusals


def show_tag(name: str, value: TagValue) -> str:
    """Format a tag: `linux`, `gpu=2`; no digit of a number is lost."""
    if isinstance(value, bool):
        return name
    return f"{name}={int(value) if value == int(value) else value!r}"


def show_tags(tags: Tags) -> str:
    """Format tags in order: `gpu=2,linux`."""
    return ",".join(show_tag(name, value) for name, value in sorted(tags.items()))
