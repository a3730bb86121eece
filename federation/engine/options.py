"""The options of a client's view: read, checked, and turned into the terms of a job."""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, cast

from federation.clocks import CALENDAR_END_S
from federation.engine.environment_files import read_environment
from federation.errors import ObjectRefused
from federation.ids import new_id
from federation.messages.environments import Environment, wrap
from federation.messages.messages import OpenJob
from federation.money import parse_money
from federation.objects.left import AUTO, CHOICES, REF, VALUE
from federation.offers import show_time
from federation.payload import SealedFunction, seal_function
from federation.users import check_project
from federation.wishes import (
    DEADLINE_FORMS,
    NAME_CHARS_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    USUAL_PROJECT,
    wishes_plain,
)
from federation.words import read_length, read_seconds

TagValue = bool | int | float

# The gateway's limits; it checks them again.
TIMEOUT_MAX_S: Final = 1e9
TAG_MAX: Final = 1e12
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


class _Kept:
    """Stands for an option that is left as it is."""

    def __repr__(self) -> str:
        return "KEPT"


KEPT: Final[Any] = _Kept()


@dataclass(frozen=True, slots=True)
class Options:
    """The terms under which a view of a client submits; see Client.options."""

    tags: Mapping[str, TagValue] = field(default_factory=dict)
    timeout_s: float | None = None
    retries: int = 0
    priority: float = 0.0
    project: str = USUAL_PROJECT
    max_cost: str | None = None
    name: str | None = None
    prints: bool = False
    objective: str | Mapping[str, float] | None = None
    deadline_s: float | str | datetime | timedelta | None = None
    sites: Sequence[str] | None = None
    not_sites: Sequence[str] | None = None
    jurisdictions: Sequence[str] | None = None
    data: Sequence[str] | None = None
    preemptible: bool = False
    environment: str | os.PathLike[str] | Environment | None = None
    when_closed: str | None = None
    deferrable: bool = False
    whole: bool = False
    task_s: float | None = None
    results: str = AUTO

    @property
    def wishes(self) -> dict[str, Any]:
        """The placement wishes, in wire form."""
        return wishes_plain(
            self.objective,
            cast("float | None", self.deadline_s),  # read already
            when_closed=self.when_closed,
            deferrable=self.deferrable,
            whole=self.whole,
            sites=self.sites,
            not_sites=self.not_sites,
            jurisdictions=self.jurisdictions,
            data=self.data,
            environment=self.environment.wish
            if isinstance(self.environment, Environment)
            else None,
        )

    def seal(self, function: Callable[..., Any]) -> SealedFunction:
        """Seal a function under these terms, with its environment."""
        return self.with_environment(seal_function(function))

    def with_environment(self, sealed: SealedFunction) -> SealedFunction:
        """Add the environment to a sealed function, under a digest of both."""
        if not isinstance(self.environment, Environment):
            return sealed
        body = wrap(sealed.body, self.environment)
        return replace(sealed, digest=hashlib.sha256(body).digest(), body=body)

    def changed(self, given: Mapping[str, Any]) -> "Options":
        """Return these options with those of `given` that are not KEPT; other keys are ignored.

        Raises ValueError and TypeError for a value that no gateway would take, and ValueError for a
        deadline that is not to come.
        """
        changes = {each: given[each] for each in self.__slots__ if given[each] is not KEPT}
        options = replace(self, **changes)
        if "deadline_s" in changes:
            check_ahead(changes["deadline_s"], options.deadline_s)
        return options

    def opening(
        self, function: SealedFunction, *, near: bool, detached: bool, tasks: int | None = None
    ) -> OpenJob:
        """Return the message that opens a new job of `tasks` calls under these terms.

        `near` tells whether the client is on its gateway's host. Raises ObjectRefused if results
        can't be objects there.
        """
        results = "" if detached or self.results == VALUE else self.results
        if results and not near:
            if results == REF:
                raise ObjectRefused(
                    "results='ref' keeps results as objects at the gateway's site, which is for "
                    "clients on the gateway's own host so far: take values, or work there"
                )
            results = ""
        nanos, currency = parse_money(self.max_cost) if self.max_cost else (None, "")
        return OpenJob(
            job=new_id(),
            name=self.name or function.name,
            function=function.digest,
            detached=detached,
            project=self.project,
            priority=float(self.priority),
            tags=dict(self.tags),
            timeout_s=self.timeout_s,
            retries=self.retries,
            max_cost_nanos=nanos,
            currency=currency,
            python=PYTHON,
            prints=self.prints,
            again=False,
            wishes=self.wishes,
            preemptible=self.preemptible,
            tasks=tasks,
            task_s=self.task_s,
            results=results,
            far_results=True,
        )

    def _read_environment(self) -> None:
        """Read the file of the environment, if one is named, once: it may change later."""
        if self.environment is not None and not isinstance(self.environment, Environment):
            object.__setattr__(self, "environment", read_environment(self.environment, PYTHON))

    def _read_lengths(self) -> None:
        """Turn times that are written with a unit, as in "10m", into seconds."""
        for name in ("timeout_s", "task_s"):
            object.__setattr__(self, name, read_seconds(name, getattr(self, name)))

    def _read_deadline(self) -> None:
        """Turn a deadline that is a datetime, or a time from now, into seconds since 1970."""
        given = self.deadline_s
        if isinstance(given, str):
            try:
                given = timedelta(seconds=read_length(given))
            except (ValueError, OverflowError):
                raise ValueError(f"deadline_s is {given!r:.80}; {DEADLINE_FORMS}") from None
        if isinstance(given, timedelta):
            object.__setattr__(self, "deadline_s", time.time() + given.total_seconds())
        elif isinstance(given, datetime):  # without a time zone: local time
            object.__setattr__(self, "deadline_s", given.timestamp())
        if isinstance(self.deadline_s, int | float) and self.deadline_s >= float(CALENDAR_END_S):
            raise ValueError(f"deadline_s is {given!r:.80}, which is after the year 9999")

    def __post_init__(self) -> None:
        self._read_environment()
        self._read_lengths()
        self._read_deadline()
        _ = self.wishes
        _check_tags(self.tags)
        if self.timeout_s is not None and not (
            is_number(self.timeout_s, 0, TIMEOUT_MAX_S) and self.timeout_s > 0
        ):
            raise ValueError(
                f"timeout_s is {self.timeout_s!r}; it must be greater than zero, in seconds"
            )
        if self.task_s is not None and not (
            is_number(self.task_s, 0, TIMEOUT_MAX_S) and self.task_s > 0
        ):
            raise ValueError(f"task_s is {self.task_s!r}; it must be greater than zero, in seconds")
        _check_retries(self.retries)
        _check_places(sites=self.sites, jurisdictions=self.jurisdictions)
        _check_is_given(self.project)
        if not is_number(self.priority, -PRIORITY_MAX, PRIORITY_MAX):
            raise TypeError(f"priority is {self.priority!r}; it must be a number up to 1e9")
        for what in ("project", "name"):
            text = getattr(self, what)
            check_name(what, text)
            if text is not None and not _is_plain(text):
                raise ValueError(f"{what} is {text!a:.80}; it must be printable")
        check_project(self.project)
        if self.max_cost is not None:
            _check_cost(self.max_cost)
        if self.results not in CHOICES:
            raise ValueError(
                f"results is {self.results!r:.40}; it must be 'auto', 'value' or 'ref'"
            )
        for what in ("prints", "preemptible"):
            if type(getattr(self, what)) is not bool:
                raise TypeError(f"{what} is {getattr(self, what)!r:.80}; it must be True or False")

    def key(self) -> tuple[Any, ...]:
        """Return a key that identifies this set of options."""
        tags = tuple(sorted(self.tags.items()))
        rest = (self.timeout_s, self.retries, self.priority, self.project, self.max_cost)
        more = (self.name, self.prints, self.preemptible, self.task_s, repr(self.wishes))
        return (tags, *rest, *more, self.results)

    def __str__(self) -> str:
        """The options that differ from their defaults, as in `retries=2, project='risk'`."""
        usual = Options()
        pairs = ((name, getattr(self, name)) for name in self.__slots__)
        return ", ".join(
            f"{name}={value!r}" for name, value in pairs if value != getattr(usual, name)
        )


