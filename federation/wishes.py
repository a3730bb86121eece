"""A user's wishes for the placement of work, in wire form; the receiver checks them again."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

OBJECTIVES: Final = ("cheapest", "fastest", "greenest")
WEIGHTS: Final = ("money", "time", "carbon")
WHEN_CLOSED: Final = ("wait", "elsewhere")
# Limits of a job, which its client and its gateway check.
RETRIES_MAX: Final = 1000
PRIORITY_MAX: Final = 1e9  # above and below zero
NAMES_MAX: Final = 256
NAME_CHARS_MAX: Final = 200
USUAL_PROJECT: Final = "default"  # the project of a job whose user names none
DEADLINE_FORMS: Final = (
    'it must be a time from now, as in "2h", "30m" or timedelta(hours=2), or a moment: a datetime '
    "(of local time where it has no zone) or its seconds since 1970"
)
LONG_AGO_S: Final = 1e9  # 2001: an earlier deadline is meant otherwise


def wishes_plain(
    objective: str | Mapping[str, float] | None,
    deadline_s: float | None,
    *,
    when_closed: str | None = None,
    deferrable: bool = False,
    whole: bool = False,
    environment: Mapping[str, Any] | None = None,
    **names: Iterable[str] | None,
) -> dict[str, Any]:
    """Return the wishes of a job, as a map without those that were not given.

    Args:
        objective: one of OBJECTIVES, or weights by WEIGHTS.
        deadline_s: UTC, seconds since 1970.
        environment: its environment: see federation.messages.environments.
        when_closed: one of WHEN_CLOSED: what to do about a window that opens later.
        deferrable: whether it may wait for better hours, as long as it keeps its deadline.
        whole: whether it is useful only if all of it is done within its limits.
        names: `sites`, `not_sites`, `jurisdictions`, `data`.

    Raises:
        ValueError, TypeError: a value is invalid; the text names it and the reason.
    """
    plain: dict[str, Any] = {}
    if objective is not None:
        plain["objective"] = _objective(objective)
    if deadline_s is not None:
        if type(deadline_s) not in (int, float) or not deadline_s > 0:
            raise TypeError(f"deadline_s is {deadline_s!r:.80}; {DEADLINE_FORMS}")
        if deadline_s < LONG_AGO_S:
            raise ValueError(
                f"deadline_s is {deadline_s!r}, which is long past: a plain number is a time, not "
                f'a duration; use "{deadline_s:g}s" or time.time() + {deadline_s:g}'
            )
        plain["deadline_s"] = float(deadline_s)
    if environment is not None:
        plain["environment"] = dict(environment)
    if when_closed is not None:
        if when_closed not in WHEN_CLOSED:
            known = " or ".join(map(repr, WHEN_CLOSED))
            raise ValueError(f"when_closed is {when_closed!r:.80}; it must be {known}")
        plain["when_closed"] = when_closed
    plain |= dict.fromkeys(_set(deferrable=deferrable, whole=whole), True)
    if deferrable and deadline_s is None:
        raise ValueError("deferrable needs deadline_s, the latest time to finish")
    for key, values in names.items():
        if values is not None:
            plain[key] = _names(key, values)
    return plain


def _set(**flags: bool) -> list[str]:
    """Return the names of the flags that are set."""
    for key, flag in flags.items():
        if type(flag) is not bool:
            raise TypeError(f"{key} is {flag!r:.80}; it must be True or False")
    return [key for key, flag in flags.items() if flag]


def _objective(value: str | Mapping[str, float]) -> str | dict[str, float]:
    if isinstance(value, str):
        if value in OBJECTIVES:
            return value
    elif set(value) <= set(WEIGHTS):
        weights = {name: each for name, each in value.items() if each != 0}
        if weights and all(map(_is_weight, weights.values())):
            return weights
    known = ", ".join(OBJECTIVES)
    raise ValueError(
        f"objective is {value!r:.80}; it must be {known}, or weights of {', '.join(WEIGHTS)}"
    )


def _is_weight(value: object) -> bool:
    return type(value) in (int, float) and 0 < value <= 1e6  # type: ignore[operator]


def _names(key: str, values: Iterable[str]) -> list[str]:
    if isinstance(values, str):
        raise TypeError(f"{key} must be a list of names, not a single string")
    found = sorted(set(values))
    if len(found) > NAMES_MAX or not all(0 < len(each) <= NAME_CHARS_MAX for each in found):
        raise ValueError(
            f"{key} must be at most {NAMES_MAX} names of 1 to {NAME_CHARS_MAX} characters"
        )
    return found
