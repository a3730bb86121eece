"""Detects whether the other end of a session has been silent for too long. Pure.

A host that is short of CPU makes healthy sessions look dead, in two ways, and giving them up costs
it more CPU. So, as in Lifeguard (Dadgar, Phillips, Currey, 2018), both are measured:

- This end was not run for a while. Frames sent in the meantime may still wait to be read, so
  silence counts only from when this end looks again.
- The other end is run late. The longest of its recent pauses is remembered, and fades; a silence of
  twice that length is not unusual for it.

`mono_s` is any monotonic clock.
"""

from typing import Final

from federation.clocks import MonoS

SILENT_BEATS: Final = 4  # heartbeats without a frame, from an end that is on time
USUAL_PAUSES: Final = 2.0  # and pauses, from an end that is late
FADE: Final = 0.9  # of the longest pause, with each frame
ABSENT_BEATS: Final = 2  # this end was not run if it did not look for this many beats, …
ABSENT_MIN_S: Final = 2.0  # … nor for this long: a client may look every half second only


class Hearing:
    """When the other end was heard, and how long its silence may last.

    Attributes:
        heard_at_s: the time from which silence counts. A lost pipe moves it too, so it proves
            nothing.
        word_at_s: all that the other end did until then has been heard; see `spoke`.
    """

    def __init__(self, mono_s: MonoS) -> None:
        self.heard_at_s = self.word_at_s = mono_s
        self._pause_s = 0.0
        self._looked_at_s = mono_s
        self._listening_at_s = mono_s  # without a pause of our own since then

    def heard(self, mono_s: MonoS) -> None:
        """Note a frame that is read now. It may be called again for a frame noted before."""
        mono_s = max(mono_s, self.heard_at_s)
        self._pause_s = max(FADE * self._pause_s, mono_s - self.heard_at_s)
        self.heard_at_s = mono_s

    def spoke(self, came_at_s: MonoS) -> None:
        """Note a frame that came no sooner than this, and with which nothing was left unsaid.

        A frame that is sent again, or ahead of messages that wait, is none (Session.is_current).
        """
        self.word_at_s = max(self.word_at_s, came_at_s)

    def restarted(self, mono_s: MonoS) -> None:
        """Count silence from now on; the time before is no pause."""
        self.heard_at_s = mono_s

    def silent_s(self, mono_s: MonoS, beat_s: float) -> float:
        """Return how long nothing came while this end listened; call it every second or more."""
        if mono_s - self._looked_at_s > max(ABSENT_BEATS * beat_s, ABSENT_MIN_S):
            self._listening_at_s = mono_s
        self._looked_at_s = mono_s
        return mono_s - max(self.heard_at_s, self._listening_at_s)

    def is_silent(self, mono_s: MonoS, beat_s: float, most_s: float) -> bool:
        """Whether the other end has been silent for so long that the pipe must be given up.

        Args:
            beat_s: the interval at which the other end sends something, if it is on time.
            most_s: the longest silence that its own pauses can excuse, beyond the usual number of
                beats.
        """
        usual_s = SILENT_BEATS * beat_s
        limit_s = max(usual_s, min(USUAL_PAUSES * self._pause_s, most_s))
        return self.silent_s(mono_s, beat_s) > limit_s
