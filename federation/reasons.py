"""Why a job or a task does not run somewhere: named reasons, each with a sentence for people.

`NEVER` reasons hold until the site changes its offer; the others pass by themselves.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Reason(StrEnum):
    """A named refusal. The value is the one on the wire and for scripts to compare."""

    TAG_MISSING = "tag-missing"
    TAG_TOO_SMALL = "tag-too-small"
    PYTHON_DIFFERS = "python-differs"
    CURRENCY_DIFFERS = "currency-differs"
    ENVIRONMENT_MISSING = "environment-missing"
    ENVIRONMENT_FAILED = "environment-failed"
    ENVIRONMENT_PREPARING = "environment-preparing"
    NO_SANDBOX = "no-sandbox"
    NO_INPUTS = "no-inputs"
    OBJECTS_STAY = "objects-stay"
    OUTSIDE_LABEL = "outside-label"
    TAG_IN_USE = "tag-in-use"
    BUSY = "busy"
    HELD = "held"
    DRAINING = "draining"
    COST_LIMIT = "cost-limit"
    CLIENT_NOT_READING = "client-not-reading"
    FUNCTION_MISSING = "function-missing"
    NO_WORKER = "no-worker"
    STORE_TROUBLE = "store-trouble"
    FAULT = "fault"
    BAD_REQUEST = "bad-request"
    JOB_NOT_FOUND = "job-not-found"
    SITE_NOT_TRUSTED = "site-not-trusted"
    SITE_FORBIDDEN = "site-forbidden"
    OUTSIDE_JURISDICTION = "outside-jurisdiction"
    NOT_ENTITLED = "not-entitled"
    ALREADY_VISITED = "already-visited"
    NO_HOPS_LEFT = "no-hops-left"
    ADVERT_STALE = "advert-stale"
    SITE_RESTING = "site-resting"
    NO_SLOTS = "no-slots"
    WINDOW_CLOSED = "window-closed"
    OVER_CLAIM = "over-claim"
    OVER_ENTITLEMENT = "over-entitlement"
    WAITS_FOR_WINDOW = "waits-for-window"
    DEADLINE = "deadline"
    DURATION_UNKNOWN = "duration-unknown"
    ELSEWHERE = "elsewhere"
    PROJECT_NOT_ALLOWED = "project-not-allowed"
    SCOPE_MISSING = "scope-missing"
    RESULTS_NOT_TRUSTED = "results-not-trusted"
    BUDGET_EXHAUSTED = "budget-exhausted"
    CREDIT_LIMIT = "credit-limit"
    BETTER_LATER = "better-later"
    LIMITS_UNMET = "limits-unmet"


NEVER = frozenset(
    {
        Reason.TAG_MISSING,
        Reason.TAG_TOO_SMALL,
        Reason.PYTHON_DIFFERS,
        Reason.CURRENCY_DIFFERS,
        Reason.ENVIRONMENT_MISSING,
        Reason.NO_SANDBOX,
        Reason.NO_INPUTS,
        Reason.OBJECTS_STAY,
        Reason.OUTSIDE_LABEL,
        Reason.SITE_NOT_TRUSTED,
        Reason.SITE_FORBIDDEN,
        Reason.OUTSIDE_JURISDICTION,
        Reason.NOT_ENTITLED,
        Reason.ALREADY_VISITED,
        Reason.NO_HOPS_LEFT,
        Reason.RESULTS_NOT_TRUSTED,
    }
)

TEXTS: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        Reason.TAG_MISSING: "a tag that the job requires is missing",
        Reason.TAG_TOO_SMALL: "no worker has as much of a tag as the job requires",
        Reason.PYTHON_DIFFERS: "the Python version differs from the job's",
        Reason.CURRENCY_DIFFERS: (
            "no exchange rate is configured from the currency of the price to that of the limit"
        ),
        Reason.ENVIRONMENT_MISSING: "the environment that the job requires is not there",
        Reason.ENVIRONMENT_FAILED: "the environment of the job could not be built",
        Reason.ENVIRONMENT_PREPARING: "the environment of the job is being prepared",
        Reason.NO_SANDBOX: "there is no sandbox for such work",
        Reason.NO_INPUTS: "calls that wait for other tasks are not taken there",
        Reason.OBJECTS_STAY: "the objects that the calls refer to can't go there",
        Reason.OUTSIDE_LABEL: "the label of the data that the calls read forbids it",
        Reason.TAG_IN_USE: "running tasks use what the job requires of a tag",
        Reason.BUSY: "all slots are busy",
        Reason.HELD: "the job is held",
        Reason.DRAINING: "it is draining and takes nothing new",
        Reason.COST_LIMIT: "the cost limit pays for no more tasks",
        Reason.CLIENT_NOT_READING: "the client does not read its results",
        Reason.FUNCTION_MISSING: "the function of the job has not arrived",
        Reason.NO_WORKER: "there is no worker",
        Reason.STORE_TROUBLE: "the database can't be written",
        Reason.FAULT: "an internal error occurred: the log of the gateway has it",
        Reason.BAD_REQUEST: "the request is invalid",
        Reason.JOB_NOT_FOUND: "the job is not found",
        Reason.SITE_NOT_TRUSTED: "the site is not trusted here",
        Reason.SITE_FORBIDDEN: "the job does not allow the site",
        Reason.OUTSIDE_JURISDICTION: "the data of the job may not enter that jurisdiction",
        Reason.NOT_ENTITLED: "the rules of the site do not allow such work",
        Reason.ALREADY_VISITED: "the job has come through that site already",
        Reason.NO_HOPS_LEFT: "the job may not be passed to a further site",
        Reason.ADVERT_STALE: "the site has not been heard from for too long",
        Reason.SITE_RESTING: "the site is in back-off after a refusal or a timeout",
        Reason.NO_SLOTS: "no slot is free for it now",
        Reason.WINDOW_CLOSED: "the window is closed to it, or closes before a task would end",
        Reason.OVER_CLAIM: "the claim of its owner on the pool is used up",
        Reason.OVER_ENTITLEMENT: "the entitlement of its owner is used up",
        Reason.WAITS_FOR_WINDOW: "the job waits for a window to open",
        Reason.DEADLINE: "it would end after the deadline",
        Reason.DURATION_UNKNOWN: (
            "the duration of a task is not known yet: a first round of tasks measures it"
        ),
        Reason.ELSEWHERE: "the plan gives it to other pools",
        Reason.PROJECT_NOT_ALLOWED: "the project is not allowed",
        Reason.SCOPE_MISSING: "the token lacks the scope for it",
        Reason.RESULTS_NOT_TRUSTED: "results of that site are not trusted",
        Reason.BUDGET_EXHAUSTED: "a budget has no room for a task",
        Reason.CREDIT_LIMIT: "the credit between the sites is used up",
        Reason.BETTER_LATER: "better hours come later",
        Reason.LIMITS_UNMET: "its limits can't be met",
    }
)


def reason_text(code: str) -> str:
    """Return the sentence for a reason; of a code of a newer party, words that name the code."""
    try:
        return TEXTS[Reason(code)]
    except ValueError:
        return f"a newer version's reason, {code!r:.60}"
