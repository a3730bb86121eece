"""Why a job or a task does not run somewhere: named reasons, each with a sentence for people.

`NEVER` reasons hold until the site changes its offer; the others pass by themselves.
"""

from enum import StrEnum


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
        Reason.SITE_NOT_TRUSTED,
        Reason.SITE_FORBIDDEN,
        Reason.OUTSIDE_JURISDICTION,
        Reason.NOT_ENTITLED,
        Reason.ALREADY_VISITED,
        Reason.NO_HOPS_LEFT,
        Reason.RESULTS_NOT_TRUSTED,
    }
)
