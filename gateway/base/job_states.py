"""The states of jobs, as people are shown them. Pure."""

from typing import Final

# A job that is cancelling, or ending for another reason, begins nothing more: it has ended when the
# last of its begun tasks has.
LIVE_STATES: Final = ("waiting", "running", "open", "cancelling", "ending")
# A job in one of these states was ordered to end, and then has the state beside it.
ENDS_ORDERED: Final = {"cancelling": "cancelled", "ending": "abandoned"}
# An attached job in one of these states is open again if its client returns.
MAY_RETURN: Final = ("lost", "abandoned")
# States that are made of what the books have of a job that was done: they count its tasks.
MADE_STATES: Final = ("done", "failed", "partly failed", "cancelled")
HELD: Final = "held"  # no state, but shown as one: an unfinished job that begins no task
REJECTED: Final = "rejected"  # refused, before any task of it began
STATES: Final = (*LIVE_STATES, *MADE_STATES, "abandoned", "lost", REJECTED)
CHOICES: Final = (*STATES, HELD)  # by which jobs are listed


def spelled(state: str) -> str:
    """Return a state as it is shown: "partly failed" may be typed as "partly-failed", too."""
    return state.replace("-", " ")


def ended_state(state: str, done: int, failed: int, cancelled: int) -> str:
    """Return the state of a job that has ended: "done" only if its tasks are.

    `state` is as it is stored, where "done" means that the job was closed, however its tasks ended.
    """
    if state != "done":
        return state
    if failed:
        return "partly failed" if done else "failed"
    return "cancelled" if cancelled and not done else "done"


__all__ = [
    "CHOICES",
    "ENDS_ORDERED",
    "HELD",
    "LIVE_STATES",
    "MADE_STATES",
    "MAY_RETURN",
    "REJECTED",
    "STATES",
    "ended_state",
    "spelled",
]
