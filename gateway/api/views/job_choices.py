"""Which jobs a name may mean, and why an order about a job comes too late. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from federation.clocks import UtcS
from federation.offers import show_time
from federation.words import age_text
from gateway.api.views.work_views import latest

CANDIDATES_MAX: Final = 10  # named where several jobs are meant
PREFIX_CHARS_MIN: Final = 4


def several(text: str, meant: Sequence[Mapping[str, Any]], utc_s: UtcS, kind: str = "") -> str:
    """Say which jobs a text may mean, the last submitted first.

    Args:
        text: a name, or the beginning of an id.
        meant: the views of the jobs.
        utc_s: now.
        kind: what they all are, such as "unfinished".
    """
    lines = [
        f"{each['id']}  {each['name']}, {each['state']}, of {each['user']}, submitted "
        f"{age_text(utc_s - each['submitted_at_s'])} ago, {show_time(each['submitted_at_s'])}"
        for each in latest(list(map(dict, meant)), CANDIDATES_MAX)
    ]
    more = "\nand others" if len(meant) > CANDIDATES_MAX else ""
    jobs = f"{kind} jobs" if kind else "jobs"
    return f"{text!r} may mean several {jobs}; name one by its id:\n" + "\n".join(lines) + more


def too_short(text: str) -> str:
    """Say that no job has a name, and that it is too short for the beginning of an id."""
    return (
        f"no job is named {text!r}, and the beginning of an id needs at least {PREFIX_CHARS_MIN} "
        "characters: give more of it (`gridfed jobs` lists ids)"
    )


def refused(view: Mapping[str, Any]) -> str:
    """Say when and why a job was refused."""
    name = f" ({view['name']})" if view["name"] else ""
    return (
        f"job {view['id']}{name} of {view['user']} was refused {show_time(view['ended_at_s'])} "
        f"({view['code']}), and nothing of it has run: {view['reason']}"
    )


def ended(view: Mapping[str, Any], utc_s: UtcS) -> str:
    """Say that a job takes no orders, because it has ended: when and how."""
    why = view["first_error"] or view["reason"]
    at_s = view["ended_at_s"]
    when = "" if at_s is None else f" {age_text(utc_s - at_s)} ago, {show_time(at_s)}"
    name = f" ({view['name']})" if view["name"] else ""
    return (
        f"job {view['id']}{name} of {view['user']} has ended{when}, as {view['state']}"
        f"{f' ({why})' if why else ''}: only an unfinished job takes this order"
    )