def _check_retries(retries: object) -> None:
    if type(retries) is not int or not 0 <= retries <= RETRIES_MAX:
        raise ValueError(
            f"retries is {retries!r:.80}; it must be a whole number from 0 to {RETRIES_MAX}"
        )


def _check_places(**places: Sequence[str] | None) -> None:
    """Raise ValueError for an empty list of places: no pool could run the job."""
    for what, given in places.items():
        if given is not None and not given:
            raise ValueError(f"{what} is empty, so no pool could run the job; None allows any")


def _check_is_given(project: object) -> None:
    if project is None:
        raise ValueError(
            f"project is None; it must be text: {USUAL_PROJECT!r} is the usual project"
        )


def _check_cost(max_cost: object) -> None:
    """Raise TypeError or ValueError unless it is an amount of money."""
    if not isinstance(max_cost, str):
        raise TypeError(f'max_cost is {max_cost!r:.80}; it must be text, for example "5 USD"')
    try:
        parse_money(max_cost)
    except ValueError as error:
        raise ValueError(f"max_cost: {error}") from None


# Pickles of clients name it so.
Options.__module__ = "federation.client"


def _check_tags(tags: Any) -> None:
    if not isinstance(tags, Mapping):
        raise TypeError(f'tags is {tags!r:.80}; it must be a dict, for example {{"gpu": 1}}')
    for name, value in tags.items():
        if not isinstance(name, str) or not name or not _is_plain(name):
            raise TypeError(f"tags: {name!r} is not a valid name")
        if value is not True and not is_number(value, 0, TAG_MAX):
            raise TypeError(
                f"tags: {name} is {value!r}; it must be True or a number of zero or more"
            )


def check_ahead(given: object, deadline_s: object) -> None:
    """Raise ValueError for a deadline, as it was given and in seconds, that is not to come."""
    if isinstance(deadline_s, int | float) and deadline_s <= time.time():
        raise ValueError(
            f"deadline_s is {given!r:.80}, which is not after now, "
            f"{show_time(time.time())}; {DEADLINE_FORMS}"
        )


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether a value is an int or a float, and no bool, between two bounds or at one of them."""
    return type(value) in (int, float) and least <= value <= most


def check_name(what: str, name: object) -> None:
    """Raise ValueError unless a name is None, or text of a length that a gateway takes."""
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX):
        raise ValueError(
            f"{what} is {name!r:.80}; it must be text of 1 to {NAME_CHARS_MAX} characters"
        )


def _is_plain(text: str) -> bool:
    return text.isprintable()  # False for lone surrogates too
