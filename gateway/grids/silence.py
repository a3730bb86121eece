"""Decides when a local pool's agent that runs is given up, as it answers no more. Pure.

A task can stop its agent by a signal, or make it hang: the process runs on, and never ends by
itself. Its session ends with its lease; an agent that works has another one a moment later.
"""

from dataclasses import dataclass, field
from typing import Final

from federation.clocks import MonoS
from federation.words import duration_text

JOIN_S: Final = 120.0  # time for a new agent to join: hosts may be slow, and files far away
LOOK_S: Final = 0.5  # how often it is looked at
SILENT_MIN_S: Final = 3.0  # after the end of its session


@dataclass(slots=True)
class Silence:
    """How long an agent has had no session.

    Only the time in which we looked counts: an agent is not blamed for a gateway that stood still.

    Args:
        began_at_s: when the agent was started; monotonic.
        grace_s: for how long a working agent may be without a session.
    """

    began_at_s: MonoS
    grace_s: float
    heard_at_s: MonoS | None = None  # when it last had a session
    silent_s: float = 0.0
    _looked_at_s: MonoS = field(init=False)

    def __post_init__(self) -> None:
        self._looked_at_s = self.began_at_s

    def look(self, mono_s: MonoS, *, is_here: bool) -> bool:
        """Note whether the agent has a session now; return whether to give it up."""
        passed_s = min(mono_s - self._looked_at_s, 2 * LOOK_S)
        self._looked_at_s = mono_s
        if is_here:
            self.heard_at_s, self.silent_s = mono_s, 0.0
            return False
        self.silent_s += passed_s
        return self.silent_s > self.limit_s

    @property
    def limit_s(self) -> float:
        """For how long it may be without a session now."""
        return JOIN_S if self.heard_at_s is None else max(SILENT_MIN_S, self.grace_s)

    def lived_s(self, mono_s: MonoS) -> float:
        """How long it has worked, as far as is known."""
        return (mono_s if self.heard_at_s is None else self.heard_at_s) - self.began_at_s

    def text(self, pid: int) -> str:
        """Say why the pool has no worker, of an agent that runs."""
        left_s = max(0.0, self.limit_s - self.silent_s)
        if self.heard_at_s is None:
            return (
                f"its process {pid} was started {duration_text(self.silent_s)} ago and has not "
                f"connected yet; in {duration_text(left_s)} it is killed, and another starts"
            )
        return (
            f"its process {pid} runs and does not answer, as if a task had stopped it; in "
            f"{duration_text(left_s)} it is killed, and another starts"
        )
